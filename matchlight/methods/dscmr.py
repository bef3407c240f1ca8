"""DSCMR: both sides through the same last layers, told apart by class, pulled together pair by pair.

Zhen et al., "Deep Supervised Cross-Modal Retrieval", CVPR 2019. A layer a side, then two layers that the sides share:
the common space, and a linear guess at the labels. The loss asks that guesses be near the labels, that cosines tell
whether two items share a class, and that the two vectors of a pair be the same.

Departs from the authors' code: batches are shuffled; the model is chosen on validation data (the code chooses on test);
a distance of exactly 0 has gradient 0 (there: not a number); each side is compared by its own labels, which differ only
where labels are noisy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Batch, Matcher, Objective, Recipe, Scores, Sizes, Terms
from matchlight.parts.labelwise import (
    INPUTS,
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
from matchlight.training.recipes import Method, check_choices
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

    def forward(self, scores: Scores, embeddings: dict[str, Any], batch: Batch) -> Terms:
        """J1 of each side, J2 of each two sides, J3 of the pairs."""
        terms: Terms = {}
        vectors = {side: found.single.float() for side, found in both(embeddings)}
        labels = {side: labels_of(batch, side) for side in vectors}
        for side, found in both(embeddings):
            terms[f"guess_{side}"] = length(found.extra["logits"].float() - labels[side])
        for one, other in ((IMAGE, IMAGE), (IMAGE, TEXT), (TEXT, TEXT)):
            shared = labels[one] @ labels[other].T
            terms[f"{one}_{other}"] = self.alpha * likelihood(vectors[one], vectors[other], shared)
        image, text = paired(embeddings, batch)
        terms["pairs"] = self.beta * length(image - text)
        return terms


def recipe(
    sizes: Sizes,
    *,
    dim: int = 1024,
    hidden: int = 2048,
    alpha: float = 1e-3,
    beta: float = 1e-1,
    inputs: str = "raw",
    epochs: int = 500,
    batch: int = 100,
    rate: float = 1e-4,
    clip: float = 0.0,
    select: str = "best",
    validate_every: int = 1,
) -> Recipe:
    """DSCMR; `dim` is the common space."""
    check_choices(inputs=(inputs, INPUTS))

    def matcher() -> Matcher:
        sides = encoders(sizes, partial(Projected, dim=hidden, inputs=inputs, sphere=False))
        common = nn.Sequential(nn.ReLU(), nn.Linear(hidden, dim))
        return Classified(sides, Cosine(link="linear"), nn.Linear(dim, sizes.classes), common=common)

    return Recipe(
        matcher=matcher,
        objective=partial(Supervised, alpha=alpha, beta=beta),
        strategy=Plain(),
        epochs=epochs,
        batch=batch,
        groups=partial(one_rate, rate=rate),
        betas=(0.5, 0.999),
        clip=clip,
        select=select,
        validate_every=validate_every,
        protocol="labels",
    )


SMALL = {"dim": 128, "hidden": 256, "inputs": "standard", "epochs": 20, "batch": 100, "rate": 1e-3}

METHODS = [
    Method(
        "dscmr",
        recipe,
        paper="Deep Supervised Cross-Modal Retrieval (CVPR 2019)",
        needs=("labels",),
        weights=("alpha",),
        small=SMALL,
        presets={"wikipedia": {**SMALL, "hidden": 512, "inputs": "raw", "epochs": 30}},
        pooled=True,
    ),
]
