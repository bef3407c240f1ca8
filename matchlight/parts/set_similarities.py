"""Comparing sets of unit vectors: how near two sets are, how apart the vectors of one, how alike two crowds.

All similarities read the same thing, the K x L cosines of every picture's vectors with every caption's: one matrix
product of all vectors with all vectors, then a small reduction. The vectors are laid out slot by slot, (K, I, D) and
(L, T, D), so that the product comes out as (K, I, L, T): every reduction then runs over whole rows of captions and
nothing has to be rearranged. No sets of unequal size here: K is the same for all pictures, L for all captions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.core import BadInput, Embedding, Similarity
from matchlight.scoring.kernels.products import as_operand, product

LARGEST = 80.0  # exp(80) is far from what float32 holds at most: up to there no maximum need be taken out first


def cosines(images: Tensor, texts: Tensor, *, scale: float = 1.0, precision: str | None = None) -> Tensor:
    """(K, L, I, T) products of unit vectors (I, K, D) and (T, L, D), times `scale`; `precision`: see kernels."""
    left, right = (side.float().transpose(0, 1).flatten(0, 1) for side in (images, texts))
    right = right if scale == 1.0 else right * scale
    with torch.autocast(images.device.type, enabled=False):  # what is rounded here is an exponent soon
        if precision is None:
            out = left @ right.T
        else:
            out = product(as_operand(left, precision), as_operand(right, precision), precision)
    return out.view(images.shape[1], len(images), texts.shape[1], len(texts)).transpose(1, 2)


class SetSimilarity(Similarity):
    """A similarity that is a reduction of the K x L cosines; a subclass says which in `reduce`."""

    scale = 1.0  # what cosines are multiplied with before `reduce` sees them
    precision: str | None = None  # of the product when no gradients are wanted: None = as torch is set

    def reduce(self, c: Tensor) -> Tensor:
        """(K, L, ...) scaled cosines -> (...) scores; may overwrite `c` where gradients are off."""
        raise NotImplementedError

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        _check_whole(images, texts)
        precision = None if torch.is_grad_enabled() else self.precision
        return self.reduce(cosines(images.vectors, texts.vectors, scale=self.scale, precision=precision))

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        _check_whole(images, texts)
        with torch.autocast(images.vectors.device.type, enabled=False):
            seen = torch.einsum("pkd,pld->klp", images.vectors.float(), texts.vectors.float())
            return self.reduce(seen * self.scale)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """Every vector of a set proposes: the nearest vector of a set is a lower bound of how near the set is."""
        return F.normalize(embedding.vectors, dim=-1)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """The cosines of a pair, and what is left of them after one side is reduced."""
        rows, columns = images.vectors.shape[1], texts.vectors.shape[1]
        return 4 * (rows * columns + 2 * (rows + columns))


def _check_whole(*sides: Embedding) -> None:
    if any(side.mask is not None for side in sides):
        raise ValueError("sets are compared whole here: every set of a side has as many vectors, none is padding")


class SmoothChamfer(SetSimilarity):
    """Every vector looks for its neighbours in the other set, softly: the log-sum-exp of its cosines, averaged.

    sum_x log sum_y exp(alpha c) / (2 alpha K) + sum_y log sum_x exp(alpha c) / (2 alpha L). For sets of more than one
    vector it lies above a cosine, by log(K) / alpha at most.
    """

    def __init__(self, *, alpha: float = 16.0):
        super().__init__()
        if alpha <= 0:
            raise BadInput(f"alpha={alpha}: alpha must be above 0")
        self.alpha = self.scale = alpha

    def reduce(self, c: Tensor) -> Tensor:
        """(...)."""
        if self.alpha > LARGEST:
            near = [c.logsumexp(1).mean(0), c.logsumexp(0).mean(0)]
        else:
            e = c.exp() if torch.is_grad_enabled() else c.exp_()
            near = [e.sum(1).log().mean(0), e.sum(0).log().mean(0)]
        return (near[0] + near[1]) / (2 * self.alpha)


class Chamfer(SetSimilarity):
    """Every vector's nearest in the other set, averaged over both sets."""

    def reduce(self, c: Tensor) -> Tensor:
        """(...)."""
        return (c.amax(1).mean(0) + c.amax(0).mean(0)) / 2


class BestPair(SetSimilarity):
    """The nearest two vectors of the two sets (multiple-instance learning, as PVSE compares)."""

    def reduce(self, c: Tensor) -> Tensor:
        """(...)."""
        return c.amax((0, 1))


class MatchProbability(SetSimilarity):
    """The mean over all pairs of vectors of sigmoid(a c + b), as PCME matches; `learned` trains a and b."""

    a: Tensor
    b: Tensor

    def __init__(self, *, learned: bool = False):
        super().__init__()
        for name, value in (("a", 1.0), ("b", 0.0)):
            if learned:
                self.register_parameter(name, nn.Parameter(torch.tensor(value)))
            else:
                self.register_buffer(name, torch.tensor(value))

    def reduce(self, c: Tensor) -> Tensor:
        """(...)."""
        return (self.a * c + self.b).sigmoid().mean((0, 1))


SIMILARITIES = ("smooth_chamfer", "chamfer", "mil", "mp")


def set_similarity(name: str, *, alpha: float = 16.0, learned: bool = False) -> SetSimilarity:
    """A similarity by name: `alpha` is smooth-Chamfer's, `learned` belongs to the match probability."""
    if name == "smooth_chamfer":
        return SmoothChamfer(alpha=alpha)
    if name == "mp":
        return MatchProbability(learned=learned)
    return {"chamfer": Chamfer, "mil": BestPair}[name]()


def maximum_mean_discrepancy(x: Tensor, y: Tensor) -> Tensor:
    """Maximum mean discrepancy of two crowds of vectors (N, D), (M, D), kernel exp(-|x - y| / 2), not squared."""
    x, y = x.float(), y.float()

    def alike(a: Tensor, b: Tensor) -> Tensor:
        return (-0.5 * torch.cdist(a, b)).exp().mean()

    return alike(x, x) - 2 * alike(x, y) + alike(y, y)


def diversity_loss(sets: Tensor) -> Tensor:
    """(N, K, D) -> (N,): the mean of exp(-2 |r_k - r_l|^2) over the pairs of a set's unit vectors; 1 = collapsed."""
    k = sets.shape[1]
    if k < 2:
        return sets.new_zeros(len(sets))
    r = F.normalize(sets.float(), dim=-1)
    apart = 2 - 2 * torch.einsum("nkd,nld->nkl", r, r)
    others = ~torch.eye(k, dtype=torch.bool, device=sets.device)
    return ((-2 * apart).exp() * others).sum((1, 2)) / (k * (k - 1))
