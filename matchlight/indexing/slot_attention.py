"""Which region of a picture, and which word of a caption, each slot of a set took."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from matchlight.core import Embedding, Matcher
from matchlight.methods.slots import SetPrediction


def keep_slot_attention(matcher: Matcher) -> None:
    """From now on, set prediction modules say which region each slot took."""
    for module in matcher.modules():
        if isinstance(module, SetPrediction):
            module.keep_attention = True


@contextmanager
def keeping_slot_attention(matcher: Matcher) -> Iterator[None]:
    """While it lasts, set prediction modules say which region each slot took."""
    modules = [module for module in matcher.modules() if isinstance(module, SetPrediction)]
    before = [module.keep_attention for module in modules]
    keep_slot_attention(matcher)
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.keep_attention = value


def slot_shares(embedding: Embedding) -> torch.Tensor | None:
    """(N, L, K) how the inputs were shared out among the slots in the last round, the mean of all heads."""
    seen = embedding.extra.get("attention")
    return None if seen is None or seen.dim() != 5 else seen[:, :, -1].mean(2)
