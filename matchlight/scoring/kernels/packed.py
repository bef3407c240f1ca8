"""Captions without their padding: all real words one below the other, and where each caption begins.

A matrix product of all regions with all words then does no work for padding. What follows it works on tiles that hold
whole captions, so captions are dealt into buckets by length: a bucket pads its tiles to one power of two, a caption
belongs to exactly one bucket, and results come back in the caller's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST, LARGEST = 16, 128  # words a tile's captions may have: matrix units want 16, registers end at 128


@dataclass(frozen=True)
class Packed:
    """Real words of T captions: caption t is rows offsets[t] to offsets[t + 1]."""

    words: Tensor  # (W, D)
    offsets: Tensor  # (T + 1,) int64, on the CPU

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """(T,) words a caption, on the CPU."""
        return self.offsets.diff()

    def block(self, first: int, last: int) -> Packed:
        """Captions first to last - 1."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        return Packed(self.words[begin:end], self.offsets[first : last + 1] - begin)

    def padded(self) -> tuple[Tensor, Tensor]:
        """(T, L, D) words with zeros behind them, and the (T, L) mask of what is real."""
        longest = int(self.lengths.max()) if len(self) else 0
        place = torch.arange(longest)[None]
        real = place < self.lengths[:, None]
        source = torch.where(real, self.offsets[:-1, None] + place, 0).to(self.words.device)
        mask = real.to(self.words.device)
        return self.words[source] * mask[..., None], mask


def pack(vectors: Tensor, mask: Tensor | None) -> Packed:
    """(T, L, D) padded captions -> packed ones; each caption's words must come before its padding."""
    count, longest = vectors.shape[:2]
    if mask is None:
        return Packed(vectors.flatten(0, 1), torch.arange(count + 1) * longest)
    offsets = torch.zeros(count + 1, dtype=torch.int64)
    offsets[1:] = mask.sum(1).cpu().cumsum(0)
    return Packed(vectors[mask], offsets)


def buckets(lengths: Tensor, smallest: int = SMALLEST) -> Iterator[tuple[int, Tensor]]:
    """(padded length, captions of it) for every power of two that some caption needs."""
    size, below = smallest, -1
    while below < int(lengths.max()):
        inside = ((lengths > below) & (lengths <= size)).nonzero().flatten()
        if len(inside):
            yield size, inside
        size, below = 2 * size, size


def same_length(lengths: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(length, captions of exactly it), shortest first; captions without a word are left out."""
    for length in lengths.unique().tolist():
        if length:
            yield length, (lengths == length).nonzero().flatten()


def blocks(offsets: Tensor, *, words: int, captions: int = 1 << 15) -> Iterator[tuple[int, int]]:
    """Runs of whole captions with at most so many words (one caption may have more) and captions."""
    first, total = 0, len(offsets) - 1
    while first < total:
        room = int(torch.searchsorted(offsets, offsets[first] + words, right=True)) - 1
        last = min(total, first + captions, max(first + 1, room))
        yield first, last
        first = last
