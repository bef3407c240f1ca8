"""PCME: a picture and a caption are Gaussians, and they match as often as draws from the two fall close together.

Chun et al., CVPR 2021, arXiv:2101.05068. The mean of the Gaussian is a PIE-Net vector (`pie_net.py`), its spread comes
from an attention of its own; J draws from each side make J x J distances, and each distance a probability to match
(`gaussians.py`). `Embedding.extra["log_sigma"]` says how unsure the model is of an item; `gaussians.uncertainty` puts
that in one number.

Departs from the authors' code: labelled pairs of the same picture are never negatives (`siblings="negatives"` counts
them); the uniformity term reads all draws (the code at most 128 rows); pictures are not erased in part; word vectors
start at random instead of GloVe and learn from the start; one optimiser serves both stages of training; clipping
counts the scale and shift of the match probability too. Kept from the code: the KL term takes the spread for a
log-variance and the mean of the draws for the mean, and both directions count, though they are the same number. The
code reads captions with `sentence="last_word"` (see `pie_net.BothWays`); the default reads them both ways to the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import (
    IMAGE,
    TEXT,
    BadInput,
    Batch,
    Embedding,
    Items,
    Matcher,
    Objective,
    Scores,
    Seed,
    Sizes,
    Terms,
)
from matchlight.inputs.augmentation import PAD, crop_flip_colour, drop_words, row_uniform
from matchlight.methods.gaussians import Draws, Uncertain, both_sides, log_odds, squares
from matchlight.methods.pvse import INSIDE, SIDES, flat
from matchlight.methods.pvse import NAMES as MEANS
from matchlight.parts.encoders import gru_names, lengths
from matchlight.training.arguments import Count, NonNegative, Share, Training, TunedPictures, Value
from matchlight.training.contract import Recipe, Siblings
from matchlight.training.registry import Checkpoint, Foreign, Method, renamed
from matchlight.training.schedules import groups
from matchlight.training.strategies import Plain

START, END, UNKNOWN = 1, 2, 3  # ids of the special words

# ---- what training minimises -----------------------------------------------------------------------------------------


def kl(embedding: Embedding) -> Tensor:
    """(N,) -1/2 sum (1 + s - m^2 - e^s): m the mean of the draws, s log sigma read as a log-variance."""
    mean, s = embedding.vectors.mean(1), embedding.extra["log_sigma"]
    return -0.5 * (1 + s - mean.square() - s.exp()).sum(-1)


def uniformity(draws: Tensor) -> Tensor:
    """(N, D) -> log of the mean over all pairs of rows of exp(-2 |x - y|^2); lower = spread more evenly."""
    far = squares(draws[:, None], draws[:, None]).flatten(1).clamp(min=0)
    itself = torch.eye(len(draws), dtype=torch.bool, device=draws.device)
    return (-2 * far).masked_fill(itself, -torch.inf).flatten().logsumexp(0) - math.log(len(draws) * (len(draws) - 1))


class SoftContrastive(Objective):
    """-log p of every labelled pair and -log (1 - p) of every other pair of the batch, both ways round."""

    def __init__(self, *, beta: float = 1e-5, uniform: float = 0.0, siblings: str = "masked"):
        super().__init__()
        self.beta = beta
        self.uniform = uniform
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """Terms "match" (P,) and "mismatch" (I,), and where they count "kl" and "uniform"."""
        image, text = embeddings[IMAGE], embeddings[TEXT]
        own_i, own_t = batch.core or (len(image), len(text))
        image, text = image.take(slice(0, own_i)), text.take(slice(0, own_t))
        scale, shift = text.extra["match"][0]
        odds = log_odds(squares(image.vectors, text.vectors), scale, shift, (1, 3))
        own = odds[batch.positive[:, 0], batch.positive[:, 1]]
        terms = {"match": 2 * F.softplus(-own), "mismatch": 2 * (F.softplus(odds) * self._others(odds, batch)).sum(1)}
        if self.beta:
            terms["kl"] = self.beta * (kl(image).sum() + kl(text).sum())
        if self.uniform:
            draws = torch.cat([image.vectors.flatten(0, 1), text.vectors.flatten(0, 1)])
            terms["uniform"] = self.uniform * uniformity(draws)
        return terms

    def _others(self, odds: Tensor, batch: Batch) -> Tensor:
        """(I, T) True where a pair of the batch may serve as a mismatch."""
        others = torch.ones_like(odds, dtype=torch.bool)
        others[batch.positive[:, 0], batch.positive[:, 1]] = False
        if self.siblings == "negatives":
            return others
        owner = batch.sides[TEXT].extra["picture"][: odds.shape[1]]
        return others & (batch.sides[IMAGE].id[: odds.shape[0], None] != owner[None])


# ---- training --------------------------------------------------------------------------------------------------------


def forgetful(side: str, items: Items, seed: Seed, *, p: float, pixels: bool) -> Items:
    """Training only: pictures are cropped and mirrored; words become unknown, then a few are taken out."""
    if side == IMAGE:
        return crop_flip_colour(items, seed=seed) if pixels else items
    if not p:
        return items
    items = drop_words(items, seed=seed, p=p, mode="zero", word=UNKNOWN, special=(START, END))
    return without_words(items, seed=seed, p=p)


def without_words(items: Items, *, seed: Seed, p: float) -> Items:
    """Each caption loses int(p * length) words, drawn evenly; its first and last place (<start>, <end>) stay."""
    count = lengths(items)
    away = (p * count).long().clamp(max=(count - 2).clamp(min=0))
    place = torch.arange(items.x.shape[1])[None]
    inner = ((place > 0) & (place < count[:, None] - 1)).to(items.x.device)
    real = (place < count[:, None]).to(items.x.device)
    draw = row_uniform(items.id.to(items.x.device), items.x.shape[1], (seed << 32) ^ 0x60F0)
    rank = draw.masked_fill(~inner, 2.0).argsort(dim=1, stable=True).argsort(1)
    keep = real & ~(inner & (rank < away.to(items.x.device)[:, None]))
    order = torch.argsort(~keep, dim=1, stable=True)  # what stays moves up, in its order
    mask = keep.gather(1, order)
    extra = {**items.extra, "length": count - away}
    return replace(items, x=items.x.gather(1, order).masked_fill(~mask, PAD), mask=mask, extra=extra)


def two_stages(epoch: int, step: int, steps: int, *, epochs: int, tune: float, tune_rate: float) -> dict[str, float]:
    """The rate falls along a cosine, once for the heads alone and once, from `tune_rate` of it, for everything.

    Both cosines are as long as the longer stage, as in the authors' settings for COCO and CUB.
    """
    second = round(tune * epochs)
    first = epochs - second
    tuning = epoch >= first
    done = (epoch - first if tuning else epoch) / max(first, second, 1)
    factor = (tune_rate if tuning else 1.0) * (1 + math.cos(math.pi * done)) / 2
    return {"heads": factor, "backbone": factor if tuning or not second else 0.0}


@dataclass(frozen=True, kw_only=True)
class PCME(TunedPictures, Training):
    """PCME (`preset=cub` has the settings for few, alike classes)."""

    dim: Count = 1024
    hidden: Count | None = None
    word_dim: Count = 300
    sentence: Literal["ends", "last_word"] = "ends"
    samples: Count = 7
    log_sigma: float = 0.0
    measure: Literal["dot", "matmul", "probability"] = "dot"
    scale: NonNegative = 15.0
    shift: float = 15.0
    beta: NonNegative = 1e-5
    uniform: NonNegative = 0.0
    drop_words: Share = 0.1
    eps: NonNegative = 1e-8
    siblings: Siblings = "masked"
    backbone_rate: NonNegative = 1.0
    epochs: Count = 60
    tune: NonNegative = 0.5
    tune_rate: NonNegative = 0.1

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        if not 0 <= self.tune <= 1:
            raise BadInput(f"tune={self.tune}: tune is a share of the epochs, from 0 to 1")

        def matcher() -> Matcher:
            last_word, keep = self.sentence == "last_word", self.measure == "probability"
            shape: dict[str, Any] = {"word_dim": self.word_dim, "hidden": self.hidden, "last_word": last_word}
            sides = both_sides(
                sizes, self.dim, **shape, start=self.log_sigma, eps=self.eps, samples=self.samples, keep=keep
            )
            image = self.behind_backbone(sides[IMAGE])
            draws = Draws(measure=self.measure, samples=self.samples, scale=self.scale, shift=self.shift)
            return Uncertain({IMAGE: image, TEXT: sides[TEXT]}, draws)

        return Recipe(
            matcher=matcher,
            objective=partial(SoftContrastive, beta=self.beta, uniform=self.uniform, siblings=self.siblings),
            strategy=Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(groups, rate=self.rate, backbone=self.backbone_rates(), decay=0.0),
            optimiser="adamp",
            schedule=partial(two_stages, epochs=self.epochs, tune=self.tune, tune_rate=self.tune_rate),
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
            augment=partial(forgetful, p=self.drop_words, pixels=self.finetune),
        )


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------

NAMES = {old: new.replace("encoders.image.", "encoders.image.mean.") for old, new in MEANS.items()}
NAMES = {old: new.replace("encoders.text.", "encoders.text.mean.") for old, new in NAMES.items()}
NAMES |= {f"{old}uncertain_net.{a}": f"{new}spread.{b}" for old, new in SIDES.items() for a, b in INSIDE.items()}
NAMES |= {"img_enc.uncertain_net.fc2.": "encoders.image.spread.whole.fc."}
NAMES |= gru_names("txt_enc.uncertain_net.rnn.", "encoders.text.spread.whole.")


def read_pcme(file: Checkpoint) -> Foreign:
    """`model`, `criterion` (the scale and shift) and `config`; the CNN in front of the model is left out."""
    model, criterion, config = flat(file["model"]), file["criterion"], file["config"]
    settings, loss = config["model"], config["criterion"]
    if not (settings.get("img_probemb", True) and settings.get("txt_probemb", True)):
        raise BadInput("trained with one side as points: only models with a Gaussian on both sides can be read")
    dim, image_dim = model["img_enc.fc.weight"].shape
    vocabulary, word_dim = model["txt_enc.embed.weight"].shape
    probable = settings.get("eval_method") == "matching_prob"
    named: dict[str, Value] = {
        "dim": dim,
        "word_dim": word_dim,
        "sentence": "last_word",
        "samples": int(settings.get("n_samples_inference", 7)),
        "measure": "probability" if probable else "matmul",
        "scale": float(criterion["negative_scale"]),
        "shift": float(criterion["shift"]),
        "beta": float(loss.get("vib_beta", 0)),
        "uniform": float(loss.get("uniform_lambda", 0)),
        "siblings": "negatives",
        "eps": 0.0,
    }
    weights = renamed(model, NAMES)
    weights |= {"similarity.scale": criterion["negative_scale"][0], "similarity.shift": criterion["shift"][0]}
    return Foreign(named, {"image_dim": image_dim, "vocabulary": vocabulary}, weights)


CUB: dict[str, Value] = {
    "dim": 512,
    "scale": 5.0,
    "shift": 5.0,
    "beta": 1e-3,
    "uniform": 10.0,
    "rate": 1e-4,
    "epochs": 60,
    "tune": 50 / 60,
    "tune_rate": 1.0,
}

METHODS = [
    Method(
        "pcme",
        PCME,
        paper="Probabilistic Embeddings for Cross-Modal Retrieval (CVPR 2021)",
        needs=("pairs", "regions"),
        # a few hundred steps are too few to come down from the paper's spread of 1 in every dimension
        small={"dim": 256, "hidden": 128, "word_dim": 128, "epochs": 16, "rate": 1e-3, "tune": 0.0, "log_sigma": -4.0},
        presets={"coco": {}, "cub": CUB},
        reader=read_pcme,
    )
]
