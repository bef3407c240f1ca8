"""DCCAE: two networks whose outputs correlate as much as they can, and from which the inputs can be rebuilt.

Wang et al., "On Deep Multi-View Representation Learning", ICML 2015; without rebuilding (`rebuild=0`) it is DCCA,
Andrew et al., ICML 2013. Only pairs teach, labels are not read: what wrong labels cannot touch. Linear CCA, fitted on
the training outputs whenever the model is judged, turns correlated outputs into comparable ones.

Departs from the usual port: correlations are singular values (its branch for all of them takes an elementwise root);
linear CCA is fitted on the network that is kept; networks run in single precision, correlations are computed in double.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Batch, Embedding, Items, Matcher, Objective, Scores, Sizes, Terms
from matchlight.parts.canonical_correlation import whitened
from matchlight.parts.labelwise import Cosine, Vector, both, encoders, one_rate, paired
from matchlight.parts.layers import BatchNorm
from matchlight.scoring.encode import encode_both
from matchlight.training.arguments import BatchSize, Count, LabelTraining, NonNegative, Positive, Value
from matchlight.training.contract import Recipe, TrainingRun
from matchlight.training.registry import Method
from matchlight.training.strategies import Plain

MOST = 5000  # training pairs that linear CCA is fitted on


class Correlating(nn.Module):
    """A vector through sigmoid layers, normalised, to a few outputs; "rebuilt" is the squared error of the way back."""

    def __init__(self, inside: int, dim: int, *, hidden: int, inputs: str):
        super().__init__()
        self.vector = Vector(inside, inputs=inputs)
        parts: list[nn.Module] = []
        for wide in (inside, hidden, hidden):
            parts += [nn.Linear(wide, hidden), nn.Sigmoid(), BatchNorm(hidden, affine=False)]
        self.encode = nn.Sequential(*parts, BatchNorm(hidden, affine=False), nn.Linear(hidden, dim))
        back: list[nn.Module] = []
        for wide in (dim, hidden, hidden):
            back += [nn.Linear(wide, hidden), nn.Sigmoid()]
        self.decode = nn.Sequential(*back, nn.Linear(hidden, inside))

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim), in full precision: correlations depend on the last bits."""
        with torch.autocast(items.x.device.type, enabled=False):
            x = self.vector(items)
            out = Embedding(self.encode(x)[:, None])
            if torch.is_inference_mode_enabled():
                return out
            return replace(out, extra={"rebuilt": (self.decode(out.single) - x).square().sum(1)})


def covariances(x: Tensor, y: Tensor, *, ridge: float) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Of paired rows (P, D): each side's own with a ridge, and the one between them."""
    x, y = x - x.mean(0), y - y.mean(0)
    spread = max(1, len(x) - 1)
    own = [a.T @ a / spread + ridge * torch.eye(a.shape[1], dtype=a.dtype, device=a.device) for a in (x, y)]
    return (own[0], own[1]), x.T @ y / spread


def correlation(x: Tensor, y: Tensor, *, ridge: float = 1e-3, smooth: float = 1e-3) -> Tensor:
    """The total canonical correlation of paired rows (P, D); `smooth` keeps the root from a sharp bend at 0."""
    values = torch.linalg.svdvals(whitened(*covariances(x.double(), y.double(), ridge=ridge))[2])
    return (values.square() + smooth).sqrt().sum()


class Correlation(Objective):
    """-correlation + rebuild x squared errors of both sides."""

    reduction = "mean"
    needs_matrix = False

    def __init__(self, *, rebuild: float = 1e-3, ridge: float = 1e-3):
        super().__init__()
        self.rebuild = rebuild
        self.ridge = ridge

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """One number for the pairs, (N,) a side."""
        terms = {"correlation": -correlation(*paired(embeddings, batch), ridge=self.ridge).float()}
        for side, embedding in both(embeddings) if self.rebuild else []:
            terms[f"rebuilt_{side}"] = self.rebuild * embedding.extra["rebuilt"].float()
        return terms


