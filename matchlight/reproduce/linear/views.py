"""What linear baselines are fitted on and what they give.

A side's items are rows of an array, less their mean. An item of several classes counts once for each of them; one of
none takes no part in scatters. Every fit ends in a generalised eigenproblem A w = v B w: directions w that have much of
what is wanted (A) for little of what is not (B), the best first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from matchlight.core import IMAGE, TEXT

WIDE = 320  # principal components of a side that are used: with thousands an eigenproblem takes minutes
MOST = 128  # directions that are kept
RIDGE = 1e-2  # added to B, in parts of its mean diagonal: directions of almost no variance are left alone


@dataclass(frozen=True, eq=False)
class Views:
    """Training items by side (rows), the pairs among them, and the classes that they are said to have."""

    items: dict[str, np.ndarray]  # (N, D), of mean 0
    pairs: np.ndarray  # (P, 2) places of pictures and of texts that belong together
    labels: dict[str, np.ndarray]  # (N, K) 0 or 1

    def paired(self) -> tuple[np.ndarray, np.ndarray]:
        """(P, D) pictures and (P, E) texts, row by row."""
        return self.items[IMAGE][self.pairs[:, 0]], self.items[TEXT][self.pairs[:, 1]]


@dataclass(frozen=True, eq=False)
class Maps:
    """A projection a side, (D, d), the strongest direction first."""

    of: dict[str, np.ndarray]

    @property
    def most(self) -> int:
        """How many directions there are."""
        return min(side.shape[1] for side in self.of.values())

    def cosines(self, images: np.ndarray, texts: np.ndarray, *, dim: int) -> np.ndarray:
        """(I, T) float32 cosines of items on the first `dim` directions."""
        left, right = (_unit(x @ self.of[side][:, :dim]) for side, x in ((IMAGE, images), (TEXT, texts)))
        return np.asarray(left @ right.T, np.float32)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def blocks(image: np.ndarray, text: np.ndarray, across: np.ndarray | None = None) -> np.ndarray:
    """[[image, across], [across', text]], with zeros where nothing is given."""
    across = np.zeros((len(image), len(text))) if across is None else across
    return np.block([[image, across], [across.T, text]])


def strongest(wanted: np.ndarray, unwanted: np.ndarray, split: int, *, most: int = MOST) -> Maps:
    """The directions with the largest quotient, cut where pictures end and texts begin."""
    ridge = RIDGE * max(float(unwanted.diagonal().mean()), 1e-12)
    size = len(wanted)
    span = [max(0, size - most), size - 1]
    _, vectors = scipy.linalg.eigh(wanted, unwanted + ridge * np.eye(size), subset_by_index=span)
    best = vectors[:, ::-1]
    return Maps({IMAGE: best[:split], TEXT: best[split:]})


@dataclass(frozen=True, eq=False)
class Classes:
    """Sums over the classes of one side."""

    count: np.ndarray  # (K,) items
    total: np.ndarray  # (K, D) their sum
    square: np.ndarray  # (D, D) the sum of x x' over items and their classes

    @staticmethod
    def of(x: np.ndarray, labels: np.ndarray) -> Classes:
        """Of items (N, D) with classes (N, K)."""
        hot = labels.astype(np.float64)
        return Classes(hot.sum(0), hot.T @ x, x.T @ (x * hot.sum(1)[:, None]))


def means(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """(K, D) the mean of each class; 0 where it has no items."""
    return total / np.maximum(count, 1)[:, None]


def scatters(count: np.ndarray, total: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between classes, and within them: together the scatter of all items around their mean."""
    middle = means(count, total)
    overall = total.sum(0) / max(count.sum(), 1)
    apart = middle - overall
    return apart.T @ (apart * count[:, None]), square - middle.T @ (middle * count[:, None])
