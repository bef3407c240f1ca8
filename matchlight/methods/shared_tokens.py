"""Regions and words as tokens of one kind, and the hiding of some of them in training.

A region is its projected feature plus its projected box; a word is its state in a bi-GRU plus its place. Both are
halved, as the authors of semantic sharing (IJCAI 2021) do. In training a share of the tokens is hidden and becomes a
target: a word's own id, a region's class.

What class a region has, the data may say (`Items.extra["object"]`: what a detector called it). Where it does not, a
region's class is the one of a set of fixed random directions that its difference from the picture's mean points to
most: like regions fall together, nothing has to be fitted, and the classes are the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import BadInput, Embedding, Items
from matchlight.inputs.augmentation import drop_words, row_uniform
from matchlight.methods.shared_transformer import NOTHING
from matchlight.parts.encoders import Words
from matchlight.parts.layers import glorot, masked_mean

PLACES = 512  # words behind the last place share it
START, END, UNK = 1, 2, 3  # ids of special words in every vocabulary of this kind
WHOLE = (0.0, 0.0, 1.0, 1.0, 1.0)  # left, top, right, bottom, area in parts of the picture


@dataclass(frozen=True)
class Look:
    """A picture's regions: what they look like, where they are, which are real, and what they are known to show."""

    x: Tensor  # (N, R, D)
    box: Tensor  # (N, R, 5)
    mask: Tensor | None  # (N, R)
    kind: Tensor | None  # (N, R) class numbers, below 0 where nobody knows


def seen(items: Items, regions: int) -> Look:
    """Regions with a box each. Boxes that are not the regions' own are things seen through the cells of a grid.

    `regions` is how many there are before any padding (1: as many as come).
    """
    x = items.x[:, None] if items.x.dim() == 2 else items.x
    kind, box = items.extra.get("object"), items.extra.get("box")
    if box is None:
        own = cells(min(regions, x.shape[1]) if regions > 1 else x.shape[1], x.device)
        padded = F.pad(own, (0, 0, 0, x.shape[1] - len(own)))
        return Look(x, padded.expand(len(x), -1, -1), items.mask, kind)
    box = _with_area(box)
    if box.shape[1] == x.shape[1]:
        return Look(x, box, items.mask, kind)
    return _with_things(x, items.mask, box, kind)


def _with_area(box: Tensor) -> Tensor:
    if box.shape[2] == 5:
        return box
    area = (box[..., 2] - box[..., 0]) * (box[..., 3] - box[..., 1])
    return torch.cat([box, area[..., None]], 2)


def cells(count: int, device: torch.device) -> Tensor:
    """(count, 5) boxes of the cells of a square grid, row after row; the whole picture where they make no square."""
    side = math.isqrt(count)
    if side * side != count:
        return torch.tensor(WHOLE, device=device).expand(count, -1)
    edge = torch.arange(side, device=device) / side
    top, left = torch.meshgrid(edge, edge, indexing="ij")
    corner = torch.stack([left.flatten(), top.flatten()], 1)
    return torch.cat([corner, corner + 1 / side, torch.full((count, 1), 1 / count, device=device)], 1)


def under(box: Tensor, grid: Tensor) -> Tensor:
    """(N, B, R) how much of each box lies on each cell; rows sum to 1 (0 for boxes without area)."""
    low = torch.maximum(box[:, :, None, :2], grid[:, :2])
    high = torch.minimum(box[:, :, None, 2:4], grid[:, 2:4])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared / shared.sum(-1, keepdim=True).clamp(min=1e-12)


def _with_things(x: Tensor, mask: Tensor | None, box: Tensor, kind: Tensor | None) -> Look:
    """Cells of a grid, and behind them each boxed thing as the mean of the cells under it; empty boxes are padding."""
    count = x.shape[1]
    if math.isqrt(count) ** 2 != count:
        raise BadInput(f"{box.shape[1]} boxes for {count} regions: give each region its box, or pictures as pixels")
    grid = cells(count, x.device)
    things = torch.einsum("nbr,nrd->nbd", under(box, grid).to(x.dtype), x)
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
    none = torch.full(x.shape[:2], NOTHING, device=x.device)
    known = None if kind is None else torch.cat([none, kind], 1)
    where = torch.cat([grid.expand(len(x), -1, -1), box], 1)
    return Look(torch.cat([x, things], 1), where, torch.cat([real, box[..., 4] > 0], 1), known)


