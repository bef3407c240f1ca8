"""Relevance: which pictures fit which captions, computed block by block and never held whole.

A block may carry gains (how many labels two items share) and is read as True where the gain is above zero. Nothing here
assumes how many captions a picture has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from matchlight.core import BadInput

Array = npt.NDArray[Any]
Gains = Callable[[int, int, int, int], Array]


@dataclass(frozen=True, eq=False)
class Relevance:
    """Who fits whom: `relevance[i0:i1, t0:t1]` is a boolean block, pictures are rows."""

    shape: tuple[int, int]
    gains: Gains  # (i0, i1, t0, t1) -> (i1 - i0, t1 - t0) array, 0 = not relevant

    def block(self, i0: int, i1: int, t0: int, t1: int) -> npt.NDArray[np.bool_]:
        """True where one of these rows fits one of these columns."""
        return np.asarray(self.gains(i0, i1, t0, t1) > 0)

    def __getitem__(self, place: tuple[slice, slice]) -> npt.NDArray[np.bool_]:
        (i0, i1, _), (t0, t1, _) = (part.indices(size) for part, size in zip(place, self.shape, strict=True))
        return self.block(i0, i1, t0, t1)

    @property
    def T(self) -> Relevance:
        """The same question asked the other way round."""
        return Relevance((self.shape[1], self.shape[0]), lambda i0, i1, t0, t1: self.gains(t0, t1, i0, i1).T)

    @staticmethod
    def of_owner(owner: Any, *, pictures: int) -> Relevance:
        """From the picture each caption belongs to; any number of captions a picture, none included."""
        owners = np.asarray(owner)
        if owners.size and not 0 <= owners.min() <= owners.max() < pictures:
            row = int(np.flatnonzero((owners < 0) | (owners >= pictures))[0])
            raise BadInput(f"row {row} belongs to picture {owners[row]}, but pictures are 0 to {pictures - 1}")
        return Relevance(
            (pictures, len(owners)), lambda i0, i1, t0, t1: owners[None, t0:t1] == np.arange(i0, i1)[:, None]
        )

    @staticmethod
    def of_sparse(matrix: Any) -> Relevance:
        """From a SciPy sparse matrix; its rows stay rows."""
        rows = matrix.tocsr()
        return Relevance(rows.shape, lambda i0, i1, t0, t1: np.asarray(rows[i0:i1, t0:t1].toarray()))

    @staticmethod
    def of_array(array: Any) -> Relevance:
        """From a small dense array of booleans or gains."""
        dense = np.asarray(array)
        return Relevance((dense.shape[0], dense.shape[1]), lambda i0, i1, t0, t1: dense[i0:i1, t0:t1])

    @staticmethod
    def of_labels(image: Any, text: Any) -> Relevance:
        """From multi-hot labels: two items fit if they share a label, and the gain is how many they share."""
        rows, columns = _codes(image), _codes(text)
        return Relevance((len(rows), len(columns)), lambda i0, i1, t0, t1: rows[i0:i1] @ columns[t0:t1].T)

    @staticmethod
    def of_codes(image: Any, text: Any, *, within: int) -> Relevance:
        """From class codes: two items fit if they differ in at most `within` classes (Hamming distance)."""
        rows, columns = _codes(image), _codes(text)
        wide, tall = rows.sum(1), columns.sum(1)

        def near(i0: int, i1: int, t0: int, t1: int) -> Array:
            return np.asarray(wide[i0:i1, None] + tall[None, t0:t1] - 2 * rows[i0:i1] @ columns[t0:t1].T <= within)

        return Relevance((len(rows), len(columns)), near)


def _codes(labels: Any) -> npt.NDArray[np.float32]:
    codes = np.asarray(labels) != 0
    if codes.ndim != 2:
        raise BadInput(f"labels are multi-hot rows (items x classes), not an array of {codes.ndim} dimension(s)")
    return np.asarray(codes, np.float32)  # counts in float32 are exact far beyond any number of classes
