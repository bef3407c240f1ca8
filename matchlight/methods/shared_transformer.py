"""One transformer for regions and for words alike, and heads that read its states: labels, and what was hidden.

The layers are those of semantic sharing (Yang et al., IJCAI 2021): pre-norm, ReLU inside and behind the last norm, no
class token. Their norm divides by the unbiased deviation *plus* epsilon. That matters in the released models, where a
padded word is a vector of size 1e-6 that this norm, and no other, brings to the size the weights were trained with.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.parts.layers import masked_mean, unit

NOTHING = -1  # the target of a place where nothing is to be guessed


class Normed(nn.Module):
    """Layer norm with the unbiased deviation and epsilon outside the root."""

    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Same shape, in full precision."""
        apart = x.float() - x.float().mean(-1, keepdim=True)
        variance = apart.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        flat = variance == 0  # a padded row of zeros: the root has no slope there, and NaN times 0 is NaN
        deviation = torch.where(flat, 1.0, variance).sqrt() * ~flat
        return self.scale * apart / (deviation + self.eps) + self.shift


class Layer(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x), with dropout on what is added."""

    def __init__(self, dim: int, *, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.ask = nn.Linear(dim, 3 * dim)  # queries, keys and values in one product
        self.tell = nn.Linear(dim, dim)
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norms = nn.ModuleList([Normed(dim), Normed(dim)])
        self.dropout = nn.Dropout(dropout)
        for weight in (*self.ask.weight.chunk(3), self.tell.weight, self.first.weight, self.second.weight):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) -> (N, K, D); nobody attends to what `mask` calls padding."""
        x = x + self.dropout(self._attend(self.norms[0](x), mask))
        inner = self.dropout(F.relu(self.first(self.norms[1](x))))
        return x + self.dropout(self.second(inner))

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.ask(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (N, heads, K, d)
        seen = None if mask is None else mask[:, None, None]
        drop = self.dropout.p if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, dropout_p=drop)
        return self.tell(out.transpose(1, 2).flatten(2))


class Shared(nn.Module):
    """Tokens of either side -> states -> how likely each label is, token by token."""

    def __init__(self, dim: int, classes: int, *, depth: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim, heads=heads, hidden=hidden, dropout=dropout) for _ in range(depth))
        self.norm = Normed(dim)
        self.labels = nn.Linear(dim, classes)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) states."""
        for layer in self.layers:
            x = layer(x, mask)
        return F.relu(self.norm(x))

    def likely(self, states: Tensor) -> Tensor:
        """(N, K, classes) label scores of each token, 0 to 1."""
        return self.labels(states).float().sigmoid()


def label_vectors(likely: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Token scores (N, K, C) -> an item's place in label space (mean of unit vectors) and its probabilities (mean)."""
    return masked_mean(unit(likely), mask), masked_mean(likely, mask)


class Guess(nn.Module):
    """A head that names what was hidden.

    A `relative` cost is 1 where nothing is known, however many names there are; else it is the plain cross-entropy, on
    whose scale the paper's lambda is.
    `squash` is the authors' code instead: a sigmoid before the cross-entropy, whose loss is taken as it is. Squashed
    scores lie in (0, 1), so with V names it cannot fall below log(V - 1 + e) - 1, and its slope is a small one.
    """

    def __init__(self, dim: int, names: int, *, squash: bool, relative: bool = True):
        super().__init__()
        self.head = nn.Linear(dim, names)
        self.squash = squash
        self.scale = 1 / math.log(max(names, 2)) if relative and not squash else 1.0

    def forward(self, states: Tensor, target: Tensor) -> Tensor:
        """States (N, K, D), targets (N, K) -> (N, 2): each item's summed cost and how many places it was asked for."""
        return (self._where_asked if states.device.type == "cpu" else self._everywhere)(states, target)

    def _where_asked(self, states: Tensor, target: Tensor) -> Tensor:
        row, place = (target != NOTHING).nonzero(as_tuple=True)  # cheap on a CPU, a wait on a GPU
        cost = self._cost(states[row, place], target[row, place])
        both = torch.stack([cost, torch.ones_like(cost)], 1)
        return both.new_zeros(len(target), 2).index_add(0, row, both)

    def _everywhere(self, states: Tensor, target: Tensor) -> Tensor:
        cost = self._cost(states.flatten(0, 1), target.flatten()).view_as(target)
        return torch.stack([cost.sum(1), (target != NOTHING).sum(1).to(cost.dtype)], 1)

    def _cost(self, states: Tensor, target: Tensor) -> Tensor:
        scores = self.head(states).float()
        scores = scores.sigmoid() if self.squash else scores
        return self.scale * F.cross_entropy(scores, target, ignore_index=NOTHING, reduction="none")
