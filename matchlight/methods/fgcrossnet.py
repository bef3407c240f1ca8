"""FGCrossNet: one classifier for all sides, whose logits are gathered by class and ranked by quadruplets.

He, Peng and Xie, "A New Benchmark and Approach for Fine-grained Cross-media Retrieval", ACM MM 2019. The first stage
learns to classify while a centre a class gathers its logits; the second adds a ranking constraint.

Departs from the paper: MLPs on ready-made vectors stand where it has one ResNet-50 for pictures, video frames,
spectrograms and text drawn as a map (what MRL's comparison with it used is not described); batches are shuffled; the
model is chosen by validation. The ranking loss over all quadruplets is computed by sorting, in the memory of triples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from matchlight.core import BadInput, Batch, Embedding, Group, Matcher, Objective, Scores, Sizes, Terms
from matchlight.parts.labelwise import (
    Classified,
    Cosine,
    Projected,
    both,
    cross_entropy,
    encoders,
    labels_of,
    length,
)
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Value
from matchlight.training.contract import Phase, Recipe, TrainingRun
from matchlight.training.registry import Method
from matchlight.training.strategies import Plain

LARGEST = 128  # pairs a batch: its triples then take about 1 GB


def centre_distance(x: Tensor, centres: Tensor, labels: Tensor) -> Tensor:
    """(N,) squared distance of each item to the centre of its class (the mean over its classes)."""
    apart = (x.square().sum(1)[:, None] + centres.square().sum(1) - 2 * x @ centres.T).clamp(1e-12, 1e12)
    return (labels * apart).sum(1) / labels.sum(1).clamp(min=1)


def quadruplets(x: Tensor, same: Tensor, *, near: float = 1.0, far: float = 0.5) -> Tensor:
    """The mean of the positive [(d(a,p) - d(a,n) + near) + (d(a,p) - d(n,m) + far)]+ over all quadruplets of a batch.

    a and p share a class, n and m share none with a nor with each other. For each (a, n) the hinge is a sum over p and
    m of [X - Y]+, X depending on p alone and Y on m alone: with the Ys sorted, every X counts the Ys below it.
    """
    apart = length(x[:, None] - x[None])
    other = ~same
    barred = ~(other[:, None, :] & other[None, :, :])  # (a, n, m): m shares a class with a or with n
    far_off = apart[None].expand_as(barred).masked_fill(barred, torch.inf).sort(2).values  # Y, usable ones first
    below = torch.where(far_off.isinf(), 0.0, far_off).cumsum(2)
    below = torch.cat([torch.zeros_like(below[..., :1]), below], 2)
    wanted = 2 * apart[:, None, :] - apart[:, :, None] + near + far  # X: (a, n, p)
    usable = other[:, :, None] & (same & ~torch.eye(len(x), dtype=torch.bool, device=x.device))[:, None, :]
    count = torch.searchsorted(far_off.detach(), wanted.detach().contiguous()) * usable
    total = (count * wanted - below.gather(2, count)).sum()
    return total / count.sum().clamp(min=1)


class FineGrained(Objective):
    """Cross-entropy of each side + centre x distance to the class's centre + rank x quadruplets, on logits."""

    reduction = "mean"
    needs_matrix = False

    def __init__(self, classes: int, *, centre: float = 1e-3, rank: float = 0.1, centres: nn.Parameter | None = None):
        super().__init__()
        self.centre = centre
        self.rank = rank
        self.centres = nn.Parameter(torch.randn(classes, classes)) if centres is None else centres

    def unranked(self) -> FineGrained:
        """The same without the ranking constraint: the first stage. The centres are shared."""
        return FineGrained(len(self.centres), centre=self.centre, rank=0.0, centres=self.centres)

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """A term a side, and those of all items together."""
        logits = {side: embedding.extra["logits"].float() for side, embedding in both(embeddings)}
        labels = {side: labels_of(batch, side) for side in logits}
        terms = {f"class_{side}": cross_entropy(logits[side], labels[side]) for side in logits}
        every, known = torch.cat(list(logits.values())), torch.cat(list(labels.values()))
        terms["centre"] = self.centre * centre_distance(every, self.centres, known)
        if self.rank:
            terms["rank"] = self.rank * quadruplets(every, known @ known.T > 0)
        return terms


class Stages(Plain):
    """The first epochs without the ranking constraint."""

    def __init__(self, *, first: int):
        self.first = first

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase, with the objective of its stage."""
        if epoch >= self.first:
            return [Phase(rows=run.rows, name="rank")]
        objective = run.networks["A"].objective
        assert isinstance(objective, FineGrained)
        return [Phase(rows=run.rows, objective=objective.unranked(), name="centre")]


def halves(epoch: int, step: int, steps: int, *, every: int, first: int) -> float:
    """Half the rate again after each `every` epochs of a stage; the second stage starts anew."""
    return 0.5 ** ((epoch if epoch < first else epoch - first) // every)


def momentum(matcher: Matcher, objective: Objective, *, rate: float, centre: float) -> list[Group]:
    """SGD with momentum; the centres move as if their term were not weighted down."""
    quick = rate / centre if centre else rate
    return [
        Group(name="net", params=list(matcher.parameters()), lr=rate, momentum=0.9),
        Group(name="centres", params=list(objective.parameters()), lr=quick, momentum=0.9),
    ]


@dataclass(frozen=True, kw_only=True)
class FGCrossNet(LabelTraining):
    """FGCrossNet on vectors; the first `first` epochs (without a number: half of them) are its first stage."""

    dim: Count = 512
    hidden: Count = 4096
    centre: NonNegative = 1e-3
    rank: NonNegative = 0.1
    first: Count | None = None
    epochs: Count = 100
    batch: BatchSize = 4
    rate: Positive = 1e-3
    halve_every: Count = 3

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        first = self.epochs // 2 if self.first is None else self.first
        if self.rank and self.batch > LARGEST:
            raise BadInput(
                f"batch={self.batch}: the ranking loss compares triples of a batch; at most {LARGEST}, or rank=0"
            )

        def matcher() -> Matcher:
            make = partial(Projected, dim=self.dim, hidden=(self.hidden, self.hidden), inputs=self.inputs, sphere=False)
            head = nn.Sequential(nn.ReLU(), nn.Linear(self.dim, sizes.classes))
            return Classified(encoders(sizes, make), Cosine(link="softmax"), head, space="logits")

        return Recipe(
            matcher=matcher,
            objective=partial(FineGrained, sizes.classes, centre=self.centre, rank=self.rank),
            strategy=Stages(first=first),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(momentum, rate=self.rate, centre=self.centre),
            optimiser="sgd",
            schedule=partial(halves, every=self.halve_every, first=first),
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            protocol="labels",
        )


SMALL: dict[str, Value] = {
    "dim": 128,
    "hidden": 256,
    "inputs": "standard",
    "batch": 32,
    "rate": 0.02,
    "halve_every": 6,
    "epochs": 16,
}

METHODS = [
    Method(
        "fgcrossnet",
        FGCrossNet,
        paper="A New Benchmark and Approach for Fine-grained Cross-media Retrieval (ACM MM 2019)",
        needs=("labels",),
        small=SMALL,
        presets={
            "wikipedia": {**SMALL, "inputs": "root", "rate": 5e-3, "epochs": 12},
            **{name: {} for name in ("inria", "nuswide", "xmedianet")},  # nobody names others
        },
        pooled=True,
    ),
]
