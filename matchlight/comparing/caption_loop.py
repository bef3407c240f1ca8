"""Scores the plain way: a Python loop over captions, each met with all pictures at once, every attended vector formed.

This is how the papers' own programs work, so it is what `matchlight bench` measures against; nothing else uses it. The
loops read the settings and weights of the fast similarity they stand in for, so both compute the same scores.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import BadInput, Embedding, Similarity
from matchlight.methods.bfan import FocalAttention
from matchlight.methods.scan import StackedCrossAttention
from matchlight.methods.similarity_heads import Filter, GraphStep, Reason
from matchlight.methods.similarity_vectors import SimilarityVectors

EPS = 1e-8
Column = Callable[..., Tensor]
# (the fast similarity, all pictures, one caption's real words (L, D), its own vector (1, D) if it has one) -> (I,)


def unit(x: Tensor, dim: int = -1) -> Tensor:
    """x / (|x| + 1e-8)."""
    return x / (x.square().sum(dim, keepdim=True).sqrt() + EPS)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Along the last dimension, its denominator at least 1e-8."""
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp(min=EPS)


def weights(query: Tensor, context: Tensor, *, temperature: float, norm: str) -> Tensor:
    """(I, Q, M): how each of a query's vectors weighs those of what it looks at."""
    seen = query @ context.transpose(1, 2)
    if norm.startswith("clipped"):
        seen = F.leaky_relu(seen, 0.1)
    if norm.endswith("l2norm"):
        seen = unit(seen, 1)
    elif norm.endswith("l1norm"):
        seen = seen / (seen.abs().sum(1, keepdim=True) + EPS)
    elif norm == "softmax":
        seen = seen.softmax(1)
    return (temperature * seen).softmax(-1)


def focused(a: Tensor, focus: str) -> Tensor:
    """BFAN's gate: only weights that beat the others stay, and sum to 1 again."""
    if focus == "equal":
        gain = a.shape[-1] * a - a.sum(-1, keepdim=True)
    else:
        root = a.sqrt()
        gain = a * root.sum(-1, keepdim=True) - (a * root).sum(-1, keepdim=True)
    kept = a * (gain > 0)
    total = kept.sum(-1, keepdim=True)
    return kept / (total + (total == 0))


def aggregated(r: Tensor, how: str, sharpness: float) -> Tensor:
    """(I, Q) -> (I,)."""
    if how == "lse":
        return (sharpness * r).exp().sum(1).log() / sharpness
    return r.amax(1) if how == "max" else r.mean(1) if how == "mean" else r.sum(1)


def scan(fast: StackedCrossAttention, images: Embedding, words: Tensor, whole: Tensor | None) -> Tensor:
    """One caption's column of SCAN."""
    texts = words.expand(len(images), -1, -1)
    query, context = (texts, images.vectors) if fast.directions == ("t2i",) else (images.vectors, texts)
    seen = weights(query, context, temperature=fast.temperature, norm=fast.norm) @ context
    return aggregated(cosine(query, seen), fast.aggregate, fast.sharpness)


def bfan(fast: FocalAttention, images: Embedding, words: Tensor, whole: Tensor | None) -> Tensor:
    """One caption's column of BFAN: the mean cosine of the words, plus that of the regions."""
    texts = words.expand(len(images), -1, -1)
    total = images.vectors.new_zeros(len(images))
    for query, context in ((texts, images.vectors), (images.vectors, texts)):
        a = weights(query, context, temperature=fast.temperature, norm="clipped_l2norm")
        total = total + cosine(query, focused(a, fast.focal) @ context).mean(1)
    return total


def nodes(fast: SimilarityVectors, images: Embedding, words: Tensor, whole: Tensor) -> Tensor:
    """(I, L + 1, S) similarity vectors of one caption with every picture; `whole` (1, D) stands for the caption."""
    texts = words.expand(len(images), -1, -1)
    a = weights(texts, images.vectors, temperature=fast.temperature, norm="clipped_l2norm")
    local = fast.local((unit(a @ images.vectors) - texts).square())
    overall = fast.whole((images.extra["global"] - whole).square())
    return unit(torch.cat([overall, local], 1))


def reasoned(fast: SimilarityVectors, x: Tensor) -> Tensor:
    """(I, S): SGR's graph, all nodes at every step, then the first."""
    assert isinstance(fast.head, Reason)
    for step in fast.head.steps:
        assert isinstance(step, GraphStep)
        edges = (step.query(x) @ step.key(x).transpose(1, 2)).softmax(-1)
        x = step.out(edges @ x).relu()
    return x[:, 0]


def filtered(fast: SimilarityVectors, x: Tensor) -> Tensor:
    """(I, S): SAF's weighted mean; in training the gate's BatchNorm sees this caption alone, as the authors' does."""
    assert isinstance(fast.head, Filter)
    norm = fast.head.norm
    assert norm.momentum is not None
    level = F.batch_norm(
        fast.head.gate(x).transpose(1, 2),
        norm.running_mean,
        norm.running_var,
        norm.weight,
        norm.bias,
        fast.training,
        norm.momentum,
        norm.eps,
    )
    gate = level.sigmoid()
    return unit((gate / (gate.sum(-1, keepdim=True) + EPS)) @ x).squeeze(1)


def sgr(fast: SimilarityVectors, images: Embedding, words: Tensor, whole: Tensor | None) -> Tensor:
    """One caption's column of SGR."""
    assert whole is not None
    return score_of(fast, reasoned(fast, nodes(fast, images, words, whole)))


def saf(fast: SimilarityVectors, images: Embedding, words: Tensor, whole: Tensor | None) -> Tensor:
    """One caption's column of SAF."""
    assert whole is not None
    return score_of(fast, filtered(fast, nodes(fast, images, words, whole)))


def score_of(fast: SimilarityVectors, pooled: Tensor) -> Tensor:
    """(I, S) -> (I,) in (0, 1)."""
    score: Tensor = fast.judge(pooled).squeeze(-1).sigmoid()
    return score


COLUMNS: dict[str, Column] = {"scan": scan, "bfan": bfan, "sgr": sgr, "saf": saf}


class CaptionLoop(Similarity):
    """The scores of `fast`, the similarity of the method of that name, one caption at a time."""

    def __init__(self, fast: Similarity, name: str):
        super().__init__()
        if name not in COLUMNS:
            raise BadInput(f"{name!r} has no plain loop to be measured against; {', '.join(COLUMNS)} have")
        self.fast = fast
        self.column = COLUMNS[name]

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        longest = texts.vectors.shape[1]
        lengths = [longest] * len(texts) if texts.mask is None else texts.mask.sum(1).tolist()
        wholes = texts.extra.get("global")
        columns = []
        for k, length in enumerate(lengths):
            whole = None if wholes is None else wholes[k]
            columns.append(self.column(self.fast, images, texts.vectors[k, :length], whole))
        return torch.stack(columns, 1)
