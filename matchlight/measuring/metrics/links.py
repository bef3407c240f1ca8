"""Links: the relevant places of each query as lists, for sparse truths (whose caption, which ids)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from matchlight.measuring.metrics.arrays import Array, Places


class Sparse(Protocol):
    """What is read of a SciPy sparse matrix."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    def tocsr(self) -> Sparse:
        """The same matrix, row by row."""

    def toarray(self) -> Array:
        """The same matrix with its zeros."""

    def nonzero(self) -> tuple[Array, Array]:
        """Rows and columns of what is not zero."""

    def __gt__(self, other: float) -> Sparse: ...

    def __getitem__(self, place: tuple[slice, slice]) -> Sparse: ...


@dataclass(frozen=True, eq=False)
class Links:
    """Query q is linked to `places[start[q]:start[q + 1]]`, ascending."""

    start: Places  # (queries + 1,)
    places: Places

    @staticmethod
    def of_owner(owner: Places, *, pictures: int) -> Links:
        """Each picture's captions, from the picture of each caption."""
        return Links.each_one(owner).turned(pictures)

    @staticmethod
    def each_one(owner: Places) -> Links:
        """The picture of each caption."""
        return Links(np.arange(len(owner) + 1), np.asarray(owner, np.int64))

    @staticmethod
    def of_sparse(matrix: Sparse) -> Links:
        """The places of a SciPy sparse matrix that hold more than zero."""
        rows, columns = (matrix.tocsr() > 0).nonzero()
        order = np.lexsort((columns, rows))
        return Links(_starts(rows, matrix.shape[0]), np.asarray(columns[order], np.int64))

    def turned(self, columns: int) -> Links:
        """The same links asked from the other side, which has so many items."""
        rows = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        order = np.argsort(self.places, kind="stable")  # rows stay ascending
        return Links(_starts(self.places, columns), np.asarray(rows[order], np.int64))

    def of(self, query: int) -> Places:
        """The places of one query."""
        return self.places[self.start[query] : self.start[query + 1]]

    def between(self, q0: int, q1: int) -> tuple[Places, Places]:
        """(query counted from q0, place) of all links of these queries."""
        count = np.diff(self.start[q0 : q1 + 1])
        return np.repeat(np.arange(q1 - q0), count), self.places[self.start[q0] : self.start[q1]]


def _starts(rows: Places, count: int) -> Places:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
