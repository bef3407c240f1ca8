"""SCAN, BFAN and IMRAM one caption at a time: every attended vector is formed and nothing is clever.

A caption is cut to its real words and met with all pictures at once; captions follow one another in a Python loop. The
fast code must agree with this file, and is timed against it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Memory = Callable[[Tensor, Tensor], Tensor]


def l2(x: Tensor, dim: int = -1) -> Tensor:
    return x / (x.pow(2).sum(dim, keepdim=True).sqrt() + 1e-8)


def l1(x: Tensor, dim: int = -1) -> Tensor:
    return x / (x.abs().sum(dim, keepdim=True) + 1e-8)


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "clipped_l2norm": lambda c: l2(F.leaky_relu(c, 0.1)),
    "l2norm": l2,
    "clipped_l1norm": lambda c: l1(F.leaky_relu(c, 0.1)),
    "l1norm": l1,
    "clipped": lambda c: F.leaky_relu(c, 0.1),
    "softmax": lambda c: c.softmax(-1),
    "no_norm": lambda c: c,
}


def cosine(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp(min=1e-8)


def attention(query: Tensor, context: Tensor, *, temperature: float, norm: str = "clipped_l2norm") -> Tensor:
    """(n, Q, M): how much each of the query's fragments looks at each of the context's."""
    seen = torch.bmm(context, query.transpose(1, 2))  # (n, M, Q)
    return (NORMS[norm](seen).transpose(1, 2).contiguous() * temperature).softmax(-1)


def attend(query: Tensor, context: Tensor, *, temperature: float, norm: str = "clipped_l2norm") -> Tensor:
    """(n, Q, D): the attended counterpart of each of the query's fragments."""
    return torch.bmm(attention(query, context, temperature=temperature, norm=norm), context)


def focal(query: Tensor, context: Tensor, *, temperature: float, kind: str) -> Tensor:
    """(n, Q, D): as `attend`, what gets less attention than its rivals left out; the double sum as the paper has it."""
    a = attention(query, context, temperature=temperature)
    if kind == "equal":
        advantage = a.shape[-1] * a - a.sum(-1, keepdim=True)
    else:
        advantage = ((a[..., :, None] - a[..., None, :]) * a.sqrt()[..., None, :]).sum(-1)
    kept = a * (advantage > 0)
    total = kept.sum(-1, keepdim=True)
    return torch.bmm(kept / (total + (total == 0)), context)


AGGREGATES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "lse": lambda r, sharp: (r * sharp).exp().sum(1).log() / sharp,
    "mean": lambda r, sharp: r.mean(1),
    "max": lambda r, sharp: r.amax(1),
    "sum": lambda r, sharp: r.sum(1),
}


def by_caption(images: Tensor, words: Tensor, lengths: list[int], score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(I, T): `score(pictures (I, R, D), one caption repeated (I, L, D))`, caption by caption."""
    columns = []
    for caption, length in zip(words, lengths, strict=True):
        columns.append(score(images, caption[:length].expand(len(images), -1, -1).contiguous()))
    return torch.stack(columns, 1)


def scan(
    images: Tensor,
    words: Tensor,
    lengths: list[int],
    *,
    direction: str = "t2i",
    aggregate: str = "lse",
    norm: str = "clipped_l2norm",
    temperature: float = 9.0,
    sharpness: float = 6.0,
) -> Tensor:
    """(I, T) scores of SCAN."""

    def one(pictures: Tensor, caption: Tensor) -> Tensor:
        query, context = (caption, pictures) if direction == "t2i" else (pictures, caption)
        found = attend(query, context, temperature=temperature, norm=norm)
        return AGGREGATES[aggregate](cosine(query, found), sharpness)

    return by_caption(images, words, lengths, one)


def bfan(images: Tensor, words: Tensor, lengths: list[int], *, kind: str, temperature: float = 20.0) -> Tensor:
    """(I, T) scores of BFAN."""

    def one(pictures: Tensor, caption: Tensor) -> Tensor:
        there = cosine(caption, focal(caption, pictures, temperature=temperature, kind=kind)).mean(1)
        back = cosine(pictures, focal(pictures, caption, temperature=temperature, kind=kind)).mean(1)
        return there + back

    return by_caption(images, words, lengths, one)


def remember(linear: tuple[Tensor, Tensor], gate: tuple[Tensor, Tensor], *, unit_length: bool) -> Memory:
    """The memory unit with these (weight, bias): both read the query and what it found, side by side."""

    def update(query: Tensor, found: Tensor) -> Tensor:
        both = torch.cat([query, found], -1)
        keep = F.linear(both, *gate).sigmoid()
        new = keep * query + (1 - keep) * F.linear(both, *linear).tanh()
        return l2(new) if unit_length else new

    return update


def imram(
    images: Tensor,
    words: Tensor,
    lengths: list[int],
    *,
    memories: dict[str, Memory],
    steps: int,
    temperature: float = 9.0,
) -> Tensor:
    """(I, T) scores of IMRAM; `memories` names the directions taken ("t2i", "i2t") with their memory units."""

    def one(pictures: Tensor, caption: Tensor) -> Tensor:
        total = pictures.new_zeros(len(pictures))
        for direction, update in memories.items():
            first, context = (caption, pictures) if direction == "t2i" else (pictures, caption)
            query = first
            for _ in range(steps):
                found = attend(query, context, temperature=temperature)
                total = total + cosine(first, found).mean(1)
                query = update(query, found)
        return total

    return by_caption(images, words, lengths, one)
