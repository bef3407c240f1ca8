"""Encoders that give a set of unit vectors and, beside it, one vector for the whole picture or the whole caption.

The vector of the whole is a mean of the set, each vector weighed by how it fits the plain mean. SGR, SAF and what is
built on them read both: `Embedding.extra["global"]` is (N, 1, D).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import BadInput, Embedding, Items
from matchlight.methods.similarity_heads import full
from matchlight.parts.encoders import Words, lengths
from matchlight.parts.layers import BatchNorm, glorot, masked_mean, masked_softmax, unit


class RegionNorm(BatchNorm):
    """BatchNorm whose channels are a picture's places: region k of all pictures, all its dimensions, is one channel."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(N, K, D) -> the same, K at most the places this layer knows; padded regions do not count."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        k = x.shape[1]
        if not self.training or (mask is None and devices.world() == 1):
            averages, scales = (self.running_mean[:k], self.running_var[:k]), (self.weight[:k], self.bias[:k])
            return F.batch_norm(x, *averages, *scales, self.training, self.momentum, self.eps)
        return self._masked(x.float(), mask).to(x.dtype)

    def _masked(self, x: Tensor, mask: Tensor | None) -> Tensor:
        weight = x.new_ones(*x.shape[:2], 1) if mask is None else mask[..., None].to(x.dtype)
        count = devices.total(weight.sum((0, 2)) * x.shape[2])
        some = count.clamp(min=1)
        mean = devices.total((x * weight).sum((0, 2))) / some
        variance = devices.total(((x - mean[:, None]).square() * weight).sum((0, 2))) / some
        self._move(mean.detach(), variance.detach() * some / (some - 1).clamp(min=1), count > 0)
        scale = torch.rsqrt(variance + self.eps) * self.weight[: len(mean)]
        return (x - mean[:, None]) * scale[:, None] + self.bias[: len(mean), None]

    @torch.no_grad()
    def _move(self, mean: Tensor, variance: Tensor, seen: Tensor) -> None:
        """Running averages of the places that some picture had."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            held = running[: len(new)]
            held.copy_(torch.where(seen, held.lerp(new, self.momentum), held))
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


class WholeVector(nn.Module):
    """A set of vectors -> one of unit length: each is weighed by how it fits the mean of all."""

    def __init__(self, dim: int, *, dropout: float, places: int | None = None):
        super().__init__()
        self.each = glorot(nn.Linear(dim, dim))
        self.mean = glorot(nn.Linear(dim, dim))
        self.weigh = nn.Linear(dim, 1, bias=False)  # a softmax follows: a bias would change nothing
        nn.init.xavier_uniform_(self.weigh.weight)
        self.norm_each = RegionNorm(places) if places else None
        self.norm_mean = BatchNorm(dim) if places else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) -> (N, 1, D)."""
        each, mean = self.each(x), self.mean(masked_mean(x, mask))
        if self.norm_each is not None and self.norm_mean is not None:
            each, mean = self.norm_each(each, mask), self.norm_mean(mean)
        each, mean = self.dropout(each.tanh()), self.dropout(mean.tanh())
        weights = masked_softmax(full(self.weigh(each * mean[:, None])).squeeze(-1), mask)
        return unit(full(weights[:, None] @ x))


class Regions(nn.Module):
    """Each region projected to unit length, and one vector for the whole picture."""

    def __init__(self, inside: int, dim: int, *, places: int, dropout: float):
        super().__init__()
        self.places = places
        self.fc = glorot(nn.Linear(inside, dim))
        self.whole = WholeVector(dim, dropout=dropout, places=places)

    def forward(self, items: Items) -> Embedding:
        """(N, R, dim); regions behind the last place that training knew count for words, not for the whole."""
        x = self.fc(items.x if items.x.dim() == 3 else items.x[:, None])
        regions, mask, k = unit(full(x)), items.mask, self.places
        if mask is None and regions.shape[1] > k:
            raise BadInput(f"pictures have {regions.shape[1]} regions each, and this model knows {k}")
        regions = regions if mask is None else regions * mask[..., None]
        whole = self.whole(regions[:, :k], None if mask is None else mask[:, :k])
        return Embedding(regions, mask, {"global": whole})


class WordStates(nn.Module):
    """Each word's state of unit length, and one vector for the whole caption."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, both_ways: bool, dropout: float):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, both_ways=both_ways, dropout=dropout)
        self.whole = WholeVector(dim, dropout=dropout)

    def forward(self, items: Items) -> Embedding:
        """(N, L, dim), 0 where padded; the lengths stay on the CPU for whoever groups captions by them."""
        states = unit(self.words(items))
        extra = {"global": self.whole(states, items.mask), "length": lengths(items)}
        return Embedding(states, items.mask, extra)
