"""Knowing data again: a fingerprint of a whole set, a mark for each pair, and which pairs a run has learnt from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from matchlight.data.content import content_mark
from matchlight.pairs import Pairs

FINGERPRINT, CONTENT = "fingerprint", "content"


class DataMarks(TypedDict):
    """What a file keeps of the data it belongs to; files of old have no `content`."""

    fingerprint: str
    content: str


def data_marks(pairs: Pairs) -> DataMarks:
    """Captions, names, pairing and splits as one mark, what pictures and features hold as another."""
    return {"fingerprint": fingerprint(pairs), "content": content_mark(pairs)}


def is_same_data(kept: object, pairs: Pairs) -> bool:
    """Whether what a file kept of its data (`data_marks`) is of these; of an old file the fingerprint alone counts."""
    if not isinstance(kept, Mapping) or kept.get(FINGERPRINT) != fingerprint(pairs):
        return False
    return CONTENT not in kept or kept[CONTENT] == content_mark(pairs)


def differing(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """The names under which two descriptions differ; an old one that says nothing of content agrees with any."""
    return [name for name, value in new.items() if old.get(name) != value and (name != CONTENT or name in old)]


def fingerprint(pairs: Pairs) -> str:
    """Changes when captions, pictures' names, pairing or splits do; of what pictures show it knows nothing."""
    digest = hashlib.sha256()
    digest.update("\0".join(map(str, pairs.names)).encode("utf-8", "replace") + b"\0\0")
    for caption in pairs.captions:
        digest.update(caption.encode("utf-8", "replace") + b"\0")
    digest.update(np.ascontiguousarray(pairs.picture).tobytes())
    digest.update("\0".join(map(str, pairs.splits.tolist())).encode())
    if pairs.labels is not None:
        digest.update(pairs.labels.image.tobytes() + pairs.labels.text.tobytes())
    return digest.hexdigest()[:16]


def marks(pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """(n,) a number for each (picture, caption): the same pair has the same one in any version of the data."""
    said = (f"{pairs.names[pairs.picture[row]]}\0{pairs.captions[row]}" for row in rows.tolist())
    kept = (hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in said)
    return np.frombuffer(b"".join(kept), dtype="<u8").copy()


def digest(*arrays: npt.ArrayLike) -> str:
    """A short name for the contents of arrays or tensors."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]
