"""Canonical correlation between vectors of pictures and of captions: the directions on which both sides agree.

It has a closed form (one Cholesky factor a side and one singular value decomposition) and takes seconds. The audit
scores pairs by it, two towers start from it (`canonical_start.py`), and DCCAE's loss is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WIDE = 320  # principal components of either side that are used
KEPT = 80  # canonical directions
MANY, WIDE_OF_MANY, KEPT_OF_MANY = 10_000, 768, 128  # pairs that are enough to fit more of both
RIDGE = 1.0, 1.0  # of pictures and of captions, in mean variances of a direction
POWER = 1.5  # how much more a direction counts where both sides agree on it


def whitened(own: tuple[Tensor, Tensor], across: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factors Lx, Ly of the two covariances and Lx^-1 Sxy Ly^-T, whose singular values are the correlations.

    By Cholesky: these differ from symmetric roots by a rotation, which singular values do not see. Gradients pass.
    """
    left, right = torch.linalg.cholesky(own[0]), torch.linalg.cholesky(own[1])
    half = torch.linalg.solve_triangular(left, across, upper=False)
    return left, right, torch.linalg.solve_triangular(right, half.T, upper=False).T


@dataclass(frozen=True)
class CanonicalMaps:
    """The fit: centres to subtract, and maps onto the canonical directions, the strongest first."""

    centres: tuple[Tensor, Tensor]
    maps: tuple[Tensor, Tensor]

    def vectors(self, side: int, x: Tensor) -> Tensor:
        """(N, directions) unit vectors of pictures (side 0) or captions (side 1)."""
        return torch.nn.functional.normalize((x - self.centres[side]) @ self.maps[side], dim=1).float()


def sizes_for(pairs: int) -> tuple[int, int]:
    """How many principal components and canonical directions so many pairs can be fitted with."""
    return (WIDE_OF_MANY, KEPT_OF_MANY) if pairs >= MANY else (WIDE, KEPT)


def fit_canonical_correlation(
    images: Tensor, texts: Tensor, weight: Tensor, *, kept: int = KEPT, power: float = POWER
) -> CanonicalMaps:
    """The canonical directions of paired (N, D) pictures and (N, E) captions, each pair with its weight."""
    share = (weight / weight.sum())[:, None]
    centres = (images * share).sum(0), (texts * share).sum(0)
    x, y = images - centres[0], texts - centres[1]
    own = _shrunk(x.T @ (x * share), RIDGE[0]), _shrunk(y.T @ (y * share), RIDGE[1])
    *roots, across = whitened(own, x.T @ (y * share))
    u, strength, v = torch.linalg.svd(across, full_matrices=False)
    ends = u[:, :kept] * strength[:kept] ** power, v[:kept].T
    maps = [torch.linalg.solve_triangular(root.T, end, upper=True) for root, end in zip(roots, ends, strict=True)]
    return CanonicalMaps(centres, (maps[0], maps[1]))


def _shrunk(spread: Tensor, ridge: float) -> Tensor:
    """A covariance with a ridge: directions of little variance count less."""
    mean = spread.diagonal().mean().clamp(min=1e-12)
    return spread + ridge * mean * torch.eye(len(spread), dtype=spread.dtype, device=spread.device)


def scaled_components(vectors: Tensor, *, most: int = WIDE) -> Tensor:
    """(N, d) float64: the principal components, not rescaled one by one."""
    x = vectors.double().cpu()
    x = x - x.mean(0)
    if x.shape[1] > most:
        x = x @ torch.linalg.eigh(x.T @ x)[1][:, -most:]
    return x / x.std().clamp(min=1e-12)
