"""Sets of vectors of some items as arrays: what an index stores, and what a question is once a model has read it.

Everything that searches is written in these. Only a model that compares by more than a dot product turns them into
tensors (`matcher_scores.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

VECTORS, MASK, EXTRA = "vectors", "mask", "extra."
Arrays = dict[str, np.ndarray]  # `vectors` (N, K, D), `mask` (N, K) True = real, `extra.NAME` (N, ...)


@dataclass(frozen=True)
class ItemSets:
    """A set of vectors an item; of an ensemble one for each member. Numbers are as they are stored, or float32."""

    members: tuple[Arrays, ...]

    @staticmethod
    def single(vectors: np.ndarray) -> ItemSets:
        """One vector (N, D) an item."""
        return ItemSets(({VECTORS: vectors[:, None]},))

    def __len__(self) -> int:
        return len(self.members[0][VECTORS])

    @property
    def vectors(self) -> np.ndarray:
        """(N, K, D) of the only model, or of the first member of an ensemble."""
        return self.members[0][VECTORS]

    def take(self, index: np.ndarray | slice) -> ItemSets:
        """The sets at these places, in this order."""
        return ItemSets(tuple({name: array[index] for name, array in part.items()} for part in self.members))


def joined(parts: Sequence[ItemSets]) -> ItemSets:
    """All items behind each other, with what all of them have; shorter sets are filled up and need masks."""
    members = []
    for same in zip(*(part.members for part in parts), strict=True):
        shared = [name for name in same[0] if all(name in arrays for arrays in same)]
        members.append({name: _joined([arrays[name] for arrays in same]) for name in shared})
    return ItemSets(tuple(members))


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    if arrays[0].ndim < 2:
        return np.concatenate(arrays)
    wide = max(array.shape[1] for array in arrays)
    none = [(0, 0)] * (arrays[0].ndim - 2)
    return np.concatenate([np.pad(one, [(0, 0), (0, wide - one.shape[1]), *none]) for one in arrays])
