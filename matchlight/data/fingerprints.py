"""Knowing data again: a fingerprint of a whole set, a mark for each pair, and which pairs a run has learnt from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from matchlight.pairs import Pairs

if TYPE_CHECKING:
    pass


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
