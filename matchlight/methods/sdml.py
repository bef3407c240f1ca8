"""SDML: the common space is fixed before training, so each side learns its way into it without the other.

Hu et al., "Scalable Deep Multimodal Learning for Cross-Modal Retrieval", SIGIR 2019. Classes are columns of a random
orthogonal matrix. An encoder a side, onto the unit sphere, is asked that its products with these columns be the
labels; a decoder rebuilds the input, so that what labels do not say is kept.

Departs from the authors' code: the model of the epoch with the best validation MAP is kept (the code keeps, per side,
that with the lowest validation loss); the last short batch is not dropped; the matrix follows from the run's seed and
is part of the model. As in the code, the decoder's output has unit length, so with `inputs=raw` an input of another
length cannot be rebuilt exactly; `inputs=unit` can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, Batch, Embedding, Group, Items, Matcher, Objective, Scores, Sizes, Terms
from matchlight.parts.labelwise import (
    Classified,
    Cosine,
    Vector,
    both,
    check_shares,
    encoders,
    labels_of,
    length,
    perceptron,
)
from matchlight.parts.layers import unit
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Value
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.strategies import Plain


class Autoencoder(nn.Module):
    """A vector onto the unit sphere and, while a loss may ask for it, how far the way back misses ("rebuilt")."""

    def __init__(self, inside: int, dim: int, *, hidden: int, inputs: str):
        super().__init__()
        self.vector = Vector(inside, inputs=inputs)
        self.encode = perceptron([inside, hidden, hidden, dim])
        self.decode = perceptron([dim, hidden, hidden, inside])

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        x = self.vector(items)
        out = Embedding(unit(self.encode(x))[:, None])
        if torch.is_inference_mode_enabled():
            return out
        return replace(out, extra={"rebuilt": length(unit(self.decode(out.single)) - x)})


class Fixed(nn.Module):
    """Products with the fixed directions of the classes."""

    def __init__(self, dim: int, classes: int):
        super().__init__()
        side = max(dim, classes)
        self.register_buffer("directions", nn.init.orthogonal_(torch.empty(side, side))[:dim, :classes].clone())

    def forward(self, x: Tensor) -> Tensor:
        """(N, classes)."""
        directions: Tensor = self.directions  # type: ignore[assignment]
        return x @ directions


def label_error(guesses: Tensor, labels: Tensor) -> Tensor:
    """(N,) distances of guesses and labels, such that their mean is that over the labelled items alone."""
    labelled = labels.any(1).float()
    return labelled * length(guesses - labels) / labelled.mean().clamp(min=1e-12)


class Anchored(Objective):
    """alpha x what rebuilding misses + (1 - alpha) x what the labels miss, side by side."""

    reduction = "mean"
    needs_matrix = False

    def __init__(self, *, alpha: float = 0.5):
        super().__init__()
        self.alpha = alpha

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """Two terms a side, (N,) each."""
        terms: Terms = {}
        for side, embedding in both(embeddings):
            error = label_error(embedding.extra["logits"].float(), labels_of(batch, side))
            terms[f"rebuilt_{side}"] = self.alpha * embedding.extra["rebuilt"].float()
            terms[f"label_{side}"] = (1 - self.alpha) * error
        return terms


def rates(matcher: Matcher, objective: Objective, *, rate: float, text_rate: float) -> list[Group]:
    """A rate a side."""
    each = matcher.encoders.items()
    return [Group(name=s, params=list(e.parameters()), lr=rate if s == IMAGE else text_rate) for s, e in each]


@dataclass(frozen=True, kw_only=True)
class SDML(LabelTraining):
    """SDML; `rate` is that of pictures."""

    dim: Count = 512
    hidden: Count = 1024
    alpha: NonNegative = 0.5
    epochs: Count = 200
    batch: BatchSize = 100
    rate: Positive = 1e-4
    text_rate: NonNegative = 2e-4

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        check_shares(alpha=self.alpha)

        def matcher() -> Matcher:
            sides = encoders(sizes, partial(Autoencoder, dim=self.dim, hidden=self.hidden, inputs=self.inputs))
            return Classified(sides, Cosine(link="linear"), Fixed(self.dim, sizes.classes))

        return Recipe(
            matcher=matcher,
            objective=partial(Anchored, alpha=self.alpha),
            strategy=Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(rates, rate=self.rate, text_rate=self.text_rate),
            betas=(0.5, 0.999),
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            protocol="labels",
        )


SMALL: dict[str, Value] = {
    "dim": 128,
    "hidden": 256,
    "inputs": "standard",
    "epochs": 20,
    "batch": 100,
    "rate": 1e-3,
    "text_rate": 2e-3,
}

METHODS = [
    Method(
        "sdml",
        SDML,
        paper="Scalable Deep Multimodal Learning for Cross-Modal Retrieval (SIGIR 2019)",
        needs=("labels",),
        small=SMALL,
        presets={
            "wikipedia": {**SMALL, "inputs": "raw", "epochs": 30},
            "inria": {"batch": 500},  # its code takes 500 where there are 100 classes or more, else 100
            "nuswide": {},
            "xmedianet": {"batch": 500},
            "coco": {},
        },
        pooled=True,
    ),
]
