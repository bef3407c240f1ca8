"""Storages and the tensors that look into them: every number a tensor shows must lie in its storage."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from matchlight.training.foreign.machine import SLACK, Refused

MOST_AXES = 64


@dataclass(frozen=True)
class Storage:
    """A run of numbers of one kind: `length` of them from `start` on in the flat tensor."""

    flat: Tensor
    raw: bytearray  # the memory of `flat`, so that it can be filled after tensors look into it
    start: int
    length: int
    most: int  # bytes that one tensor may show, however often it repeats its numbers

    @property
    def kind(self) -> torch.dtype:
        """The kind of number."""
        return self.flat.dtype

    def part(self, start: int, length: int) -> Storage:
        """A run inside this one (PyTorch before 0.4 wrote such views)."""
        if not (whole(start) and whole(length) and start + length <= self.length):
            raise Refused("is damaged: a part of a storage reaches beyond it")
        return Storage(self.flat, self.raw, self.start + start, length, self.most)


def whole(number: object) -> TypeGuard[int]:
    """Whether this is a count or place that fits 63 bits."""
    return type(number) is int and 0 <= number < 1 << 63


def storage(raw: bytearray, kind: torch.dtype, *, size: int) -> Storage:
    """A storage over this memory, of a file of `size` bytes."""
    flat = torch.frombuffer(raw, dtype=kind) if raw else torch.empty(0, dtype=kind)
    return Storage(flat, raw, 0, len(flat), max(size, SLACK))


def to_native(raw: bytearray, kind: torch.dtype, order: str = "little") -> None:
    """Turn the bytes of a file into this machine's, in place; truth values become 0 or 1."""
    held = np.frombuffer(raw, np.uint8) if raw else np.empty(0, np.uint8)
    width = kind.itemsize // (2 if kind.is_complex else 1)
    if order != sys.byteorder and width > 1:
        held[:] = held.reshape(-1, width)[:, ::-1].ravel()
    if kind is torch.bool:
        held[:] = held != 0


def view(held: object, offset: object, size: object, stride: object) -> Tensor:
    """The tensor of this shape inside a storage, sharing its memory."""
    if not isinstance(held, Storage) or not isinstance(size, (tuple, list)) or not isinstance(stride, (tuple, list)):
        raise TypeError("a tensor without a storage or a shape")
    if not whole(offset) or not all(map(whole, (*size, *stride))) or len(size) != len(stride) or len(size) > MOST_AXES:
        raise Refused("is damaged: a tensor's shape makes no sense")
    beyond = offset if 0 in size else offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if beyond > held.length:
        raise Refused("is damaged: a tensor reaches beyond its storage")
    if math.prod(size) * held.kind.itemsize > held.most:
        raise Refused("holds a tensor that repeats its numbers more often than the file is long")
    return held.flat.as_strided(tuple(size), tuple(stride), held.start + offset)
