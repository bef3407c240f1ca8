"""How a cost grows with the size of the data: the slope on logarithmic axes, and a sum of powers that predicts it.

The slope of a few small sizes says little of large ones where fixed work is a part of them. So a prediction is a sum of
terms, `weight * size**power`, whose powers are those of the algorithm and whose weights, none below 0, are fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent of the power of the size that fits the costs best."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


@dataclass(frozen=True)
class Growth:
    """A cost as a sum of powers of the size."""

    powers: tuple[float, ...]
    weights: tuple[float, ...]

    @staticmethod
    def fit(sizes: Sequence[float], costs: Sequence[float], powers: Sequence[float]) -> Growth:
        """Weights by least squares of relative errors, so that a small size counts as much as a large one."""
        from scipy.optimize import nnls

        terms = np.asarray(sizes, float)[:, None] ** np.asarray(powers, float)
        scale = np.asarray(costs, float)[:, None]
        size = (terms / scale).max(0)  # terms of one magnitude, for the arithmetic
        weights, _ = nnls(terms / scale / size, np.ones(len(sizes)))
        return Growth(tuple(map(float, powers)), tuple((weights / size).tolist()))

    def at(self, size: float) -> float:
        """What it predicts."""
        return float(sum(weight * size**power for weight, power in zip(self.weights, self.powers, strict=True)))
