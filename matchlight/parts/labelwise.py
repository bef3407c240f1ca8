"""Parts of methods that learn from labels: an item is one vector, an MLP takes it into a common space, a head names it.

What comes in may be a vector, regions (their mean is the vector) or words (their counts are), so methods whose papers
start from ready-made vectors also train on pictures and captions. Labels reach an objective with the items of a batch,
as rows of 0 and 1; under label noise the two sides of a pair may disagree. An objective that also needs what only the
encoder sees (the input, to rebuild it) finds it in the embedding's extras, where several processes share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from matchlight.core import (
    IMAGE,
    TEXT,
    BadInput,
    Batch,
    Embedding,
    Embeddings,
    Group,
    Items,
    Matcher,
    Objective,
    Similarity,
    Sizes,
)
from matchlight.parts.layers import BatchNorm, masked_mean, unit

TINY = 1e-12


def width(sizes: Sizes, side: str) -> int:
    """The length of a side's input vector."""
    return sizes.image_dim if side == IMAGE else sizes.text_dim or sizes.vocabulary


def bag(items: Items, words: int) -> Tensor:
    """(N, words): log(1 + how often each word stands in a caption), of unit length; padding is no word."""
    real = torch.ones_like(items.x) if items.mask is None else items.mask
    counts = torch.zeros(items.x.shape[0], words, device=items.x.device)
    return unit(counts.scatter_add(1, items.x, real.float()).log1p())


class Vector(nn.Module):
    """Whatever stands for an item as one vector, scaled as `inputs` says.

    `raw` as it came; `unit` length; `standard`: each entry with mean 0 and variance 1 (BatchNorm without weights);
    `root`: the square roots of a histogram's entries, then standard.
    """

    def __init__(self, dim: int, *, inputs: str):
        super().__init__()
        self.dim = dim
        self.inputs = inputs
        self.norm = BatchNorm(dim, affine=False) if inputs in ("standard", "root") else None

    def forward(self, items: Items) -> Tensor:
        """(N, dim)."""
        if not items.x.is_floating_point():
            x = bag(items, self.dim)
        else:
            x = (items.x if items.x.dim() == 2 else masked_mean(items.x, items.mask)).float()
        if self.inputs == "root":
            x = x.sign() * x.abs().sqrt()
        return unit(x) if self.inputs == "unit" else x if self.norm is None else self.norm(x)


