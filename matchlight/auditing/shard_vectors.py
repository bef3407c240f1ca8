"""Vectors that lie in files, and the maps that an audit applies to them: what a worker needs to know of a side.

One process holds all vectors and changes them step by step (cca_inputs.py, `scaled_components`). Here they stay as they
were computed, and each step is kept as numbers: a mean, a scale, directions. They follow from sums over all vectors,
which workers add up a block at a time, so that the result is that of one process up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from matchlight.data.formats.sources import NpyFeatures

Sums = dict[str, np.ndarray]  # of some vectors: "count", "sum", and "squares" or "products"


@dataclass(frozen=True)
class Kind:
    """One kind of vectors of a side: (x - centre) * scale, and its principal directions."""

    source: NpyFeatures
    centre: np.ndarray | None = None
    scale: np.ndarray | float = 1.0
    directions: np.ndarray | None = None  # (d, at most `wide`); None: all

    def scaled(self, places: np.ndarray) -> Tensor:
        """(n, d) at the scale of its kind, in double precision."""
        x = self.source.gather(places).astype(np.float64)
        return torch.from_numpy(x if self.centre is None else (x - self.centre) * self.scale)

    def reduced(self, places: np.ndarray) -> Tensor:
        """(n, at most `wide`)."""
        x = self.scaled(places)
        return x if self.directions is None else x @ torch.from_numpy(self.directions)


@dataclass(frozen=True)
class Side:
    """All kinds of vectors of pictures, or of captions, side by side."""

    kinds: tuple[Kind, ...]
    centre: np.ndarray | None = None
    directions: np.ndarray | None = None
    scale: float = 1.0

    def joined(self, places: np.ndarray) -> Tensor:
        """(n, D) float32: every kind at its scale."""
        return torch.cat([kind.scaled(places) for kind in self.kinds], 1).float()

    def reduced(self, places: np.ndarray) -> Tensor:
        """(n, D) every kind by its principal directions."""
        return torch.cat([kind.reduced(places) for kind in self.kinds], 1)

    def components(self, places: np.ndarray) -> Tensor:
        """(n, at most `wide`) what canonical correlation is fitted to; a place that occurs often is read once."""
        once, back = np.unique(places, return_inverse=True)
        x = self.reduced(once) - torch.from_numpy(self.centre)
        x = x if self.directions is None else x @ torch.from_numpy(self.directions)
        return (x / self.scale)[torch.from_numpy(back)]


def squares(x: Tensor) -> Sums:
    """Sums from which means and variances follow."""
    return {"count": np.array(len(x)), "sum": x.sum(0).numpy(), "squares": x.square().sum(0).numpy()}


def products(x: Tensor) -> Sums:
    """Sums from which a covariance follows."""
    return {"count": np.array(len(x)), "sum": x.sum(0).numpy(), "products": (x.T @ x).numpy()}


def added(parts: list[Sums]) -> Sums:
    """The sums of several blocks as one, in their order: always to the same bit."""
    total = dict(parts[0])
    for part in parts[1:]:
        total = {name: np.asarray(value + part[name]) for name, value in total.items()}
    return total


def equal_spread(kind: Kind, sums: Sums) -> Kind:
    """Every number with the same spread, every vector about as long as any other (pictures)."""
    count, mean = int(sums["count"]), sums["sum"] / sums["count"]
    variance = (sums["squares"] - count * mean**2).clip(0) / max(1, count - 1)
    return replace(kind, centre=mean, scale=1 / (variance**0.5).clip(1e-6) / len(mean) ** 0.5)


def equal_length(kind: Kind, sums: Sums, weight: float) -> Kind:
    """Centred, and on average of this length (captions)."""
    mean = sums["sum"] / sums["count"]
    length = float((sums["squares"] / sums["count"] - mean**2).sum()) ** 0.5
    return replace(kind, centre=mean, scale=weight / max(length, 1e-12))


def principal(sums: Sums, most: int) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Mean, principal directions (None: all), and the spread of a number after them."""
    count, mean = int(sums["count"]), sums["sum"] / sums["count"]
    spread = torch.from_numpy(sums["products"] - count * np.outer(mean, mean))
    if len(mean) <= most:
        return mean, None, _deviation(float(spread.diagonal().sum()), count * len(mean))
    value, direction = torch.linalg.eigh(spread)
    return mean, direction[:, -most:].numpy(), _deviation(float(value[-most:].sum()), count * most)


def _deviation(total: float, numbers: int) -> float:
    return max((total / max(1, numbers - 1)) ** 0.5, 1e-12)
