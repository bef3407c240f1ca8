"""Knowing data again: a fingerprint of a whole set, a mark for each pair, and which pairs a run has learnt from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from matchlight.core import BadInput
from matchlight.formats.safe import load_npy
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from matchlight.runs import Run

SEEN = "seen.npy"


def fingerprint(pairs: Pairs) -> str:
    """Changes when captions, pictures' names, pairing or splits do: what a resumed run must agree on."""
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


def weights_mark(run: Run) -> str:
    """Changes when a run's weights do: two of the same method, data and seed may still be trained further."""
    path = run.folder / "model.safetensors"
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; a run that finished an epoch has one") from None


def seen_by(pairs: Pairs, start: Run | None) -> np.ndarray:
    """Marks of all pairs that a new run learns from, and of those its weights have learnt from before."""
    before = start.folder / SEEN if start is not None else None
    old = load_npy(before) if before is not None and before.is_file() else np.zeros(0, "<u8")
    return np.union1d(marks(pairs, pairs.rows("train")), old)


def trained_on(run: Run, pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """(n,) bool: which of these pairs the run learnt from, also where the data have changed since."""
    path = run.folder / SEEN
    if path.is_file():
        return np.isin(marks(pairs, rows), load_npy(path))
    same = run.info.get("data", {}).get("fingerprint") == fingerprint(pairs)  # imported: learnt from nothing here
    return np.isin(rows, pairs.rows("train")) if same and "train" in pairs.split_names else np.zeros(len(rows), bool)