class RegionTokens(nn.Module):
    """Regions (a vector is one) as tokens; `share` of them are hidden in training, or only asked for."""

    codes: Tensor

    def __init__(
        self, inside: int, dim: int, *, regions: int, box_scale: float, share: float, hide: bool, objects: int
    ):
        super().__init__()
        self.regions = regions
        self.fc = glorot(nn.Linear(inside, dim))
        self.box = nn.Linear(5, dim)
        self.box_scale = box_scale
        self.share = share
        self.objects = objects
        self.hidden = nn.Parameter(torch.empty(dim).uniform_(-0.1, 0.1)) if hide and share else None
        fixed = torch.randn(objects if share else 0, inside, generator=torch.Generator().manual_seed(0))
        self.register_buffer("codes", fixed, persistent=False)

    def forward(self, items: Items) -> Embedding:
        """(N, R, dim), in training with the classes to guess as "target" (N, R)."""
        look = seen(items, self.regions)
        tokens = self.fc(look.x)
        extra = {}
        if self.training and self.share:
            extra["target"] = target = self._targets(look, items.id)
            if self.hidden is not None:
                tokens = torch.where((target != NOTHING)[..., None], self.hidden.to(tokens.dtype), tokens)
        return Embedding((tokens + self.box_scale * self.box(look.box)) / 2, look.mask, extra)

    @torch.no_grad()
    def _targets(self, look: Look, ids: Tensor) -> Tensor:
        kind = self.looks_like(look.x, look.mask) if look.kind is None else look.kind
        asked = row_uniform(ids, kind.shape[1], devices.shared_draw()) < self.share
        asked &= (kind >= 0) & (kind < self.objects)
        asked = asked if look.mask is None else asked & look.mask
        return torch.where(asked, kind, NOTHING)

    def looks_like(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, R) which fixed direction each region's difference from its picture points to."""
        x = x.float()
        return torch.einsum("nrd,cd->nrc", x - masked_mean(x, mask)[:, None], self.codes).argmax(-1)


def first_places(items: Items, longest: int) -> Items:
    """The captions' first `longest` words; shorter captions stay as they are."""
    if items.x.shape[1] <= longest:
        return items
    mask = None if items.mask is None else items.mask[:, :longest]
    extra = dict(items.extra)
    if "length" in extra:
        extra["length"] = extra["length"].clamp(max=longest)
    return replace(items, x=items.x[:, :longest], mask=mask, extra=extra)


class WordTokens(nn.Module):
    """Words as tokens; `share` of them are replaced by the word `mask_word` in training."""

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        *,
        word_dim: int,
        first_only: bool,
        position_scale: float,
        share: float,
        mask_word: int,
        longest: int = PLACES,
    ):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim)
        self.place = nn.Embedding(PLACES, dim)
        nn.init.uniform_(self.place.weight, -0.1, 0.1)
        self.first_only = first_only  # every word gets the first position, as the authors' code does
        self.position_scale = position_scale
        self.share = share
        self.mask_word = mask_word
        self.longest = longest  # words behind it are not read

    def forward(self, items: Items) -> Embedding:
        """(N, L, dim), in training with the words to guess as "target" (N, L)."""
        items, extra = first_places(items, self.longest), {}
        if self.training and self.share:
            masked = drop_words(
                items, seed=devices.shared_draw(), p=self.share, word=self.mask_word, special=(START, END)
            )
            extra["target"] = torch.where(masked.x != items.x, items.x, NOTHING)
            items = masked
        states = self.words(items)
        return Embedding((states + self.position_scale * self._places(states)) / 2, items.mask, extra)

    def _places(self, states: Tensor) -> Tensor:
        if self.first_only:
            return self.place.weight[:1]
        where = torch.arange(states.shape[1], device=states.device).clamp(max=PLACES - 1)
        return self.place.weight.index_select(0, where)


class VectorToken(nn.Module):
    """A text that came as one vector: one token."""

    def __init__(self, inside: int, dim: int):
        super().__init__()
        self.fc = glorot(nn.Linear(inside, dim))

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        return Embedding(self.fc(items.x)[:, None])
