"""Canonical correlation whose fits never score the pairs they were made of.

It is fitted on all folds but one and scores that one, a few times, each pair weighing as far as it looked right the
time before. Two files say what the loss of a pair is: `closed_form.py` before training, and the audit's
`canonical_signals.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from matchlight.parts.canonical_correlation import CanonicalMaps, Moments, scaled_components, sizes_for
from matchlight.training.division import clean_probability_given_share, share_of_wrong

PASSES = 3
LEAST = 1e-3  # weight of a pair in a fit


@dataclass(frozen=True)
class Losses:
    """How badly pairs fit, and mismatches made of them: (n,) each."""

    loss: np.ndarray
    null: np.ndarray

    @cached_property
    def share(self) -> float:
        """How many of the pairs look wrong."""
        return share_of_wrong(self.loss, self.null)

    def weights(self) -> np.ndarray:
        """(n,) how far each pair looks right."""
        return np.maximum(clean_probability_given_share(self.loss, self.share), LEAST)


def weights_in_passes(pairs: int, losses: Callable[[int, np.ndarray], Losses]) -> np.ndarray:
    """(pairs,) weights for the last of the PASSES, by `losses` that follow from a pass's number and its weights."""
    weight = np.ones(pairs)
    for turn in range(PASSES - 1):
        weight = losses(turn, weight).weights()
    return weight


class CrossFits:
    """Fits on all folds but one; their sums are taken once a fold, and each fit is of all of them less its own.

    Of (P, D) pictures and (n, E) captions, with the `picture` (n,) of each caption and its `fold` (n,).
    """

    def __init__(self, images: Tensor, texts: Tensor, picture: np.ndarray, fold: np.ndarray):
        wide, self.kept = sizes_for(len(texts))
        self.images, self.texts = scaled_components(images, most=wide), scaled_components(texts, most=wide)
        self.picture = picture
        self.inside = [np.flatnonzero(fold == k) for k in np.unique(fold)]

    def each_fold(self, weight: np.ndarray) -> Iterator[tuple[np.ndarray, CanonicalMaps]]:
        """The rows of every fold and the fit on all others, in which each pair weighs so much."""
        sums = [self._moments(rows, weight) for rows in self.inside]
        whole = reduce(operator.add, sums)
        for rows, own in zip(self.inside, sums, strict=True):
            yield rows, (whole - own).fit(kept=self.kept)

    def on_all(self, weight: np.ndarray) -> CanonicalMaps:
        """The fit on all pairs, for what is no measurement of them."""
        return self._moments(np.arange(len(weight)), weight).fit(kept=self.kept)

    def _moments(self, rows: np.ndarray, weight: np.ndarray) -> Moments:
        pictures, place = np.unique(self.picture[rows], return_inverse=True)
        sides = self.images[torch.from_numpy(pictures)], self.texts[torch.from_numpy(rows)]
        return Moments.of(*sides, torch.from_numpy(place), torch.from_numpy(weight[rows]))
