"""Which pictures may be found: filters by split, label, name, folder, date, camera, and by what captions say."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from matchlight.console import BadInput
from matchlight.data.camera_notes import UNKNOWN, bounds
from matchlight.indexing.catalogue import Catalogue

Where = Mapping[str, str | int | Collection[str] | Collection[int] | np.ndarray]  # a name's values: any of them
FILTERS = ("split", "label", "name", "id", "folder", "camera", "from", "to", "caption")


def passing(catalogue: Catalogue, where: Where | None) -> np.ndarray | None:
    """(N,) which pictures pass a filter and are still there; None: no filter was given."""
    if not where:
        return None
    keep = catalogue.alive.copy()
    for key, value in where.items():
        keep &= _passing(catalogue, key, [value] if isinstance(value, str | int) else list(value))
    return keep


def _passing(known: Catalogue, key: str, wanted: Sequence[str | int]) -> np.ndarray:
    words = [str(one) for one in wanted]
    if key == "split":
        return np.isin(known.split, [_known(name, known.split_names, "split") for name in words])
    if key == "label":
        columns = [_known(name, known.label_names, "label") for name in words]
        return np.asarray(known.label[:, columns].any(1))
    if key == "camera":
        return np.isin(known.camera, [_known(name, known.camera_names, "camera") for name in words])
    if key in ("name", "folder"):
        return _named(known, [name if key == "name" else f"{name.rstrip('/')}/" for name in words])
    if key == "id":
        return np.isin(known.ids, np.asarray(wanted, dtype=np.int64))
    if key in ("from", "to"):
        spans = [bounds(word, key) for word in words]
        inside = known.taken >= min(first for first, _ in spans)
        if key == "to":
            inside = known.taken < max(after for _, after in spans)
        return np.asarray(inside & (known.taken != UNKNOWN))
    if key == "caption":
        return np.asarray(np.logical_or.reduce([said(known, phrase) for phrase in words]))
    raise BadInput(f"no filter {key!r}; known: {', '.join(FILTERS)}")


def _named(known: Catalogue, starts: list[str]) -> np.ndarray:
    """(N,) whose names begin with any of these."""
    beginnings = tuple(start.encode() for start in starts)
    return np.fromiter((name.startswith(beginnings) for name in known.names), bool, len(known.ids))


def said(known: Catalogue, phrase: str, *, plural: bool = False) -> np.ndarray:
    """(N,) which pictures have a caption with these words in this order, whole words, capitals or not."""
    words = phrase.split()
    if not words:
        raise BadInput("caption=: the words that a caption must hold, such as caption=red ball")
    text = r"\W+".join(re.escape(word) for word in words)
    pattern = re.compile(rf"(?<!\w){text}{'(?:s|es)?' if plural else ''}(?!\w)", re.IGNORECASE)
    found = np.zeros(len(known.ids), dtype=bool)
    own = np.fromiter((pattern.search(_text(one)) is not None for one in known.captions), bool, len(known.rows))
    found[known.picture[own]] = True
    return found


def _text(caption: bytes) -> str:
    return caption.decode("utf-8", "replace")


def folders(known: Catalogue, *, most: int = 200) -> dict[str, int]:
    """Folders that pictures lie in, with how many each holds, folders inside it included; none where all lie flat."""
    counts: dict[str, int] = {}
    for place in np.flatnonzero(known.alive).tolist():
        parts = known.name(place).split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            counts[path] = counts.get(path, 0) + 1
    telling = {path: count for path, count in counts.items() if count < int(known.alive.sum())}
    largest = sorted(telling, key=lambda path: -telling[path])[:most]
    return {path: telling[path] for path in sorted(largest)}


def _known(name: str, names: list[str], what: str) -> int:
    if name and name in names:
        return names.index(name)
    there = [one for one in names if one]
    shown = ", ".join(there[:12]) + (", ..." if len(there) > 12 else "")
    raise BadInput(f"no {what} {name!r} in this index; it has {shown or 'none'}")
