"""What compares: a dot product by NumPy alone; whatever else a model compares by, by torch (`matcher_scores.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from matchlight.indexing.item_sets import ItemSets


class Scorer(Protocol):
    """How well pictures fit captions."""

    def scores(self, images: ItemSets, texts: ItemSets) -> np.ndarray:
        """(I, T) float32 scores of all pairs."""


class Proposer(Protocol):
    """Sets -> (N, k, d) vectors, k and d the same for all items of a side, whose products come near the scores."""

    @property
    def name(self) -> str:
        """Which kind it is."""

    def rows(self, sets: ItemSets, side: str) -> np.ndarray:
        """The vectors of these items, in half or single precision."""


class OwnVectors(Proposer, Protocol):
    """A model's own vectors as what proposes."""

    @property
    def exact(self) -> bool:
        """Whether they order items as the scores do, so that nothing could propose better."""

    @property
    def similarity(self) -> str:
        """What its model compares by."""

    def known(self, sets: ItemSets, side: str) -> bool:
        """Whether it has such vectors at all."""


@dataclass(frozen=True)
class DotProduct:
    """One vector a side: scale * dot product + bias, and the vectors themselves propose."""

    scale: float = 1.0
    bias: float = 0.0

    name: ClassVar[str] = "plain"
    exact: ClassVar[bool] = True
    similarity: ClassVar[str] = "Dot"

    def scores(self, images: ItemSets, texts: ItemSets) -> np.ndarray:
        """(I, T)."""
        products = as_float32(images.vectors[:, 0]) @ as_float32(texts.vectors[:, 0]).T
        plain = (self.scale, self.bias) == (1.0, 0.0)
        return np.asarray(products if plain else self.scale * products + self.bias)

    def rows(self, sets: ItemSets, side: str) -> np.ndarray:
        """(N, 1, d)."""
        return sets.vectors

    def known(self, sets: ItemSets, side: str) -> bool:
        """Always."""
        return True


def as_float32(values: np.ndarray) -> np.ndarray:
    """Single precision; of numbers that are, nothing is copied."""
    return np.asarray(values, dtype=np.float32)
