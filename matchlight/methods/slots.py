"""A set prediction module: a few slots share out a picture's regions, or a caption's words, in several rounds.

Slot attention (Locatello et al., NeurIPS 2020, arXiv:2006.15055) lets slots compete: the softmax runs over slots, so
that every input is shared out among them, and each slot then takes the mean of what it won. DivE (Kim et al., CVPR
2023) changes three things, each of which can be undone here: slots start from learned vectors (`begin="sampled"`: from
a learned Gaussian), a round is added to its slot (`update="gru"`: a GRU cell mixes it in), and every element has the
feature of the whole picture or caption added (`whole=False`: it has not).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.core import Embedding

EPS = 1e-7
LONGEST = 64  # words: up to there a GPU keeps the codes of all places


def place_codes(lengths: Tensor, longest: int, dim: int) -> Tensor:
    """(N, longest, dim): sine and cosine of a word's place, once around from a caption's start to its length."""
    place = torch.arange(1, longest + 1, device=lengths.device)[None] / (lengths[:, None] + 1e-6) * (2 * math.pi)
    channel = torch.arange(dim, device=lengths.device)
    angle = place[..., None] / 10000 ** (2 * (channel // 2) / dim)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())


@cache
def _code_table(dim: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return place_codes(torch.arange(LONGEST + 1, device=device), LONGEST, dim)


def codes_of(lengths: Tensor, longest: int, dim: int) -> Tensor:
    """`place_codes`; a GPU looks them up, since computing them is ten passes over all words of a batch."""
    if lengths.is_cuda and longest <= LONGEST:
        return _code_table(dim, lengths.device)[:, :longest].index_select(0, lengths.clamp(max=LONGEST))
    return place_codes(lengths, longest, dim)


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """A normalisation whose result only enters products: values of 16 bits on a GPU stay so, as products want them."""
    if not x.is_cuda or x.dtype == torch.float32:
        out: Tensor = norm(x)
        return out
    with torch.autocast("cuda", enabled=False):
        return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


class Start(nn.Module):
    """Where slots begin: K learned vectors, or draws from one learned Gaussian (the same draws outside training)."""

    def __init__(self, count: int, dim: int, *, sampled: bool):
        super().__init__()
        self.sampled = sampled
        if not sampled:
            self.latents = nn.Parameter(torch.randn(count, dim))
            return
        self.mean = nn.Parameter(torch.empty(1, dim).uniform_(-1, 1) * math.sqrt(6 / (dim + 1)))
        self.log_sigma = nn.Parameter(torch.empty(1, dim).uniform_(-1, 1) * math.sqrt(6 / (dim + 1)))
        self.register_buffer("noise", torch.randn(count, dim))
        self.noise: Tensor

    def forward(self, items: int) -> Tensor:
        """(items, K, D)."""
        if not self.sampled:
            return self.latents.expand(items, -1, -1)
        shape = (items, *self.noise.shape)
        drawn = torch.randn(shape, device=self.noise.device) if self.training else self.noise.expand(shape)
        return self.mean + self.log_sigma.exp() * drawn


class Competition(nn.Module):
    """One round: slots compete for inputs, head by head, and take the mean of what they won."""

    def __init__(self, dim: int, inside: int, *, heads: int, head_dim: int, official: bool = False):
        super().__init__()
        inner = heads * head_dim
        self.norm, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(inside)
        self.query = nn.Linear(dim, inner, bias=False)
        self.key, self.value = (nn.Linear(inside, inner, bias=False) for _ in range(2))
        self.out = nn.Linear(inner, dim)
        self.heads = heads
        self.official = official

    def inputs(self, x: Tensor, codes: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, H, L, d) keys and values: the same in every round, so made and laid out once. Only keys know places."""
        x = normed(self.norm_context, x)
        key = self.key(x if codes is None else x + codes.to(x.dtype))
        return self._by_head(key), self._by_head(self.value(x))

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2).contiguous()

    def shares(self, slots: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """(N, H, K, L): how each input is shared out; sums to 1 over slots. Padding is not shared out at all.

        The authors' code bars padding before a softmax over slots, which leaves each slot an equal share of it.
        """
        query = self._by_head(self.query(self.norm(slots)))
        score = query @ key.transpose(2, 3) / math.sqrt(key.shape[-1])
        share = score.float().softmax(2)
        if mask is None:
            return share
        return torch.where(mask[:, None, None], share, 1 / slots.shape[1] if self.official else 0.0)

    def forward(self, share: Tensor, value: Tensor) -> Tensor:
        """(N, K, D) what the slots take."""
        weight = share / (share.sum(-1, keepdim=True) + EPS)
        taken = weight.to(value.dtype) @ value
        out: Tensor = self.out(taken.transpose(1, 2).flatten(2))
        return out


@dataclass(frozen=True)
class Slots:
    """How many slots there are and how they find their elements."""

    count: int = 4
    depth: int = 4  # rounds of competition
    heads: int = 4
    head_dim: int = 512
    dropout: float = 0.1
    begin: str = "learned"  # | "sampled"
    update: str = "sum"  # | "gru"
    whole: bool = True  # a feature of the whole is added to every element
    padding: str = "masked"  # | "official": padding competes too, as in the authors' code


class SetPrediction(nn.Module):
    """Inputs (N, L, inside) and a feature of the whole -> K unit vectors each; all rounds share their weights."""

    def __init__(self, dim: int, inside: int, slots: Slots):
        super().__init__()
        self.depth = slots.depth
        self.padding = slots.padding
        self.start = Start(slots.count, dim, sampled=slots.begin == "sampled")
        self.compete = Competition(
            dim,
            inside,
            heads=slots.heads,
            head_dim=slots.head_dim,
            official=slots.padding == "official",
        )
        self.cell = nn.GRUCell(dim, dim) if slots.update == "gru" else None
        self.think = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(slots.dropout), nn.Linear(4 * dim, dim)
        )
        self.norm = nn.LayerNorm(dim)
        self.whole_norm = nn.LayerNorm(dim) if slots.whole else None
        self.dropout = nn.Dropout(slots.dropout)
        self.keep_attention = False  # for figures: Embedding.extra["attention"] is (N, L, rounds, heads, K)

    def forward(self, x: Tensor, mask: Tensor | None, whole: Tensor | None, codes: Tensor | None = None) -> Embedding:
        """Sets of unit vectors; outside inference mode with what the slots alone found, for the diversity loss."""
        slots, seen = self.start(x.shape[0]), []
        key, value = self.compete.inputs(x, codes)
        for _ in range(self.depth):
            share = self.compete.shares(slots, key, mask)
            slots = self._updated(slots, self.compete(share, value))
            slots = slots + self.think(slots)
            seen += [share] if self.keep_attention else []
        elements = self.norm(slots)
        full = elements if whole is None or self.whole_norm is None else elements + self.whole_norm(whole)[:, None]
        extra = {} if torch.is_inference_mode_enabled() else {"residual": elements}
        if seen:
            extra["attention"] = torch.stack(seen).permute(1, 4, 0, 2, 3).contiguous()
        return Embedding(F.normalize(full.float(), dim=-1), None, extra)

    def _updated(self, slots: Tensor, taken: Tensor) -> Tensor:
        if self.cell is None:
            return slots + self.dropout(taken)
        mixed: Tensor = self.cell(taken.flatten(0, 1), slots.reshape(-1, slots.shape[-1]))
        return mixed.view_as(slots)
