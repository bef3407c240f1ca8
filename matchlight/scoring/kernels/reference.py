"""What the kernels compute, in plain PyTorch: the fallback everywhere, and what their results are checked against.

Attention follows SCAN (arXiv:1803.08024): products of regions and words, clipped and normalised along the queries,
softmax along what they look at, optionally BFAN's gate (arXiv:1909.11416), then the cosine of each query with what it
saw. The attended vector c = sum a v is never formed: c . w = sum a s, and |c|^2 = a G a with G the Gram matrix of v.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.scoring.kernels.packed import Packed, blocks

NORMS = ("clipped_l2norm", "l2norm", "clipped", "no_norm")
AGGREGATES = ("mean", "sum", "max", "lse")
GATES = ("none", "equal", "prob")
TINY = 1e-8
NEVER = -1e30  # finite, so that a set of nothing but padding gives 0 and not NaN


@dataclass(frozen=True)
class AttentionSettings:
    """How attended scores are computed; a word that is none of a setting's choices is refused."""

    temperature: float
    direction: str = "t2i"  # "t2i": words look at regions; "i2t": regions at words
    norm: str = "clipped_l2norm"  # of the products, along the queries: see NORMS
    aggregate: str = "mean"  # of a query's cosines: see AGGREGATES
    lse: float = 6.0  # how sharp the aggregate "lse" is
    gate: str = "none"  # BFAN's: see GATES

    def __post_init__(self) -> None:
        known = {"direction": ("t2i", "i2t"), "norm": NORMS, "aggregate": AGGREGATES, "gate": GATES}
        for name, choices in known.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {' or '.join(choices)}, not {value!r}")


def attention(s: Tensor, context: Tensor, *, temperature: float, norm: str, gate: str = "none") -> Tensor:
    """(..., Q, M) products, 0 where a query is padding, and which of M are real -> (..., Q, M) weights."""
    x = F.leaky_relu(s, 0.1) if norm.startswith("clipped") else s
    if norm.endswith("l2norm"):
        x = x / (torch.linalg.vector_norm(x, dim=-2, keepdim=True) + TINY)
    a = (temperature * x).masked_fill(~context, NEVER).softmax(-1) * context
    return a if gate == "none" else gated(a, context, gate)


def gated(a: Tensor, context: Tensor, gate: str) -> Tensor:
    """Weights above the average (`equal`) or above the average weighted by their roots (`prob`), summing to 1 again."""
    if gate == "equal":
        keep = a * context.sum(-1, keepdim=True) > a.sum(-1, keepdim=True)
    else:
        root = a.sqrt()
        keep = a * root.sum(-1, keepdim=True) > (a * root).sum(-1, keepdim=True)
    kept = a * keep
    total = kept.sum(-1, keepdim=True)
    return kept / torch.where(total > 0, total, 1.0)


def aggregate_over(values: Tensor, real: Tensor, how: str, lse: float) -> Tensor:
    """(..., Q) -> (...): one number from the real queries' cosines."""
    if how == "max":
        return values.masked_fill(~real, NEVER).amax(-1)
    if how == "lse":
        return (lse * values).masked_fill(~real, NEVER).logsumexp(-1) / lse
    total = (values * real).sum(-1)
    return total if how == "sum" else total / real.sum(-1).clamp(min=1)


def cosines(s: Tensor, a: Tensor, gram: Tensor, size: Tensor) -> Tensor:
    """(..., Q) cosines of queries of this size with what they saw; `gram` (..., M, M) of what could be seen."""
    square = ((a @ gram) * a).sum(-1).clamp(min=0)
    return (a * s).sum(-1) / (square.sqrt() * size).clamp(min=TINY)


def attended_scores(
    regions: Tensor,
    region_mask: Tensor | None,
    texts: Packed,
    settings: AttentionSettings,
    *,
    precision: str = "fp32",
    budget: int = 256 << 20,
) -> Tensor:
    """(I, T) float32 scores; the arguments of `kernels.attended_scores`, of which `precision` changes nothing here."""
    texts = Packed(texts.words.float(), texts.offsets)
    regions = regions.float()
    real = regions.new_ones(regions.shape[:2], dtype=torch.bool) if region_mask is None else region_mask
    out = regions.new_empty(len(regions), len(texts))
    cost = 24 * regions.shape[1]  # bytes a picture's regions and one word need: a handful of tensors at once
    tall = max(1, min(len(regions), 64))
    for first, last in blocks(texts.offsets, words=max(1, budget // (cost * tall))):
        part, mask = texts.block(first, last).padded()
        for i in range(0, len(regions), tall):
            some = slice(i, i + tall)
            out[some, first:last] = _block(regions[some], real[some], part, mask, settings)
    return out


def _block(
    regions: Tensor, region_real: Tensor, words: Tensor, word_real: Tensor, settings: AttentionSettings
) -> Tensor:
    """(I, T): words look at regions (t2i), or regions at words (i2t)."""
    s = torch.einsum("ird,twd->itrw", regions * region_real[..., None], words)
    if settings.direction == "t2i":
        s, seen, seen_real = s.transpose(2, 3), regions[:, None], region_real[:, None]
        asking, asking_real = words[None], word_real[None]
    else:
        seen, seen_real = words[None], word_real[None]
        asking, asking_real = regions[:, None], region_real[:, None]
    a = attention(s, seen_real[..., None, :], temperature=settings.temperature, norm=settings.norm, gate=settings.gate)
    cos = cosines(s, a, seen @ seen.transpose(-1, -2), asking.norm(dim=-1))
    return aggregate_over(cos, asking_real.expand_as(cos), settings.aggregate, settings.lse)