class Canonical(Cosine):
    """Cosines of canonical variates: outputs less their mean, through the projection that linear CCA found."""

    def __init__(self, dim: int):
        super().__init__()
        for side in (IMAGE, TEXT):
            self.register_buffer(f"mean_{side}", torch.zeros(dim))
            self.register_buffer(f"project_{side}", torch.eye(dim))

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        return super().forward(self.variates(images, IMAGE), self.variates(texts, TEXT))

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return super().pairs(self.variates(images, IMAGE), self.variates(texts, TEXT))

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """Unit variates: the proposal is exact."""
        return super().coarse(self.variates(embedding, side), side)

    def variates(self, embedding: Embedding, side: str) -> Embedding:
        """The same items, projected."""
        mean, project = getattr(self, f"mean_{side}"), getattr(self, f"project_{side}")
        return replace(embedding, vectors=(embedding.vectors - mean) @ project)

    @torch.no_grad()
    def fit(self, images: Tensor, texts: Tensor, *, ridge: float = 1e-4) -> None:
        """Linear CCA of paired rows (P, D)."""
        sides = {IMAGE: images.double(), TEXT: texts.double()}
        left, right, between = whitened(*covariances(sides[IMAGE], sides[TEXT], ridge=ridge))
        turned, _, other = torch.linalg.svd(between)
        for side, root, turn in ((IMAGE, left, turned), (TEXT, right, other.T)):
            getattr(self, f"mean_{side}").copy_(sides[side].mean(0))
            getattr(self, f"project_{side}").copy_(torch.linalg.solve_triangular(root.T, turn, upper=True))


class Aligned(Plain):
    """Plain epochs; whenever the model is asked for, linear CCA is fitted on what it makes of the training pairs."""

    def result(self, run: TrainingRun) -> Matcher:
        """The network with its projection."""
        matcher = super().result(run)
        rows = run.rows[np.linspace(0, len(run.rows) - 1, min(MOST, len(run.rows))).astype(np.int64)]
        images, texts = encode_both(matcher, run.table, run.pairs.picture[rows], rows)
        assert isinstance(matcher.similarity, Canonical)
        matcher.similarity.fit(images.members[0].single, texts.members[0].single)
        return matcher


@dataclass(frozen=True, kw_only=True)
class DCCAE(LabelTraining):
    """DCCAE; `dim` is the number of canonical variates, which a batch must exceed by far."""

    dim: Count = 10
    hidden: Count = 1024
    rebuild: NonNegative = 1e-3
    ridge: NonNegative = 1e-3
    epochs: Count = 50
    batch: BatchSize = 800
    rate: Positive = 1e-3
    decay: NonNegative = 1e-5

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""

        def matcher() -> Matcher:
            return Matcher(
                encoders(sizes, partial(Correlating, dim=self.dim, hidden=self.hidden, inputs=self.inputs)),
                Canonical(self.dim),
            )

        return Recipe(
            matcher=matcher,
            objective=partial(Correlation, rebuild=self.rebuild, ridge=self.ridge),
            strategy=Aligned(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(one_rate, rate=self.rate, decay=self.decay),
            optimiser="rmsprop",
            clip=self.clip,
            select=self.select,
            validate_every=self.validate_every,
            protocol="labels" if sizes.classes else "recall",
        )


SMALL: dict[str, Value] = {"dim": 20, "hidden": 256, "inputs": "standard", "epochs": 10}

METHODS = [
    Method(
        "dccae",
        DCCAE,
        paper="On Deep Multi-View Representation Learning (ICML 2015)",
        needs=("vectors",),
        small=SMALL,
        presets={"wikipedia": SMALL, **{name: {} for name in ("inria", "nuswide", "xmedianet")}},
        pooled=True,
    ),
]
