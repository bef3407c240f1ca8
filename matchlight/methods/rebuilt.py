"""Rebuilt pairs: a caption that is doubted is learnt with the picture of a trusted pair near it.

After IN2R (ICML 2026): of a pair that looks wrong the picture and the caption are still good, only their link is not.
What the other network makes of all training items is kept (one vector each), and of its trusted pairs the twenty
nearest to a doubted caption are looked for. In each epoch the caption is learnt with the picture of one of them, the
nearer the likelier, so that over the epochs its target is their weighted mean. No item is read that would not be read
anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from matchlight import devices
from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embeddings, Matcher
from matchlight.inputs.batches import LABELLED, collate, fewest, seeded
from matchlight.scoring.all_pairs import coarse_parts
from matchlight.training.checkpoints import State
from matchlight.training.contract import Phase, TrainingRun

NEAREST = 20  # trusted pairs that have a say
TEMPERATURE = 0.05  # of their say, on cosines
WEIGHT = 0.5  # of a rebuilt pair's loss
DOUBTED = 0.5  # a pair less likely clean than this is doubted
AT_ONCE = 1024  # doubted captions that are compared with all trusted pairs at a time
SALT = 2718


# ---- one vector an item ----------------------------------------------------------------------------------------------


def whole_vectors(matcher: Matcher, side: str, embeddings: Embeddings) -> Tensor | None:
    """(N, D) one unit vector an item, the mean of those that propose candidates; None where the scorer has none."""
    (vectors,) = coarse_parts(matcher, side, embeddings)
    return None if vectors is None else F.normalize(vectors.float().mean(1), dim=1)


class Remembered:
    """What one network makes of every training picture and caption, gathered while its losses are measured.

    Nothing, where its scorer has no vectors of whole items.
    """

    def __init__(self, run: TrainingRun, matcher: Matcher):
        self.matcher = matcher
        self.sizes = {IMAGE: len(run.pairs.names), TEXT: len(run.pairs)}
        self.parts: dict[str, Tensor] = {}

    def add(self, embeddings: Mapping[str, Embeddings], batch: Batch) -> None:
        """The items of one batch."""
        for side, size in self.sizes.items():
            found = whole_vectors(self.matcher, side, embeddings[side])
            if found is not None:
                kept = self.parts.setdefault(side, found.new_zeros(size, found.shape[1]))
                kept[batch.sides[side].id] = found


# ---- neighbours ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """For doubted captions, the trusted rows nearest to each, and how much each of these counts."""

    caption: np.ndarray  # (n,) rows
    row: np.ndarray  # (n, k) trusted rows
    weight: np.ndarray  # (n, k), sums to 1

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """(n,) one of its rows for each caption."""
        upto = self.weight.cumsum(1)
        place = (rng.random((len(self.caption), 1)) * upto[:, -1:] > upto).sum(1)
        return self.row[np.arange(len(self.caption)), place.clip(max=self.row.shape[1] - 1)]


def nearest_pairs(captions: Tensor, trusted_captions: Tensor, trusted_pictures: Tensor) -> tuple[Tensor, Tensor]:
    """For captions (n, D), places (n, k) among trusted pairs (m, D) and their weights (n, k).

    A pair is near when the mean of both cosines is large: the caption's with its caption and with its picture.
    """
    count = min(NEAREST, len(trusted_captions))
    keys = (trusted_captions + trusted_pictures) / 2
    best = [torch.topk(part @ keys.T, count, dim=1) for part in captions.split(AT_ONCE)]
    score, place = torch.cat([one.values for one in best]), torch.cat([one.indices for one in best])
    return place, F.softmax(score / TEMPERATURE, 1)


def find(vectors: Mapping[str, Tensor], picture: np.ndarray, trust: np.ndarray) -> Found | None:
    """What doubted captions are learnt with; None where none is doubted, none trusted or nothing remembered.

    `trust` (N,) is NaN where a row is no training row.
    """
    trusted, doubted = np.flatnonzero(trust >= DOUBTED), np.flatnonzero(trust < DOUBTED)
    if not len(trusted) or not len(doubted) or len(vectors) < 2:
        return None
    texts, images = vectors[TEXT], vectors[IMAGE]
    place, weight = nearest_pairs(texts[doubted], texts[trusted], images[picture[trusted]])
    return Found(doubted, trusted[place.cpu().numpy()], weight.cpu().numpy())


# ---- training --------------------------------------------------------------------------------------------------------


class Rebuilding:
    """What a strategy keeps of it: for each network, what its doubted captions are learnt with."""

    def __init__(self, *, asked: bool | None):
        self.asked = asked
        self.found: dict[str, Found | None] = {}  # network -> neighbours among the other network's trusted pairs

    def check(self, run: TrainingRun, matcher: Matcher) -> None:
        """One clear line where rebuilding was asked for and the scorer has no vectors of whole items."""
        if not self.asked:
            return
        batch = collate(run.table, run.rows[: fewest()], repeat=run.repeat).to(run.device)
        with torch.no_grad():
            found = [whole_vectors(matcher, side, matcher.embed(side, batch.sides[side])) for side in (IMAGE, TEXT)]
        if any(one is None for one in found):
            raise BadInput("rebuild=true compares items by one vector each, and this scorer has none; leave it out")

    def wanted(self, run: TrainingRun) -> bool:
        """Unless said otherwise, not from pixels: each rebuilt caption brings one more picture into its batch."""
        return not run.table.pixels if self.asked is None else self.asked

    def update(self, run: TrainingRun, name: str, vectors: Mapping[str, Tensor], trust: np.ndarray) -> None:
        """What a network learns its doubted captions with, from vectors by side and its trust in every pair."""
        own = find(vectors, run.pairs.picture, trust) if run.chief else None
        self.found[name] = devices.broadcast(own)  # found once: all processes must make the same batches

    def phase(self, run: TrainingRun, phase: Phase, number: int) -> Phase:
        """The same pass with rebuilt pairs; exactly as it is where nothing is doubted."""
        if not (found := self.found.get(phase.network)):
            return phase
        picture = run.pairs.picture.astype(np.int64)
        picture[found.caption] = picture[found.drawn(seeded(run.seed, SALT, run.epoch, number))]
        return replace(phase, pictures=picture)

    def trust(self, batch: Batch, trust: Tensor) -> Tensor:
        """(P,) how much each pair of a batch counts: a trusted one its trust, a rebuilt one as much as any other."""
        return torch.where(trust >= DOUBTED, trust, WEIGHT) if LABELLED in batch.extra else trust

    def state_dict(self) -> State:
        """The neighbours."""
        return {name: None if found is None else vars(found) for name, found in self.found.items()}

    def load_state_dict(self, state: State) -> None:
        """Take them back."""
        self.found = {name: None if found is None else Found(**found) for name, found in state.items()}
