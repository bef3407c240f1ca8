"""Scores the plain way: a Python loop over captions, each met with all pictures at once, every attended vector formed.

This is how the papers' own programs work, so it is what `matchlight bench` measures against; nothing else uses it. The
loops read the settings and weights of the fast similarity they stand in for, so both compute the same scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import BadInput, Embedding, Similarity

EPS = 1e-8
Column = Callable[[Embedding, Tensor, int], Tensor]  # pictures, one caption's real words (L, D), its place -> (I,)


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


def scan(
    images: Embedding,
    words: Tensor,
    place: int,
    *,
    direction: str,
    temperature: float,
    norm: str,
    aggregate: str,
    sharpness: float,
) -> Tensor:
    """One caption's column of SCAN."""
    texts = words.expand(len(images), -1, -1)
    query, context = (texts, images.vectors) if direction == "t2i" else (images.vectors, texts)
    seen = weights(query, context, temperature=temperature, norm=norm) @ context
    return aggregated(cosine(query, seen), aggregate, sharpness)


def bfan(images: Embedding, words: Tensor, place: int, *, temperature: float, focus: str) -> Tensor:
    """One caption's column of BFAN: the mean cosine of the words, plus that of the regions."""
    texts = words.expand(len(images), -1, -1)
    total = images.vectors.new_zeros(len(images))
    for query, context in ((texts, images.vectors), (images.vectors, texts)):
        a = weights(query, context, temperature=temperature, norm="clipped_l2norm")
        total = total + cosine(query, focused(a, focus) @ context).mean(1)
    return total


def nodes(fast: Any, images: Embedding, words: Tensor, whole: Tensor) -> Tensor:
    """(I, L + 1, S) similarity vectors of one caption with every picture; `whole` (1, D) stands for the caption."""
    texts = words.expand(len(images), -1, -1)
    a = weights(texts, images.vectors, temperature=fast.temperature, norm="clipped_l2norm")
    local = fast.local((unit(a @ images.vectors) - texts).square())
    overall = fast.whole((images.extra["global"] - whole).square())
    return unit(torch.cat([overall, local], 1))


def reasoned(fast: Any, x: Tensor) -> Tensor:
    """(I, S): SGR's graph, all nodes at every step, then the first."""
    for step in fast.head.steps:
        edges = (step.query(x) @ step.key(x).transpose(1, 2)).softmax(-1)
        x = step.out(edges @ x).relu()
    return x[:, 0]


def filtered(fast: Any, x: Tensor) -> Tensor:
    """(I, S): SAF's weighted mean; in training the gate's BatchNorm sees this caption alone, as the authors' does."""
    norm = fast.head.norm
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


class Loop(Similarity):
    """The same scores as `fast`, one caption at a time. `name` and `arguments` are the method's."""

    def __init__(self, fast: Similarity, name: str, arguments: dict[str, Any]):
        super().__init__()
        self.fast = fast
        self.name = name
        self.arguments = arguments

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        count = texts.vectors.shape[1] * torch.ones(len(texts), dtype=torch.int64)
        lengths = (count if texts.mask is None else texts.mask.sum(1)).tolist()
        columns = [self.column(images, texts, k, length) for k, length in enumerate(lengths)]
        return torch.stack(columns, 1)

    def column(self, images: Embedding, texts: Embedding, k: int, length: int) -> Tensor:
        """(I,) scores of caption k."""
        words = texts.vectors[k, :length]
        if self.name in ("sgr", "saf"):
            x = nodes(self.fast, images, words, texts.extra["global"][k])
            pooled = (reasoned if self.name == "sgr" else filtered)(self.fast, x)
            return self.fast.judge(pooled).squeeze(-1).sigmoid()  # type: ignore[operator, no-any-return]
        given = {ours: self.arguments[theirs] for ours, theirs in NAMES[self.name].items()}
        return scan(images, words, k, **given) if self.name == "scan" else bfan(images, words, k, **given)


NAMES: dict[str, dict[str, str]] = {  # our loops' settings -> the recipes' arguments
    "scan": {
        "direction": "direction",
        "temperature": "temperature",
        "norm": "norm",
        "aggregate": "aggregate",
        "sharpness": "sharpness",
    },
    "bfan": {"temperature": "temperature", "focus": "focus"},
    "sgr": {},
    "saf": {},
}


def loop(fast: Similarity, name: str, arguments: dict[str, Any]) -> Loop:
    """The plain loop of a method that has one."""
    if name not in NAMES:
        raise BadInput(f"{name!r} has no plain loop to be measured against; {', '.join(NAMES)} have")
    return Loop(fast, name, arguments)
