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
CORRELATIONS = 1e-4, 0.999  # between which they are taken to lie
POWER = 1.5  # how much more a direction counts where both sides agree on it
SOFTENED = 2.0  # what log likelihoods are divided by: pairs are not quite Gaussian, and never so surely told


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
    strength: Tensor  # (directions,) correlation on each
    power: float = POWER  # the maps of pictures are multiplied by the strengths to this power

    def vectors(self, side: int, x: Tensor) -> Tensor:
        """(N, directions) unit vectors of pictures (side 0) or captions (side 1)."""
        centre, mapped = self.centres[side].to(x.dtype), self.maps[side].to(x.dtype)
        return torch.nn.functional.normalize((x - centre) @ mapped, dim=1).float()

    def likelihoods(self, side: int, x: Tensor) -> Tensor:
        """(N, directions + 2) vectors whose product is how much likelier picture and caption are as a pair than apart.

        Its logarithm, less a constant: both sides are taken for Gaussian, with correlation r on each whitened direction
        a of a picture and b of a caption, which adds (2rab - rr(aa + bb)) / 2(1 - rr). A cosine knows directions alone;
        this also knows that what lies far out on a direction can hardly be chance.
        """
        centre, mapped = self.centres[side].to(x.dtype), self.maps[side].to(x.dtype)
        r = self.strength.to(x.dtype).clamp(CORRELATIONS[0], CORRELATIONS[1])
        white = (x - centre) @ mapped
        white = white if side else white / r**self.power
        alone = -(white.square() @ (r**2 / (2 * (1 - r**2))))[:, None]
        one = torch.ones_like(alone)
        parts = [white, one, alone] if side else [white * (r / (1 - r**2)), alone, one]
        return torch.cat(parts, 1).float()

    def tells(self, x: Tensor) -> Tensor:
        """(N,) how far the picture that each caption lets one expect is from the average picture.

        It is the length of the expected picture in whitened directions. A caption that could stand below any picture
        lets one expect the average one, whatever picture it is with.
        """
        centre, mapped = self.centres[1].to(x.dtype), self.maps[1].to(x.dtype)
        return (((x - centre) @ mapped) * self.strength.to(x.dtype)).norm(dim=1).float()


def sizes_for(pairs: int) -> tuple[int, int]:
    """How many principal components and canonical directions so many pairs can be fitted with."""
    return (WIDE_OF_MANY, KEPT_OF_MANY) if pairs >= MANY else (WIDE, KEPT)


@dataclass(frozen=True)
class Moments:
    """Weighted sums over pairs, which are all that a fit needs: those of parts of the data add up, and subtract."""

    weight: Tensor  # of all pairs together
    sums: tuple[Tensor, Tensor]  # (D,), (E,)
    own: tuple[Tensor, Tensor]  # (D, D), (E, E)
    across: Tensor  # (D, E)

    @staticmethod
    def of(images: Tensor, texts: Tensor, picture: Tensor, weight: Tensor) -> Moments:
        """Of (p, D) pictures and their (n, E) captions, `picture` (n,) being each caption's, `weight` (n,) each pair's.

        A picture is multiplied once, whatever number of captions it has.
        """
        heavy = texts * weight[:, None]
        by_picture = torch.zeros(len(images), texts.shape[1], dtype=texts.dtype).index_add_(0, picture, heavy)
        weights = torch.zeros(len(images), dtype=weight.dtype).index_add_(0, picture, weight)
        x = images * weights[:, None]
        own = images.T @ x, texts.T @ heavy
        return Moments(weight.sum(), (x.sum(0), by_picture.sum(0)), own, images.T @ by_picture)

    def __add__(self, other: Moments) -> Moments:
        return self._with(other, 1)

    def __sub__(self, other: Moments) -> Moments:
        return self._with(other, -1)

    def _with(self, other: Moments, sign: int) -> Moments:
        sums = self.sums[0] + sign * other.sums[0], self.sums[1] + sign * other.sums[1]
        own = self.own[0] + sign * other.own[0], self.own[1] + sign * other.own[1]
        return Moments(self.weight + sign * other.weight, sums, own, self.across + sign * other.across)

    def fit(self, *, kept: int = KEPT, power: float = POWER) -> CanonicalMaps:
        """The canonical directions, up to their signs."""
        centres = self.sums[0] / self.weight, self.sums[1] / self.weight
        own = [
            square / self.weight - torch.outer(centre, centre) for square, centre in zip(self.own, centres, strict=True)
        ]
        across = self.across / self.weight - torch.outer(*centres)
        left, right, between = whitened((_shrunk(own[0], RIDGE[0]), _shrunk(own[1], RIDGE[1])), across)
        *ends, strength = _strongest(between, kept)
        return CanonicalMaps(centres, _maps((left, right), (ends[0] * strength**power, ends[1])), strength, power)


def _strongest(across: Tensor, kept: int) -> tuple[Tensor, Tensor, Tensor]:
    """U, V and s of the largest singular values, the largest first.

    From the eigenvectors of the smaller product with itself, which takes half as long as a decomposition of `across`.
    """
    wide = across.shape[0] < across.shape[1]
    tall = across.T if wide else across
    right = torch.linalg.eigh(tall.T @ tall)[1].flip(1)[:, :kept]
    left = tall @ right
    strength = left.norm(dim=0)  # more exact than the roots of eigenvalues, where these are next to nothing
    left = left / strength.clamp(min=1e-12)
    u, v = (right, left) if wide else (left, right)
    return u, v, strength


def fit_canonical_correlation(
    images: Tensor, texts: Tensor, weight: Tensor, *, kept: int = KEPT, power: float = POWER
) -> CanonicalMaps:
    """The canonical directions of paired (N, D) pictures and (N, E) captions, each pair with its weight."""
    share = (weight / weight.sum())[:, None]
    centres = (images * share).sum(0), (texts * share).sum(0)
    x, y = images - centres[0], texts - centres[1]
    own = _shrunk(x.T @ (x * share), RIDGE[0]), _shrunk(y.T @ (y * share), RIDGE[1])
    left, right, across = whitened(own, x.T @ (y * share))
    u, strength, v = torch.linalg.svd(across, full_matrices=False)
    u, strength, v = u[:, :kept], strength[:kept], v[:kept].T
    return CanonicalMaps(centres, _maps((left, right), (u * strength**power, v)), strength, power)


def _maps(roots: tuple[Tensor, Tensor], ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Maps from centred vectors, by the covariances' factors and the directions behind them."""
    one, other = (torch.linalg.solve_triangular(root.T, end, upper=True) for root, end in zip(roots, ends, strict=True))
    return one, other


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
