"""MRL: learn what an item is *not*, and let the two sides of a pair agree, so that wrong labels do little harm.

Hu et al., "Learning Cross-Modal Retrieval with Noisy Labels", CVPR 2021. An MLP a side onto the unit sphere, learned
centres of the classes, and two losses: robust clustering minimises log(1 - p) of the labelled class, whose gradient is
strongest where an item fits its label already; contrastive learning needs no labels at all.

Departs from the authors' code: validation sees unit centres (the code leaves them as the last step made them); an
item's length is divided with an epsilon; captions of the same picture are never each other's negatives. Where they
differ, Eq. 7 of the paper is followed for more than two sides (the code's factor is 2 whatever their number).
`noise_classes="official"` adds the centre that the code has when its noise may draw a class that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from matchlight.core import IMAGE, BadInput, Batch, Embedding, Matcher, Objective, Scores, Sizes, Terms
from matchlight.parts.labelwise import (
    Centres,
    Classified,
    Cosine,
    Projected,
    both,
    check_shares,
    cross_entropy,
    encoders,
    labels_of,
    one_rate,
    paired,
)
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Share, Value
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.schedules import cosine
from matchlight.training.strategies import UnitCentres


def robust_clustering(logits: Tensor, labels: Tensor) -> Tensor:
    """(N,) log(1 - p), p = the probability of an item's labels: negative, and minimised as it is (Eq. 4).

    1 - p is summed from the other classes, which is exact when p is near 1. Without a label, or with all of them, 0.
    """
    own = labels > 0
    barred = own & ~own.all(1, keepdim=True)
    return logits.log_softmax(1).masked_fill(barred, -torch.inf).logsumexp(1)


def contrastive(sides: Sequence[Tensor], *, temperature: float = 1.0, group: Tensor | None = None) -> Tensor:
    """(m N,) -log of how probable an item's own partners are among all items of all sides but itself (Eq. 6).

    Each of `sides` is (N, D), row j of every side the same sample. Samples of one `group` (captions of one picture)
    are not compared.
    """
    z, count = torch.cat(list(sides)), len(sides[0])
    sample = torch.arange(count, device=z.device).repeat(len(sides))
    same = sample[:, None] == sample
    barred = torch.eye(len(z), dtype=torch.bool, device=z.device)
    if group is not None:
        kin = group.repeat(len(sides))
        barred = barred | ((kin[:, None] == kin) & ~same)
    logits = (z @ z.T / temperature).masked_fill(barred, -torch.inf)
    return logits.logsumexp(1) - logits.masked_fill(~same, -torch.inf).logsumexp(1)


class RobustLearning(Objective):
    """beta x clustering of every side + (1 - beta) x contrast between sides; `loss="ce"` is the ablation's baseline."""

    reduction = "mean"
    needs_matrix = False
    losses = {"robust": robust_clustering, "ce": cross_entropy}

    def __init__(self, *, beta: float = 0.7, temperature: float = 1.0, loss: str = "robust"):
        super().__init__()
        self.beta = beta
        self.temperature = temperature
        self.loss = loss

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One term a side, (N,) each, and the contrast of all pairs."""
        terms: Terms = {}
        for side, embedding in both(embeddings) if self.beta > 0 else []:
            logits = embedding.extra["logits"].float()
            loss = self.losses[self.loss](logits, labels_of(batch, side, logits.shape[1]))
            terms[f"cluster_{side}"] = self.beta * loss
        if self.beta < 1:
            sides = paired(embeddings, batch)
            group = batch.sides[IMAGE].id[batch.positive[:, 0]]
            loss = contrastive(sides, temperature=self.temperature, group=group)
            terms["contrast"] = (1 - self.beta) * len(sides) * loss  # Eq. 7 sums over sides, and over samples / N
        return terms


def spheres(
    sizes: Sizes,
    *,
    dim: int,
    hidden: int,
    classes: int,
    temperature: float,
    inputs: str,
    dropout: float,
    space: str = "embedding",
) -> Matcher:
    """An MLP a side onto one sphere, and the centres of the classes on it."""
    make = partial(Projected, dim=dim, hidden=(hidden, hidden), inputs=inputs, dropout=dropout)
    head = Centres(dim, classes, temperature=temperature)
    return Classified(encoders(sizes, make), Cosine(link="softmax", classes=sizes.classes), head, space=space)


@dataclass(frozen=True, kw_only=True)
class MRL(LabelTraining):
    """MRL (`beta=1` is clustering alone, `beta=0` contrast alone, `loss=ce` cross-entropy in place of clustering)."""

    dim: Count = 512
    hidden: Count = 4096
    beta: NonNegative = 0.7
    temperature: Positive = 1.0
    contrast_temperature: NonNegative = 1.0
    loss: Literal["robust", "ce"] = "robust"
    noise_classes: Literal["clean", "official"] = "clean"
    dropout: Share = 0.0
    epochs: Count = 100
    batch: BatchSize = 50
    rate: Positive = 1e-4
    decay: NonNegative = 0.0

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        check_shares(beta=self.beta)
        if min(self.temperature, self.contrast_temperature) <= 0:
            raise BadInput("temperature and contrast_temperature must be above 0")
        classes = sizes.classes + (self.noise_classes == "official")
        shape = {"dim": self.dim, "hidden": self.hidden, "inputs": self.inputs, "dropout": self.dropout}
        return Recipe(
            matcher=partial(spheres, sizes, classes=classes, temperature=self.temperature, **shape),  # type: ignore[arg-type]
            objective=partial(RobustLearning, beta=self.beta, temperature=self.contrast_temperature, loss=self.loss),
            strategy=UnitCentres(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(one_rate, rate=self.rate, decay=self.decay),
            betas=(0.5, 0.999),
            schedule=partial(cosine, epochs=self.epochs),
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            validate_loss=True,
            protocol="labels",
        )


SMALL: dict[str, Value] = {
    "dim": 128,
    "hidden": 512,
    "temperature": 0.3,
    "inputs": "root",
    "dropout": 0.2,
    "epochs": 20,
    "batch": 100,
    "rate": 3e-4,
}

METHODS = [
    Method(
        "mrl",
        MRL,
        paper="Learning Cross-Modal Retrieval with Noisy Labels (CVPR 2021)",
        needs=("labels",),
        small=SMALL,
        presets={
            "wikipedia": SMALL,  # classic features (SIFT histograms, LDA topics); chosen on its validation split
            "inria": {"batch": 200, "beta": 0.9},
            "nuswide": {"batch": 500},
            "xmedianet": {"batch": 500},
        },
        pooled=True,
    ),
]
