"""Splits where the data has none: 90/5/5 by picture, seeded, with pictures that look the same kept together.

Two files of one photograph, one in train and one in test, would make a test of memory. Pictures are therefore grouped
first (`twins`), and groups, not pictures, are dealt out. What was done is said aloud.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matchlight.console import say
from matchlight.data.near_duplicates import groups_of
from matchlight.pairs import PictureSource

PARTS = (("val", 0.05), ("test", 0.05))


def default_splits(names: Sequence[str], pictures: PictureSource | None, *, seed: int = 0) -> np.ndarray:
    """(N,) split names, 90/5/5, near-duplicates together; says what it did."""
    groups = np.arange(len(names)) if pictures is None else groups_of(pictures)
    splits = deal(groups, seed=seed)
    counts = ", ".join(f"{int((splits == name).sum())} {name}" for name in ("train", "val", "test"))
    together = int((np.bincount(groups)[groups] > 1).sum())
    twins = f"; {together} pictures that look alike were kept together" if together else ""
    say(f"no splits in the data: 90/5/5 by picture with seed {seed}: {counts}{twins}")
    return splits


def deal(groups: np.ndarray, *, seed: int) -> np.ndarray:
    """Whole groups dealt to val and test until each has its share; what is left is train."""
    sizes = np.bincount(groups)
    splits = np.full(len(groups), "train")
    order = [int(group) for group in np.random.default_rng(seed).permutation(len(sizes)) if sizes[group]]
    if len(order) < 3:
        return splits
    for name, part in PARTS:
        room, rest = max(1, round(part * len(groups))), []
        for group in order:
            if sizes[group] <= room:
                splits[groups == group] = name
                room -= int(sizes[group])
            else:
                rest.append(group)
        order = rest
    return splits
