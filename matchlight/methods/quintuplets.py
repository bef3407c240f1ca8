"""Quintuplets: an anchor pair, two negatives mined offline, and the partners of those; how they are drawn and ranked.

For a labelled pair (I, T) a *companion* set is drawn from lists of hard negatives: T' is a caption that the miner
confuses with the picture, I' a picture it confuses with the caption, I'' the true picture of T' and T'' a true caption
of I'. Four pairs of them must all score below the labelled one, by name of the link that carries them:

    off_text (I, T')    off_image (I', T)    off_pair (I', T')    off_partner (I'', T'')
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Objective, Scores, Terms
from matchlight.parts.objectives import INF, contrast
from matchlight.training.mining.candidates import NONE, Candidates
from matchlight.training.mining.filters import Grouped

TRIPLETS = ("off_text", "off_image")
QUINTUPLETS = (*TRIPLETS, "off_pair", "off_partner")
KINDS = {"offtri": TRIPLETS, "offquin": QUINTUPLETS, "adapoffquin": QUINTUPLETS}


# ---- drawing ---------------------------------------------------------------------------------------------------------


def ranks(rng: np.random.Generator, count: int, *, how: str) -> np.ndarray:
    """(count,) places in a list as shares of its length, in [0, 1): uniform, or normal around its middle."""
    if how == "uniform":
        return rng.random(count)
    return rng.normal(0.5, 1 / 6, count).clip(0, np.nextafter(1, 0))


def _inverse(known: np.ndarray, count: int) -> np.ndarray:
    """(count,) where each number stands in `known`; NONE where it does not."""
    out = np.full(count, NONE)
    out[known] = np.arange(len(known))
    return out


@dataclass
class Draw:
    """Companions of a batch's rows: one draw decides how hard both negatives of a row are."""

    lists: Candidates
    picture: np.ndarray  # the picture of every row of the whole table
    depth: int  # captions of a list that may be drawn
    how: str = "uniform"
    links: tuple[str, ...] = QUINTUPLETS

    def __post_init__(self) -> None:
        pictures, rows = np.asarray(self.lists.pictures), np.asarray(self.lists.rows)
        self.place_of_picture = _inverse(pictures, int(self.picture.max()) + 1)
        self.place_of_row = _inverse(rows, len(self.picture))
        self.captions = Grouped(rows, self.place_of_picture[self.picture[rows]], len(pictures))
        each = len(self.lists.rows) / max(1, len(self.lists.pictures))
        self.texts = np.minimum((self.lists.texts != NONE).sum(1), self.depth)
        self.images = np.minimum((self.lists.images != NONE).sum(1), max(1, round(self.depth / each)))

    def __call__(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Further (picture, caption) pairs by link; a row with nothing to draw gets its own, which do not count."""
        image = self.picture[rows]
        query, asked = self.place_of_picture[image], self.place_of_row[rows]
        texts, images = self.texts[query], self.images[asked]
        rank = (ranks(rng, len(rows), how=self.how) * texts).astype(np.int64)
        text = self.lists.texts[query, rank]
        other = self.lists.images[asked, rank * images // np.maximum(texts, 1)]
        none = (texts == 0) | (images == 0)
        text, other = np.where(none, rows, text), np.where(none, image, other)
        own = self.captions.some(self.place_of_picture[other], rng.random(len(rows)))
        pairs = {
            "off_text": (image, text),
            "off_image": (other, rows),
            "off_pair": (other, text),
            "off_partner": (self.picture[text], own),
        }
        return {name: np.stack(pairs[name], 1) for name in self.links}


# ---- ranking ---------------------------------------------------------------------------------------------------------


def counts(batch: Batch, *, siblings: str) -> dict[str, Tensor]:
    """Per link, (P,) which of its pairs are negatives: never a row's own, and no true match unless siblings count."""
    ids, owner = batch.sides[IMAGE].id, batch.sides[TEXT].extra["picture"]
    apart = {name: ids[link[:, 0]] != owner[link[:, 1]] for name, link in batch.links.items() if name in QUINTUPLETS}
    real = apart["off_text"] & apart["off_image"]
    counted = {name: real for name in TRIPLETS}
    for name in QUINTUPLETS[2:]:
        if name in apart:
            counted[name] = real if siblings == "negatives" else real & apart[name]
    return counted


class Quintuplets(Objective):
    """A ranking objective that also ranks each pair above its companions; without companions it is left as it is.

    `adapoffquin` weighs the ranking's own terms, i2t and t2i, by beta - (offline - online) / alpha: the harder what was
    mined is beside the hardest of the batch, the less the batch counts. The weight may be negative and, unless
    `detach`, learns too.
    """

    def __init__(
        self,
        ranking: Objective,
        *,
        kind: str = "adapoffquin",
        alpha: float = 0.3,
        beta: float = 1.5,
        margin: float = 0.0,
        siblings: str = "masked",
        detach: bool = False,
    ):
        super().__init__()
        self.ranking = ranking
        self.kind = kind
        self.alpha = alpha
        self.beta = beta
        self.margin = margin
        self.siblings = siblings
        self.detach = detach
        self.reduction = ranking.reduction

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """The ranking's terms, and one (P,) term a link."""
        terms = self.ranking(scores, embeddings, batch)
        if TRIPLETS[0] not in scores.links:
            return terms
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        real = counts(batch, siblings=self.siblings)
        if self.kind == "adapoffquin":
            for (way, (score, ok)), name in zip(c.directions().items(), TRIPLETS, strict=True):
                online = score.masked_fill(~ok, -INF).amax(1)
                terms[way] = terms[way] * self.weight(scores.links[name], online, real[name])
        for name in KINDS[self.kind]:
            terms[name] = (self.margin + scores.links[name] - c.own).relu() * real[name]
        return terms

    def weight(self, offline: Tensor, online: Tensor, real: Tensor) -> Tensor:
        """(P,) beta - (offline - online) / alpha; 1 where nothing was mined, beta where the batch has no negative."""
        apart = torch.where(online > -INF, offline - online, 0.0)
        apart = apart.detach() if self.detach else apart
        return torch.where(real, self.beta - apart / self.alpha, 1.0)
