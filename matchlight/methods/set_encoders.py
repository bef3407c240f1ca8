"""Pictures and captions as sets: local features for the slots to compete for, and one feature of the whole.

Regions or grid cells: a projection and a residual MLP; the whole is their maximum. Words: the slots look at the word
vectors themselves, the whole is the end of a bi-GRU. Word pieces: the projected states of a sentence encoder; the whole
is their maximum. `pooling=gpo | top` finds the whole as VSE-infinity does instead, from all cells and all states.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import Embedding, Items
from matchlight.inputs.augmentation import drop_regions
from matchlight.methods.slots import SetPrediction, codes_of
from matchlight.parts.encoders import ReadPieces, last_state, lengths, states_of, turn
from matchlight.parts.layers import BatchNorm, GeneralizedPooling, TopMean, pooling_by

TWICE = 1 - 0.9 * 0.9  # the authors' code reads regions twice a step, so that running averages move twice by 0.1


TOP = {"regions": 10, "words": 3}  # how many of the largest values of a dimension `pooling=top` averages


def largest(x: Tensor, mask: Tensor | None) -> Tensor:
    """(N, L, D) -> (N, D): per dimension, the largest real value."""
    return (x if mask is None else x.masked_fill(~mask[..., None], torch.finfo(x.dtype).min)).amax(1)


def coded(items: Items, slots: SetPrediction, dim: int) -> Tensor:
    """Codes of the words' places: relative to a caption's own length, or to the padded length as the authors do."""
    longest = items.x.shape[1]
    if slots.padding == "masked":
        own = lengths(items).to(items.x.device) if items.mask is None else items.mask.sum(1)
    else:
        own = torch.full((1,), longest, device=items.x.device)
    return codes_of(own, longest, dim)


class Largest(nn.Module):
    """The paper's feature of the whole: per dimension, the largest value of any part."""

    def forward(self, x: Tensor, mask: Tensor | None, sizes: Tensor | None = None) -> Tensor:
        """(N, L, D) -> (N, D)."""
        return largest(x, mask)

    def settle(self) -> None:
        """Nothing to learn, nothing to begin with."""


Whole = Largest | GeneralizedPooling | TopMean


def whole_of(slots: SetPrediction, pooling: str, parts: str) -> Whole:
    """How the whole is found; where no element has it added, nothing about it is learned."""
    if pooling == "paper" or slots.whole_norm is None:
        return Largest()
    return pooling_by(pooling, top=TOP[parts])


class RegionSets(nn.Module):
    """Regions, each projected and refined by a residual MLP, as a set of unit vectors."""

    def __init__(
        self, inside: int, dim: int, slots: SetPrediction, *, hidden: int, dropout: float, drop: float, pooling: str
    ):
        super().__init__()
        self.fc = nn.Linear(inside, dim)
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm = BatchNorm(hidden, count_padding=slots.padding == "official")
        self.norm.momentum = TWICE
        self.dropout = nn.Dropout(dropout)
        self.slots = slots
        self.whole = whole_of(slots, pooling, "regions")
        self.drop = drop  # share of the regions left out in training

    def forward(self, items: Items) -> Embedding:
        """(N, K, dim)."""
        items = self.inputs(items)
        if self.training and self.drop and items.x.shape[1] > 1:
            items = drop_regions(items, seed=devices.shared_draw(), p=self.drop)
        local = self._local(items)
        seen, whole = self.dropout(local), self.whole(self.dropout(local), items.mask)
        return self.slots(seen, items.mask, whole)

    def _local(self, items: Items) -> Tensor:
        x = items.x
        if self.slots.padding == "official" and items.mask is not None:
            x = x * items.mask[..., None]  # padding takes part there: it must be what the authors pad with
        h = self.fc(x)
        local: Tensor = h + self.second(F.relu(self.norm(self.first(h), items.mask)))
        return local

    # ---- what `start_canonically` asks for ----

    def inputs(self, items: Items) -> Items:
        """Regions; one vector a picture is a set of one."""
        return replace(items, x=items.x[:, None]) if items.x.dim() == 2 else items

    def pooled(self, members: Items) -> Tensor:
        """(N, dim) the feature of the whole."""
        return self.whole(self._local(members), members.mask)

    @property
    def linear(self) -> nn.Linear:
        """The projection that the whole and the slots share."""
        return self.fc

    @torch.no_grad()
    def settle(self) -> None:
        """The MLP adds nothing."""
        self.second.weight.zero_()
        self.second.bias.zero_()
        self.whole.settle()


class WordSets(nn.Module):
    """Words as a set of unit vectors: slots look at word vectors, the whole is read by a bi-GRU."""

    def __init__(self, vocabulary: int, dim: int, slots: SetPrediction, *, word_dim: int, dropout: float, pooling: str):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, word_dim)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)  # longer ones would hardly move from where they start
        reads = slots.whole_norm is not None
        self.ahead = nn.GRU(word_dim, dim, batch_first=True) if reads else None
        self.back = nn.GRU(word_dim, dim, batch_first=True) if reads else None
        self.whole = None if pooling == "paper" else whole_of(slots, pooling, "words")
        self.dropout = nn.Dropout(dropout)
        self.slots = slots

    def forward(self, items: Items) -> Embedding:
        """(N, K, dim)."""
        rows = self.embed.weight.index_select(0, items.x.flatten()).view(*items.x.shape, -1)
        words = self.dropout(rows)
        return self.slots(words, items.mask, self._whole(words, items), coded(items, self.slots, rows.shape[-1]))

    def _whole(self, words: Tensor, items: Items) -> Tensor | None:
        """(N, dim): the last states of both directions, averaged; with another pooling, from all states."""
        if self.ahead is None or self.back is None:
            return None
        count = lengths(items)
        ahead, back = states_of(words, count, self.ahead, self.back)
        assert back is not None
        if self.whole is None:
            state = (last_state(ahead, items) + last_state(back, items)) / 2
        else:
            state = self.whole((ahead + turn(back, count)) / 2, items.mask, count)
        whole: Tensor = self.dropout(state)
        return whole


class PieceSets(ReadPieces):
    """Word pieces as a set of unit vectors: a sentence encoder that trains along, its states projected."""

    def __init__(self, name: str, dim: int, slots: SetPrediction, *, drop: float, pooling: str, frozen: bool):
        super().__init__(name, dim, drop=drop, frozen=frozen)
        self.slots = slots
        self.whole = whole_of(slots, pooling, "words")

    def forward(self, items: Items) -> Embedding:
        """(N, K, dim)."""
        read = self.read(items)
        local = self.project(read.x)
        whole = self.whole(local, read.mask, read.extra.get("length"))
        return self.slots(local, read.mask, whole, coded(read, self.slots, local.shape[-1]))

    # ---- what `start_canonically` asks for ----

    def inputs(self, items: Items) -> Items:
        """The encoder's states."""
        return self.read(items)

    def pooled(self, members: Items) -> Tensor:
        """(N, dim) the feature of the whole."""
        return self.whole(self.project(members.x), members.mask, members.extra.get("length"))

    @property
    def linear(self) -> nn.Linear:
        """The projection that the whole and the slots share."""
        return self.project

    def settle(self) -> None:
        """The projection and a mean."""
        self.whole.settle()
