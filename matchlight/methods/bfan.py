"""BFAN: words look at regions and regions at words, and whatever is less relevant than its rivals is not looked at.

Liu et al., ACM MM 2019, arXiv:1909.11416. Departs from the paper: captions of the same picture are never negatives
(`siblings="negatives"` counts them, as the repository does). From the code: a fragment to which everything is equally
relevant scores 0 instead of NaN, and the comparison with all rivals is one sum instead of a matrix of rivals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from matchlight.core import Embedding, Sizes
from matchlight.methods.scan import COCO, ROBUST, SMALL, AttentionArguments, read_encoders
from matchlight.parts.attention import CrossAttention, Meeting, attention, cosines
from matchlight.parts.layers import masked_mean
from matchlight.scoring import kernels
from matchlight.training.arguments import Count, Positive
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method


@torch.no_grad()
def relevant(weights: Tensor, mask: Tensor | None, *, focal: str) -> Tensor:
    """(N, M, K, Q) True where a context member gets more attention than its rivals; the gate has no gradient.

    `equal` compares with their mean. `prob` lets a rival count by the root of its own weight:
    sum_j (a_i - a_j) sqrt(a_j) > 0, which is a_i sum_j sqrt(a_j) > sum_j a_j^1.5.
    """
    if focal == "equal":
        count = weights.shape[1] if mask is None else mask.sum(1, keepdim=True)
        return count * weights > weights.sum(1, keepdim=True)
    root = weights.sqrt()
    return weights * root.sum(1, keepdim=True) > (weights * root).sum(1, keepdim=True)


class FocalAttention(CrossAttention):
    """Mean cosine of words with the regions they focus on, plus mean cosine of regions with the words they focus on."""

    def __init__(self, *, focal: str, temperature: float, precise: bool = False):
        super().__init__("t2i", "i2t")
        self.focal = focal
        self.temperature = temperature
        self.precise = precise  # outside training: the gate is a step, and rounding decides near it

    def fused(self) -> kernels.AttentionSettings | None:
        """In single precision."""
        return None if self.precise else kernels.AttentionSettings(self.temperature, gate=self.focal)

    def direction_scores(self, meeting: Meeting, direction: str) -> Tensor:
        """(N, K). The focused weights need not sum to 1 again: a cosine does not see their scale."""
        weights = attention(meeting, temperature=self.temperature)
        focused = weights * relevant(weights, meeting.context_mask, focal=self.focal)
        return masked_mean(cosines(meeting, focused), meeting.query_mask, 2)

    def _by_direction(self, images: Embedding, texts: Embedding, *, paired: bool) -> dict[str, Tensor]:
        if self.precise and not self.training:
            images, texts = (replace(side, vectors=side.vectors.double()) for side in (images, texts))
        return super()._by_direction(images, texts, paired=paired)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """As SCAN, twice as long in double precision, and the gate with its products."""
        return (3 if self.precise else 2) * super().cost(images, texts)


@dataclass(frozen=True, kw_only=True)
class BFAN(AttentionArguments):
    """BFAN with one kind of focus; the paper's best figures average the scores of an `equal` and a `prob` model."""

    focal: Literal["equal", "prob"] = "equal"
    temperature: Positive = 20.0
    precise: bool = False
    epochs: Count = 15

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        focus = partial(FocalAttention, focal=self.focal, temperature=self.temperature, precise=self.precise)
        return self.assemble(sizes, focus)


def read(file: Checkpoint) -> Foreign:
    """BFAN, and BFAN as AOQ trained it: only the options tell the kind of focus. They evaluate in double precision."""
    named, sizes, weights = read_encoders(file)
    named |= {
        "focal": file["opt"].get("focal_type", "equal"),
        "temperature": float(file["opt"].get("lambda_softmax", 20.0)),
        "precise": True,
    }
    return Foreign(named, sizes, weights)


METHODS = [
    Method(
        "bfan",
        BFAN,
        paper="Focus Your Attention: A Bidirectional Focal Attention Network for Image-Text Matching (ACM MM 2019)",
        needs=("pairs", "regions"),
        small={**SMALL, "batch": 64, "epochs": 8},
        robust=ROBUST,
        presets={"f30k": {}, "coco": {**COCO, "decay_every": 15}},
        reader=read,
    ),
]
