"""Reading scores a few queries at a time under a byte budget, shared out over the machine's cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Numbers, as_array
from matchlight.measuring.metrics.relevance import Relevance

BUDGET = 32 << 20  # bytes that all blocks under way and their working copies may take; small blocks stay in the cache
WORKING = 24  # bytes a score needs beside itself at the widest: a sorted copy, a mask, gains
TILE = 256  # rows that are turned round at a time: their lines stay in the cache meanwhile
HOST = ("cpu",)  # tensors there are read as arrays: NumPy counts with less waiting than PyTorch's threads
TIES = ("worst", "official")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Window:
    """Some rows and columns of a bigger matrix (maybe memory-mapped, maybe on a GPU), read block by block."""

    base: Array | Tensor
    rows: Array
    columns: Array

    @staticmethod
    def on(scores: Array | Tensor | Window, rows: Array, columns: Array) -> Window:
        """These rows and columns of scores, which may be a window already."""
        if isinstance(scores, Window):
            return Window(scores.base, scores.rows[rows], scores.columns[columns])
        return Window(scores, rows, columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the window."""
        return len(self.rows), len(self.columns)

    @property
    def dtype(self) -> np.dtype[np.generic] | torch.dtype:
        """What the bigger matrix holds."""
        return self.base.dtype

    @property
    def T(self) -> Window:
        """The window on the transposed matrix."""
        return Window(self.base.T, self.columns, self.rows)

    def __getitem__(self, rows: slice | Array) -> Array | Tensor:
        wanted, columns = _straight(self.rows[rows]), _straight(self.columns)
        if isinstance(self.base, Tensor):
            return self.base[_on(self.base, wanted)][:, _on(self.base, columns)]
        if not isinstance(wanted, slice) and len(wanted) and np.ptp(wanted) < 2 * len(wanted):
            low = int(wanted.min())  # a few missing: quicker to read what is between and leave it out
            return np.asarray(_straightened(self.base[low : low + int(np.ptp(wanted)) + 1][:, columns])[wanted - low])
        return np.asarray(self.base[wanted][:, columns])


def _straight(places: Array) -> slice | Array:
    """Consecutive places as a slice, which copies nothing."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and bool((np.diff(places) == 1).all()):
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _on(base: Tensor, places: slice | Array) -> slice | Tensor:
    """Places as an index of a tensor, on its device."""
    return places if isinstance(places, slice) else torch.from_numpy(places).to(base.device)


Scores = Array | Tensor | Window
ScoresLike = Numbers | Window  # what a caller may hand over


def as_scores(scores: ScoresLike) -> Scores:
    """Scores as a matrix of real numbers; memory-mapped ones are left on disk, those of a GPU where they are."""
    if isinstance(scores, Window):
        return scores
    if isinstance(scores, Tensor) and scores.device.type not in HOST:
        if scores.dim() != 2 or scores.is_complex():
            raise BadInput(f"scores must be a matrix of numbers, not {scores.dtype} of shape {tuple(scores.shape)}")
        return scores.detach()
    array = as_array(scores)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise BadInput(f"scores must be a matrix of numbers, not {array.dtype} of shape {array.shape}")
    return array


def on_device(scores: Scores) -> bool:
    """Whether scores are on a GPU: their ranks are counted there."""
    return isinstance(scores.base if isinstance(scores, Window) else scores, Tensor)


def check_ties(ties: str) -> None:
    """Refuse a tie rule that does not exist."""
    if ties not in TIES:
        raise BadInput(f"{ties!r} is no tie rule; known: {', '.join(TIES)}")


def workers() -> int:
    """How many blocks to work on at once: the cores that this process may use, or fewer by OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, 8, int(asked) if asked.isdigit() else cores))


def spans(scores: Scores, budget: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of queries whose blocks fit in the budget, as many at once as there are workers."""
    queries, gallery = tuple(scores.shape)
    step = max(1, budget // max(1, workers() * gallery * (scores.dtype.itemsize + WORKING)))
    return ((start, min(start + step, queries)) for start in range(0, queries, step))


def read(scores: Scores, rows: slice | Array, first: int) -> Array:
    """Some rows as floats in memory; a score that is not a number is an error that says where it is."""
    block = _straightened(as_array(scores[rows]))
    if block.dtype.kind != "f":
        return block.astype(np.float64)
    if block.dtype.itemsize < 4:
        block = block.astype(np.float32)  # exact, and far quicker to compare
    if block.size and np.isnan(block.min()):
        row, column = np.argwhere(np.isnan(block))[0]
        raise BadInput(f"scores: row {first + row}, column {column} is not a number (NaN); every pair needs a score")
    return block


def _straightened(block: Array) -> Array:
    """Rows one after the other in memory; a transposed block is turned tile by tile, several times as fast."""
    if block.flags.c_contiguous or block.strides[0] >= block.strides[1]:
        return np.ascontiguousarray(block)
    out = np.empty(block.shape, block.dtype)
    for start in range(0, block.shape[1], TILE):
        out[:, start : start + TILE] = block[:, start : start + TILE]
    return out


def over(scores: ScoresLike, budget: int, work: Callable[[int, int, Array], T]) -> list[T]:
    """What `work(q0, q1, scores of these queries)` gives for each block, in order; blocks go to threads."""
    matrix = as_scores(scores)
    parts = list(spans(matrix, budget))

    def one(part: tuple[int, int]) -> T:
        return work(*part, read(matrix, slice(*part), part[0]))

    many = min(workers(), len(parts))
    if many < 2:
        return [one(part) for part in parts]
    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(one, parts))


def check_size(scores: Scores, relevance: Relevance) -> None:
    """Refuse scores and relevance that do not belong together."""
    if tuple(scores.shape) != tuple(relevance.shape):
        mine, theirs = (" x ".join(map(str, shape)) for shape in (scores.shape, relevance.shape))
        raise BadInput(f"scores are {mine} but relevance is {theirs}")
