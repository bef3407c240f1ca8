"""Rebuilt pairs: a caption that is doubted is learnt with the picture of a trusted pair near it, a picture likewise.

After IN2R (ICML 2026): of a pair that looks wrong the picture and the caption are still good, only their link is not.
What the other network makes of all training items is kept (one vector each), and of its trusted pairs those nearest to
a doubted item are looked for. In each epoch the item is learnt with one of them: the nearest, one of the nearest five
at random, or one of more, the nearer the likelier, so that over the epochs its target is their (weighted) mean. No
item is read that would not be read anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from matchlight import devices
from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Embeddings, Matcher
from matchlight.inputs.batches import LABELLED, collate, fewest, plan, plan_pictures, seeded
from matchlight.methods.set_losses import own_sets
from matchlight.scoring.all_pairs import coarse_parts
from matchlight.training.checkpoints import State
from matchlight.training.contract import Phase, TrainingRun

Rebuild = Literal["none", "nearest", "mean", "attention"]
Sides = Literal["captions", "pictures", "both"]
Near = Literal["within", "across", "both"]
COUNT = {"nearest": 1, "mean": 5, "attention": 20}  # trusted pairs that have a say
TEMPERATURE = 0.05  # of attention, on cosines
AT_ONCE = 1024  # doubted items that are compared with all trusted pairs at a time
SALT = 2718


# ---- one vector an item ----------------------------------------------------------------------------------------------


def whole_vectors(matcher: Matcher, side: str, embeddings: Embeddings) -> Tensor | None:
    """(N, D) one unit vector an item, the mean of those that propose candidates; None where the scorer has none."""
    (vectors,) = coarse_parts(matcher, side, embeddings)
    return None if vectors is None else F.normalize(vectors.float().mean(1), dim=1)


def check_vectors(run: TrainingRun, matcher: Matcher) -> None:
    """One clear line for a scorer without vectors of whole items."""
    batch = collate(run.table, run.rows[: fewest()], repeat=run.repeat).to(run.device)
    with torch.no_grad():
        found = [whole_vectors(matcher, side, matcher.embed(side, batch.sides[side])) for side in (IMAGE, TEXT)]
    if any(one is None for one in found):
        raise BadInput("rebuild= compares items by one vector each, and this scorer has none; use rebuild=none")


class Remembered:
    """What one network makes of every training picture and caption, gathered while its losses are measured."""

    def __init__(self, run: TrainingRun, matcher: Matcher):
        self.matcher = matcher
        self.sizes = {IMAGE: len(run.pairs.names), TEXT: len(run.pairs)}
        self.parts: dict[str, Tensor] = {}

    def add(self, embeddings: Mapping[str, Embeddings], batch: Batch) -> None:
        """The items of one batch."""
        for side, size in self.sizes.items():
            found = whole_vectors(self.matcher, side, embeddings[side])
            assert found is not None  # as checked before
            if side not in self.parts:
                self.parts[side] = found.new_zeros(size, found.shape[1])
            self.parts[side][batch.sides[side].id] = found


# ---- neighbours ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """For some items, the trusted rows nearest to each, and how much each of these counts."""

    item: np.ndarray  # (n,) rows of doubted captions, or places of doubted pictures
    row: np.ndarray  # (n, k) trusted rows
    weight: np.ndarray  # (n, k), sums to 1

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """(n,) one of its rows for each item."""
        upto = self.weight.cumsum(1)
        place = (rng.random((len(self.item), 1)) * upto[:, -1:] > upto).sum(1)
        return self.row[np.arange(len(self.item)), place.clip(max=self.row.shape[1] - 1)]


def nearest_pairs(
    own: Tensor, same: Tensor, other: Tensor, *, how: Rebuild, near: Near = "both"
) -> tuple[np.ndarray, np.ndarray]:
    """For items `own` (n, D), places (n, k) among trusted pairs and their weights (n, k).

    `same` and `other` are (m, D): the trusted pairs' items of the same side as `own` and of the other one.
    """
    count = min(COUNT[how], len(same))
    keys = {"within": same, "across": other, "both": (same + other) / 2}[near]
    best = [torch.topk(part @ keys.T, count, dim=1) for part in own.split(AT_ONCE)]
    score, place = torch.cat([one.values for one in best]), torch.cat([one.indices for one in best])
    weight = F.softmax(score / TEMPERATURE, 1) if how == "attention" else torch.full_like(score, 1 / count)
    return place.cpu().numpy(), weight.cpu().numpy()


@dataclass(frozen=True)
class HowToRebuild:
    """Which doubted items are rebuilt, from what, and how much a rebuilt pair counts."""

    how: Rebuild = "none"
    sides: Sides = "both"
    near: Near = "both"
    doubt: float = 0.5  # a pair less likely clean than this is doubted
    weight: float = 0.5  # of a rebuilt pair's loss

    def find(self, vectors: Mapping[str, Tensor], picture: np.ndarray, trust: np.ndarray) -> dict[str, Found]:
        """By side, what doubted items are learnt with. `trust` (N,) is NaN where a row is no training row.

        A picture is doubted when none of its captions is trusted.
        """
        trusted, doubted = np.flatnonzero(trust >= self.doubt), np.flatnonzero(trust < self.doubt)
        items = {TEXT: doubted, IMAGE: np.setdiff1d(picture[doubted], picture[trusted])}
        known = {TEXT: vectors[TEXT][trusted], IMAGE: vectors[IMAGE][picture[trusted]]}
        out = {}
        for side in {"captions": [TEXT], "pictures": [IMAGE], "both": [TEXT, IMAGE]}[self.sides]:
            if len(trusted) and len(items[side]):
                own, other = vectors[side][items[side]], known[IMAGE if side == TEXT else TEXT]
                place, weight = nearest_pairs(own, known[side], other, how=self.how, near=self.near)
                out[side] = Found(items[side], trusted[place], weight)
        return out


def learnt_pairs(
    found: Mapping[str, Found], rows: np.ndarray, picture: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """(E, 2) pictures and captions of an epoch: training rows, doubted captions and pictures with what was drawn."""
    owner = picture.astype(np.int64)
    if TEXT in found:
        owner[found[TEXT].item] = picture[found[TEXT].drawn(rng)]
    pairs = np.stack([owner[rows], rows], 1)
    if IMAGE not in found:
        return pairs
    return np.concatenate([pairs, np.stack([found[IMAGE].item, found[IMAGE].drawn(rng)], 1)])


class Rebuilding:
    """What a strategy keeps of it: for each network, what its doubted items are learnt with."""

    def __init__(self, plan: HowToRebuild):
        self.plan = plan
        self.found: dict[str, dict[str, Found]] = {}  # network -> side -> neighbours among the other network's trusted

    @property
    def wanted(self) -> bool:
        """Whether anything is rebuilt at all."""
        return self.plan.how != "none"

    def update(self, run: TrainingRun, name: str, memory: Remembered, trust: np.ndarray) -> None:
        """What a network learns its doubted items with, from what the other one remembers and trusts."""
        own = self.plan.find(memory.parts, run.pairs.picture, trust) if run.chief else {}
        self.found[name] = devices.broadcast(own)  # found once: all processes must make the same batches

    def phase(self, run: TrainingRun, phase: Phase, number: int) -> Phase:
        """The same pass over rebuilt pairs; exactly as it is where nothing is doubted."""
        if not (found := self.found.get(phase.network)):
            return phase
        pairs = learnt_pairs(found, phase.rows, run.pairs.picture, seeded(run.seed, SALT, run.epoch, number))
        places, owner, size, even = np.arange(len(pairs)), pairs[:, 0], run.recipe.batch, run.table.pixels
        blocks = run.table.blocks
        order = partial(plan, places, size, even=even, near=None if blocks is None else blocks[owner])
        if phase.together:
            order = partial(plan_pictures, places, owner, size, even=even, blocks=blocks)
        return replace(phase, pairs=pairs, order=order)

    def trust(self, batch: Batch, trust: Tensor) -> Tensor:
        """(P,) how much each pair of a batch counts, its row's trust where it is not rebuilt."""
        if LABELLED not in batch.extra:
            return trust
        kept = batch.extra[LABELLED] & (trust >= self.plan.doubt)
        if self.plan.sides == "pictures":  # doubted captions stay with their pictures
            kept = batch.extra[LABELLED]
        return torch.where(kept, trust, self.plan.weight)

    def state_dict(self) -> State:
        """The neighbours."""
        return {name: {side: vars(one) for side, one in found.items()} for name, found in self.found.items()}

    def load_state_dict(self, state: State) -> None:
        """Take them back."""
        self.found = {name: {side: Found(**one) for side, one in found.items()} for name, found in state.items()}


# ---- geometry within a side ------------------------------------------------------------------------------------------


def mean_vector(sets: Embedding) -> Tensor:
    """(N, D) the mean of each set's unit vectors, of unit length."""
    vectors = F.normalize(sets.vectors.float(), dim=-1)
    if sets.mask is not None:
        vectors = vectors * sets.mask[..., None]
    return F.normalize(vectors.sum(1), dim=1)


def geometry(embeddings: dict[str, Embedding], batch: Batch, trust: Tensor) -> Tensor:
    """How far apart cosines among pictures are from cosines among their captions, over pairs of trusted pairs.

    The mean squared difference, each pair of pairs weighted by the product of both trusts; siblings are left out.
    """
    images, texts = own_sets(embeddings, batch)
    image, text = batch.positive.unbind(1)
    one, other = mean_vector(images)[image], mean_vector(texts)[text]
    weight = trust[:, None] * trust * (image[:, None] != image)
    apart = (one @ one.T - other @ other.T).square()
    return (apart * weight).sum() / weight.sum().clamp(min=1e-6)
