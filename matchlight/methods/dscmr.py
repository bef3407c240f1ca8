"""DSCMR: both sides through the same last layers, separated by class, pulled together pair by pair.

Zhen et al., "Deep Supervised Cross-Modal Retrieval", CVPR 2019. A layer a side, then two layers that the sides share:
the common space, and a linear guess at the labels. The loss asks that guesses be near the labels, that cosines tell
whether two items share a class, and that the two vectors of a pair be the same.

Departs from the authors' code: batches are shuffled; the model is chosen on validation data (the code chooses on test);
a distance of exactly 0 has gradient 0 (there: not a number); each side is compared by its own labels, which differ only
where labels are noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Matcher, Objective, Scores, Sizes, Terms
from matchlight.parts.labelwise import (
    Classified,
    Cosine,
    Projected,
    both,
    encoders,
    labels_of,
    length,
    one_rate,
    paired,
)
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Value
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.strategies import Plain


def likelihood(a: Tensor, b: Tensor, shared: Tensor) -> Tensor:
    """(A, B) log(1 + e^G) - S G of every two items, G half their cosine, S how many classes they share (Eq. 4)."""
    lengths = (a.norm(dim=1)[:, None] * b.norm(dim=1)).clamp(min=1e-6)
    half = 0.5 * (a @ b.T) / lengths
    return F.softplus(half) - shared * half


class Supervised(Objective):
    """Guesses near the labels + alpha x who shares a class + beta x pairs at one place."""

    reduction = "mean"
    needs_matrix = False

    def __init__(self, *, alpha: float = 1e-3, beta: float = 1e-1):
        super().__init__()
        self.alpha = alpha
        self.beta = beta

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """J1 of each side, J2 of each two sides, J3 of the pairs."""
        terms: Terms = {}
        vectors = {side: embedding.single.float() for side, embedding in both(embeddings)}
        labels = {side: labels_of(batch, side) for side in vectors}
        for side, embedding in both(embeddings):
            terms[f"guess_{side}"] = length(embedding.extra["logits"].float() - labels[side])
        for one, other in ((IMAGE, IMAGE), (IMAGE, TEXT), (TEXT, TEXT)):
            shared = labels[one] @ labels[other].T
            terms[f"{one}_{other}"] = self.alpha * likelihood(vectors[one], vectors[other], shared)
        image, text = paired(embeddings, batch)
        terms["pairs"] = self.beta * length(image - text)
        return terms


@dataclass(frozen=True, kw_only=True)
class DSCMR(LabelTraining):
    """DSCMR; `dim` is the common space."""

    dim: Count = 1024
    hidden: Count = 2048
    alpha: NonNegative = 1e-3
    beta: NonNegative = 1e-1
    epochs: Count = 500
    batch: BatchSize = 100
    rate: Positive = 1e-4

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""

        def matcher() -> Matcher:
            sides = encoders(sizes, partial(Projected, dim=self.hidden, inputs=self.inputs, sphere=False))
            common = nn.Sequential(nn.ReLU(), nn.Linear(self.hidden, self.dim))
            return Classified(sides, Cosine(link="linear"), nn.Linear(self.dim, sizes.classes), common=common)

        return Recipe(
            matcher=matcher,
            objective=partial(Supervised, alpha=self.alpha, beta=self.beta),
            strategy=Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(one_rate, rate=self.rate),
            betas=(0.5, 0.999),
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            protocol="labels",
        )


SMALL: dict[str, Value] = {"dim": 128, "hidden": 256, "inputs": "standard", "epochs": 20, "batch": 100, "rate": 1e-3}

METHODS = [
    Method(
        "dscmr",
        DSCMR,
        paper="Deep Supervised Cross-Modal Retrieval (CVPR 2019)",
        needs=("labels",),
        small=SMALL,
        presets={
            "wikipedia": {**SMALL, "hidden": 512, "inputs": "raw", "epochs": 30},
            **{name: {} for name in ("inria", "nuswide", "xmedianet", "flickr25k", "coco")},  # nobody names others
        },
        pooled=True,
    ),
]
