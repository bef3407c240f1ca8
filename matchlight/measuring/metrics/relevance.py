"""Relevance: which pictures fit which captions, computed block by block and never held whole.

A block may carry gains (how many labels two items share) and is read as True where the gain is above zero. A sparse
truth knows its links too, so that nobody has to look for them. Nothing here assumes how many captions a picture has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Bools, Numbers, as_array
from matchlight.measuring.metrics.links import Links, Sparse

TABLE = 64 << 20  # gains between different codes that are held at once, a byte each
Gains = Callable[[int, int, int, int], Array]


@dataclass(frozen=True, eq=False)
class Relevance:
    """Who fits whom: `relevance[i0:i1, t0:t1]` is a boolean block, pictures are rows."""

    shape: tuple[int, int]
    gains: Gains  # (i0, i1, t0, t1) -> (i1 - i0, t1 - t0) array, 0 = not relevant
    linked: Callable[[], Links] | None = None  # where the truth is sparse

    def block(self, i0: int, i1: int, t0: int, t1: int) -> Bools:
        """True where one of these rows fits one of these columns."""
        return np.asarray(self.gains(i0, i1, t0, t1) > 0)

    def __getitem__(self, place: tuple[slice, slice]) -> Bools:
        (i0, i1, _), (t0, t1, _) = (part.indices(size) for part, size in zip(place, self.shape, strict=True))
        return self.block(i0, i1, t0, t1)

    @cached_property
    def links(self) -> Links | None:
        """The relevant places of each row as lists; None where they may be many."""
        return None if self.linked is None else self.linked()

    @cached_property
    def T(self) -> Relevance:
        """The same question asked the other way round."""
        turned = None if (links := self.links) is None else (lambda: links.turned(self.shape[1]))
        return Relevance((self.shape[1], self.shape[0]), lambda i0, i1, t0, t1: self.gains(t0, t1, i0, i1).T, turned)

    @staticmethod
    def of_owner(owner: Numbers, *, pictures: int) -> Relevance:
        """From the picture each caption belongs to; any number of captions a picture, none included."""
        owners = as_array(owner).astype(np.int64, copy=False)
        if owners.size and not 0 <= owners.min() <= owners.max() < pictures:
            row = int(np.flatnonzero((owners < 0) | (owners >= pictures))[0])
            raise BadInput(f"row {row} belongs to picture {owners[row]}, but pictures are 0 to {pictures - 1}")
        return Relevance(
            (pictures, len(owners)),
            lambda i0, i1, t0, t1: owners[None, t0:t1] == np.arange(i0, i1)[:, None],
            lambda: Links.of_owner(owners, pictures=pictures),
        )

    @staticmethod
    def of_sparse(matrix: Sparse) -> Relevance:
        """From a SciPy sparse matrix; its rows stay rows."""
        rows = matrix.tocsr()
        return Relevance(
            rows.shape,
            lambda i0, i1, t0, t1: np.asarray(rows[i0:i1, t0:t1].toarray()),
            lambda: Links.of_sparse(rows),
        )

    @staticmethod
    def of_array(array: Numbers) -> Relevance:
        """From a small dense array of booleans or gains."""
        dense = as_array(array)
        return Relevance((dense.shape[0], dense.shape[1]), lambda i0, i1, t0, t1: dense[i0:i1, t0:t1])

    @staticmethod
    def of_labels(image: Numbers, text: Numbers) -> Relevance:
        """From multi-hot labels: two items fit if they share a label, and the gain is how many they share."""
        return _of_kinds(image, text, lambda rows, columns: rows @ columns.T)

    @staticmethod
    def of_codes(image: Numbers, text: Numbers, *, within: int) -> Relevance:
        """From class codes: two items fit if they differ in at most `within` classes (Hamming distance).

        The gain falls from `within` + 1 for equal codes to 1, so one such truth answers for all smaller distances too.
        """

        def nearness(rows: Array, columns: Array) -> Array:
            distance = rows.sum(1)[:, None] + columns.sum(1)[None] - 2 * rows @ columns.T
            return np.asarray(np.maximum(within + 1 - distance, 0), np.float32)

        return _of_kinds(image, text, nearness)


def _of_kinds(image: Numbers, text: Numbers, gain: Callable[[Array, Array], Array]) -> Relevance:
    """From multi-hot codes; equal codes (captions of one picture, at least) are compared once."""
    (rows, row), (columns, column) = _distinct(_codes(image)), _distinct(_codes(text))
    few = len(rows) * len(columns) <= TABLE
    table = _small(gain(rows, columns)) if few else None  # one product: many small ones fight for the cores

    def gains(i0: int, i1: int, t0: int, t1: int) -> Array:
        if table is not None:
            return np.asarray(np.take(table[row[i0:i1]], column[t0:t1], axis=1))
        mine, i = np.unique(row[i0:i1], return_inverse=True)
        theirs, t = np.unique(column[t0:t1], return_inverse=True)
        return np.asarray(np.take(_small(gain(rows[mine], columns[theirs]))[i], t, axis=1))

    return Relevance((len(row), len(column)), gains)


def _small(gains: Array) -> Array:
    return gains.astype(np.uint8) if gains.max(initial=0) < 256 else gains


def _distinct(codes: Array) -> tuple[Array, Array]:
    """(the different codes, which of them each item has)."""
    if not codes.size:
        return codes[:1], np.zeros(len(codes), np.int64)
    _, first, which = np.unique(np.packbits(codes != 0, axis=1), axis=0, return_index=True, return_inverse=True)
    return codes[first], which.reshape(-1)


def _codes(labels: Numbers) -> Array:
    codes = as_array(labels) != 0
    if codes.ndim != 2:
        raise BadInput(f"labels are multi-hot rows (items x classes), not an array of {codes.ndim} dimension(s)")
    return np.asarray(codes, np.float32)  # counts in float32 are exact far beyond any number of classes
