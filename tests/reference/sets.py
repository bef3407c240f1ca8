"""Random sets of unit vectors: pictures with all their regions, captions of unequal length with zeros behind them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import Embedding


def words_mask(captions: int, longest: int) -> Tensor:
    """(T, longest): the first caption is the longest, the others have all lengths in turn, down to one word."""
    lengths = [longest - (3 if longest % 3 else 2) * t % longest for t in range(captions)]
    return torch.arange(longest)[None] < torch.tensor(lengths)[:, None]


def sets(
    pictures: int,
    captions: int,
    *,
    regions: int,
    dim: int,
    longest: int = 7,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Embedding, Embedding, list[int]]:
    """Pictures, captions, and the captions' lengths."""
    draw = torch.Generator().manual_seed(seed)
    mask = words_mask(captions, longest)
    seen = F.normalize(torch.randn(pictures, regions, dim, generator=draw, dtype=torch.float64), dim=-1)
    said = F.normalize(torch.randn(captions, longest, dim, generator=draw, dtype=torch.float64), dim=-1)
    texts = Embedding((said * mask[..., None]).to(dtype), mask)
    return Embedding(seen.to(dtype)), texts, mask.sum(1).tolist()


def gradients(score: Tensor, *leaves: Tensor) -> list[Tensor]:
    """Gradients of a sum of scores, each counted differently."""
    weight = torch.linspace(0.5, 1.5, score.numel(), dtype=score.dtype).view_as(score)
    return list(torch.autograd.grad((score * weight).sum(), leaves))