def perceptron(widths: Sequence[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers of these widths with a ReLU (and dropout) between them, none behind the last."""
    parts: list[nn.Module] = []
    for inside, outside in zip(widths[:-2], widths[1:-1], strict=True):
        parts += [nn.Linear(inside, outside), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(widths[-2], widths[-1]))


class Projected(nn.Module):
    """A vector through an MLP; with `sphere`, onto the unit sphere."""

    def __init__(
        self,
        inside: int,
        dim: int,
        *,
        hidden: Sequence[int] = (),
        inputs: str = "raw",
        dropout: float = 0.0,
        sphere: bool = True,
    ):
        super().__init__()
        self.vector = Vector(inside, inputs=inputs)
        self.layers = perceptron([inside, *hidden, dim], dropout=dropout)
        self.sphere = sphere

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        out = self.layers(self.vector(items))
        return Embedding((unit(out) if self.sphere else out)[:, None])


class Centres(nn.Module):
    """A direction a class: logits are cosines over `temperature`. They start at right angles to each other.

    The authors' code divides the columns by their length before every step, outside the graph; `settle` does, and the
    forward pass divides by the length as a plain number, so that values are right between two settlings as well.
    """

    def __init__(self, dim: int, classes: int, *, temperature: float = 1.0):
        super().__init__()
        square = nn.init.orthogonal_(torch.empty(max(dim, classes), max(dim, classes)))
        self.weight = nn.Parameter(square[:dim, :classes].clone())
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        """(N, classes) for unit vectors (N, dim)."""
        return x @ (self.weight / self.weight.detach().norm(dim=0).clamp(min=TINY)) / self.temperature

    @torch.no_grad()
    def settle(self) -> None:
        """Give every direction length 1 again."""
        self.weight.div_(self.weight.norm(dim=0).clamp(min=TINY))


class Cosine(Similarity):
    """Cosines of one vector each, and class probabilities made of the "logits" that came with the vectors.

    `link` says what the logits are: "softmax" scores of exclusive classes, "linear" guesses at the labels themselves,
    None where nothing predicts labels.
    """

    def __init__(self, *, link: str | None = None, classes: int | None = None):
        super().__init__()
        self.link = link
        self.classes = classes  # of the data; there may be one more that only the noise knows

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        return unit(images.single) @ unit(texts.single).T

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return (unit(images.single) * unit(texts.single)).sum(-1)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The unit vectors themselves: the proposal is exact."""
        return unit(embedding.vectors)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """One number a pair."""
        return 4

    def predict(self, embedding: Embedding, side: str) -> Tensor | None:
        """(N, classes) probabilities."""
        if self.link is None:
            return None
        logits = embedding.extra["logits"].float()
        probabilities = logits.softmax(-1) if self.link == "softmax" else logits.clamp(0, 1)
        return probabilities[:, : self.classes]


class Classified(Matcher):
    """A matcher whose embeddings also carry "logits": what one head, shared by the sides, makes of their vectors.

    `common` is what else the sides share, between their encoders and the head. `space` is what is compared: the
    "embedding", the "logits", or the class "probability" (semantic matching).
    """

    def __init__(
        self,
        encoders: dict[str, nn.Module],
        similarity: Similarity,
        head: nn.Module,
        *,
        common: nn.Module | None = None,
        space: str = "embedding",
    ):
        super().__init__(encoders, similarity)
        self.head = head
        self.common = common
        self.space = space

    def embed(self, side: str, items: Items) -> Embeddings:
        """Vectors with logits."""
        embedding = super().embed(side, items)
        assert isinstance(embedding, Embedding)
        vectors = embedding.vectors if self.common is None else self.common(embedding.vectors)
        logits = self.head(vectors[:, 0])
        if self.space != "embedding":
            vectors = (logits if self.space == "logits" else logits.softmax(-1))[:, None]
        return replace(embedding, vectors=vectors, extra={**embedding.extra, "logits": logits})


def encoders(sizes: Sizes, make: Callable[[int], nn.Module]) -> dict[str, nn.Module]:
    """One encoder a side, made for the length of its vectors."""
    return {side: make(width(sizes, side)) for side in (IMAGE, TEXT)}


def one_rate(matcher: Matcher, objective: Objective, *, rate: float, decay: float = 0.0) -> list[Group]:
    """All parameters as one group."""
    params = [*matcher.parameters(), *objective.parameters()]
    return [Group(name="all", params=params, lr=rate, weight_decay=decay)]


# ---- what objectives read ----


def labels_of(batch: Batch, side: str, classes: int | None = None) -> Tensor:
    """(N, classes) labels of one side's items, 0 or 1, with columns of 0 for classes that the data does not know."""
    labels = batch.sides[side].extra["label"].float()
    more = 0 if classes is None else classes - labels.shape[1]
    return torch.cat([labels, labels.new_zeros(len(labels), more)], 1) if more > 0 else labels


def both(embeddings: dict[str, Embedding]) -> list[tuple[str, Embedding]]:
    """The sides there are, in the usual order."""
    return [(side, embeddings[side]) for side in (IMAGE, TEXT) if side in embeddings]


def paired(embeddings: dict[str, Embedding], batch: Batch) -> tuple[Tensor, Tensor]:
    """(P, D) vectors of the labelled pairs: their pictures, their texts; a picture of several texts comes as often."""
    return (
        embeddings[IMAGE].single[batch.positive[:, 0]].float(),
        embeddings[TEXT].single[batch.positive[:, 1]].float(),
    )


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(N,) -log p of an item's class, the mean over its classes where it has several, 0 where it has none."""
    share = labels / labels.sum(1, keepdim=True).clamp(min=1)
    return -(share * logits.log_softmax(1)).sum(1)


def length(x: Tensor) -> Tensor:
    """(N,) Euclidean lengths of rows, with a gradient of 0 instead of NaN at exactly 0."""
    return x.square().sum(-1).clamp(min=TINY).sqrt()


def check_shares(**given: float) -> None:
    """One clear line for a number that is no share."""
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise BadInput(f"{name}={value}: {name} must be from 0 to 1")
