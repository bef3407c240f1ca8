"""What proposes: a few vectors an item whose inner products with a query's come near the true score.

A model gives such vectors itself, or they are distilled from its scores (`distil.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from matchlight.data.formats.safety import load_npy
from matchlight.indexing.scorers import Proposer, as_float32
from matchlight.indexing.stored_sets import Sets

BLOCK = 2048  # items read at once
IN_MEMORY = 1 << 26  # bytes of rows that are not written to the disk while an index is built
MERGES = ("mean", "max")


def all_rows(proposer: Proposer, sets: Sets, side: str, *, room: Path | None = None) -> np.ndarray:
    """(N, k, d) half precision: what proposes, of every item; where that is much, mapped from a file in `room`."""
    shape = (len(sets), *proposer.rows(sets.take(np.arange(1)), side).shape[1:])
    blocks = ((span, proposer.rows(part, side).astype(np.float16, copy=False)) for span, part in sets.blocks(BLOCK))
    if room is None or 2 * np.prod(shape, dtype=np.int64) <= IN_MEMORY:
        out = np.empty(shape, dtype=np.float16)
        for span, rows in blocks:
            out[span] = rows
        return out
    path = room / f"rows-{side}-{proposer.name}.npy"
    with path.open("wb") as file:  # not through a map, which a full disk would end the process with
        np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
        for _, rows in blocks:
            rows.tofile(file)
    return load_npy(path)


def merged(best: np.ndarray, merge: str) -> np.ndarray:
    """(q, ...) the best inner product of each of a query's vectors -> (...) one number an item."""
    return np.asarray(best.mean(0) if merge == "mean" else best.max(0))


def proposal_scores(queries: np.ndarray, rows: np.ndarray, merge: str) -> Iterator[tuple[int, np.ndarray]]:
    """(Q, n) what queries (Q, q, d) propose of all `rows` (N, k, d), n of them at a time, with where they begin."""
    flat = as_float32(queries).reshape(-1, queries.shape[2])
    for start in range(0, len(rows), 4 * BLOCK):
        part = as_float32(rows[start : start + 4 * BLOCK])
        products = flat @ part.reshape(-1, part.shape[2]).T
        best = products.reshape(*queries.shape[:2], *part.shape[:2]).max(3)
        yield start, merged(best.swapaxes(0, 1), merge)
