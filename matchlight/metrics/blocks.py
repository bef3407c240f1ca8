"""Reading scores a few queries at a time under a byte budget, and where relevant items end up in each query's list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from matchlight.core import BadInput
from matchlight.metrics.relevance import Array, Relevance

BUDGET = 64 << 20  # bytes that one block and its working copies may take
WORKING = 24  # bytes a score needs beside itself at the widest: a sorted copy, an order, a mask
TIES = ("worst", "official")


@dataclass(frozen=True, eq=False)
class Window:
    """Some rows and columns of a bigger (maybe memory-mapped) matrix, read only when a block is asked for."""

    base: Array
    rows: Array
    columns: Array

    @staticmethod
    def on(scores: Array | Window, rows: Array, columns: Array) -> Window:
        """These rows and columns of scores, which may be a window already."""
        if isinstance(scores, Window):
            return Window(scores.base, scores.rows[rows], scores.columns[columns])
        return Window(scores, rows, columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the window."""
        return len(self.rows), len(self.columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What the bigger matrix holds."""
        return self.base.dtype

    @property
    def T(self) -> Window:
        """The window on the transposed matrix."""
        return Window(self.base.T, self.columns, self.rows)

    def __getitem__(self, rows: slice | Array) -> Array:
        return np.asarray(self.base[self.rows[rows]][:, self.columns])


Scores = Array | Window


def as_array(values: Any) -> Array:
    """NumPy's view of an array, list or tensor (any device, bfloat16 included)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
    return np.asarray(values)


def as_scores(scores: Any) -> Scores:
    """Scores as a two-dimensional array of real numbers, memory-mapped ones left on disk."""
    if isinstance(scores, Window):
        return scores
    array = as_array(scores)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise BadInput(f"scores must be a matrix of numbers, not {array.dtype} of shape {array.shape}")
    return array


def check_ties(ties: str) -> None:
    """Refuse a tie rule that does not exist."""
    if ties not in TIES:
        raise BadInput(f"{ties!r} is no tie rule; known: {', '.join(TIES)}")


def spans(scores: Scores, budget: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of queries whose blocks fit in the budget."""
    queries, gallery = scores.shape
    step = max(1, budget // max(1, gallery * (scores.dtype.itemsize + WORKING)))
    return ((start, min(start + step, queries)) for start in range(0, queries, step))


def read(scores: Scores, rows: slice | Array, first: int) -> Array:
    """Some rows as floats in memory; a score that is not a number is an error that says where it is."""
    block = np.ascontiguousarray(scores[rows])
    if block.dtype.kind != "f":
        return block.astype(np.float64)
    bad = np.isnan(block)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise BadInput(f"scores: row {first + row}, column {column} is not a number (NaN); every pair needs a score")
    return block


def blocks(scores: Any, relevance: Relevance, budget: int = BUDGET) -> Iterator[tuple[int, Array, Array]]:
    """(first query, scores, gains) block by block."""
    matrix = as_scores(scores)
    if tuple(matrix.shape) != tuple(relevance.shape):
        raise BadInput(f"scores are {_size(matrix.shape)} but relevance is {_size(relevance.shape)}")
    for q0, q1 in spans(matrix, budget):
        yield q0, read(matrix, slice(q0, q1), q0), relevance.gains(q0, q1, 0, matrix.shape[1])


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def found(
    scores: Any, relevance: Relevance, *, ties: str = "worst", budget: int = BUDGET
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """For each query with anything relevant: the query, and the positions (from 1, ascending) of its relevant items."""
    check_ties(ties)
    places = _worst if ties == "worst" else _official
    for first, block, gains in blocks(scores, relevance, budget):
        relevant = gains > 0
        asked = np.flatnonzero(relevant.any(1))
        yield from zip((first + asked).tolist(), places(block[asked], relevant[asked]), strict=True)


def _worst(block: Array, relevant: Array) -> Iterator[npt.NDArray[np.int64]]:
    """Wrong items first among equals: position = wrong items scored at least as high + own place among the relevant."""
    for row, line, mine in zip(np.sort(block, axis=1), block, relevant, strict=True):
        own = np.sort(line[mine])
        as_high = len(row) - np.searchsorted(row, own, side="left")
        relevant_as_high = len(own) - np.searchsorted(own, own, side="left")
        yield (as_high - relevant_as_high)[::-1] + np.arange(1, len(own) + 1)


def _official(block: Array, relevant: Array) -> Iterator[npt.NDArray[np.int64]]:
    """The larger index first among equals: a stable ascending sort, reversed."""
    for order, mine in zip(np.argsort(block, axis=1, kind="stable")[:, ::-1], relevant, strict=True):
        yield np.flatnonzero(mine[order]) + 1
