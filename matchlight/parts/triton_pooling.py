"""The mean of the k largest values of each dimension in one pass over a set (Triton).

A value of 16 bits and its place make one whole number, in the order of the values: a program keeps the k largest of its
dimensions in registers, and no two are equal. Sorting or selecting row by row reads a set some ten times.

Only imported where Triton is and a GPU has the values.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 32  # dimensions a program takes: one a thread
LONGEST = 1 << 16  # places that fit beside a value


@triton.jit(do_not_specialize=["length", "dim"])
def keep_largest(
    x, real, mean, places, length, dim,
    K: tl.constexpr, KP: tl.constexpr, B: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One item, B dimensions: the mean of the K largest real values, and their places (-1: there are fewer)."""
    item = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * B + tl.arange(0, B)
    inside = d < dim
    k = tl.arange(0, KP)[:, None]
    lowest = -2147483648
    best = tl.where(k < K, lowest + k, 2147483647) + tl.zeros((KP, B), tl.int32)
    for place in range(0, length):
        row = item * length + place
        value = tl.load(x + row * dim + d, mask=inside, other=0.0)
        bits = value.to(tl.int16, bitcast=True).to(tl.int32)
        key = (tl.where(bits < 0, bits ^ 0x7FFF, bits) << 16) | (65535 - place)
        if MASKED:
            key = tl.where(tl.load(real + row) != 0, key, lowest)
        least = tl.min(best, 0)
        best = tl.where((best == least[None, :]) & (key > least)[None, :], key[None, :], best)
    used = (best >= lowest + KP) & (k < K)
    high = best >> 16
    values = tl.where(high < 0, high ^ 0x7FFF, high).to(tl.int16).to(x.dtype.element_ty, bitcast=True).to(tl.float32)
    count = tl.sum(used.to(tl.float32), 0)
    found = tl.sum(tl.where(used, values, 0.0), 0) / tl.maximum(count, 1.0)
    tl.store(mean + item * dim + d, found.to(mean.dtype.element_ty), mask=inside)
    spot = places + (item * K + k) * dim + d[None, :]
    tl.store(spot, tl.where(used, 65535 - (best & 0xFFFF), -1), mask=(k < K) & inside[None, :])


@triton.jit(do_not_specialize=["length", "dim"])
def hand_back(grad, places, out, length, dim, K: tl.constexpr, KP: tl.constexpr, B: tl.constexpr):
    """Gradients of the means at the places of the values; `out` holds zeros."""
    item = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * B + tl.arange(0, B)
    inside = d < dim
    k = tl.arange(0, KP)[:, None]
    place = tl.load(places + (item * K + k) * dim + d[None, :], mask=(k < K) & inside[None, :], other=-1)
    used = place >= 0
    count = tl.maximum(tl.sum(used.to(tl.float32), 0), 1.0)
    share = tl.load(grad + item * dim + d, mask=inside, other=0.0).to(tl.float32) / count
    spot = out + (item * length + place) * dim + d[None, :]
    tl.store(spot, tl.broadcast_to(share[None, :], (KP, B)).to(out.dtype.element_ty), mask=used)


class _MeanOfLargest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None, k: int) -> Tensor:  # type: ignore[override]
        x = x.contiguous()
        items, length, dim = x.shape
        mean, places = x.new_empty(items, dim), x.new_empty((items, k, dim), dtype=torch.int32)
        real = x if mask is None else mask.contiguous().view(torch.uint8)
        sizes = {"K": k, "KP": triton.next_power_of_2(k), "B": LANES, "num_warps": 1}
        grid = (items, triton.cdiv(dim, LANES))
        keep_largest[grid](x, real, mean, places, length, dim, MASKED=mask is not None, **sizes)
        ctx.save_for_backward(places)
        ctx.length, ctx.sizes, ctx.grid = length, sizes, grid
        return mean

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        grad = grads[0].contiguous()
        out = grad.new_zeros(len(grad), ctx.length, grad.shape[1])
        hand_back[ctx.grid](grad, places, out, ctx.length, grad.shape[1], **ctx.sizes)
        return out, None, None


def fits(x: Tensor, k: int) -> bool:
    """Whether these values can be read so: 16 bits each, and few are kept."""
    return x.dtype in (torch.bfloat16, torch.float16) and x.shape[1] < LONGEST and 0 < k <= 16 and x.numel() > 0


def mean_of_largest(x: Tensor, mask: Tensor | None, *, k: int) -> Tensor:
    """(N, L, D) -> (N, D): the mean of each dimension's k largest real values, of all of them where there are fewer."""
    found: Tensor = _MeanOfLargest.apply(x, mask, k)
    return found
