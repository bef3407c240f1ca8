"""BatchNorm over the real rows of a batch in four passes, with its gradients (Triton).

Written with tensors, each step of it is a pass in float32: twenty of them over all cells of all pictures. Sums over
rows are taken in chunks of rows that never change, so a batch gives the same numbers each time.

Only imported where Triton is and a GPU has the values.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, CHUNK, LANES = 32, 256, 64  # rows at a time, rows of a program, dimensions of a program


@triton.jit(do_not_specialize=["rows", "dim"])
def sums(
    x, other, real, shift, scale, out, rows, dim,
    R: tl.constexpr, CHUNK: tl.constexpr, B: tl.constexpr, WEIGHTED: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """Of one chunk: the sums of x and of x * (other - shift) * scale (PRODUCT), or of x - shift and its square."""
    chunk = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * B + tl.arange(0, B)
    inside = d < dim
    move = tl.load(shift + d, mask=inside, other=0.0)
    factor = tl.load(scale + d, mask=inside, other=0.0) if PRODUCT else move
    first, second = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for start in range(0, CHUNK, R):
        row = chunk * CHUNK + start + tl.arange(0, R)
        there = (row < rows)[:, None] & inside[None, :]
        spot = row[:, None] * dim + d[None, :]
        value = tl.load(x + spot, mask=there, other=0.0).to(tl.float32)
        if PRODUCT:
            seen = tl.load(other + spot, mask=there, other=0.0).to(tl.float32)
            first += tl.sum(value, 0)
            second += tl.sum(value * tl.where(there, (seen - move[None, :]) * factor[None, :], 0.0), 0)
        else:
            weight = there
            if WEIGHTED:
                weight = there & (tl.load(real + row, mask=row < rows, other=0) != 0)[:, None]
            moved = tl.where(weight, value - move[None, :], 0.0)
            first += tl.sum(moved, 0)
            second += tl.sum(moved * moved, 0)
    place = out + chunk * 2 * dim + d
    tl.store(place, first, mask=inside)
    tl.store(place + dim, second, mask=inside)


@triton.jit(do_not_specialize=["rows", "dim"])
def apply(
    x, grad, real, mean, scale, gain, bias, gamma, out, rows, dim,
    R: tl.constexpr, B: tl.constexpr, WEIGHTED: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """(x - mean) * scale * gain + bias; BACK: its gradient, `gain` and `bias` being the two sums over the count."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    d = tl.program_id(1) * B + tl.arange(0, B)
    inside = d < dim
    there = (row < rows)[:, None] & inside[None, :]
    spot = row[:, None] * dim + d[None, :]
    m, s = tl.load(mean + d, mask=inside, other=0.0), tl.load(scale + d, mask=inside, other=0.0)
    a, b = tl.load(gain + d, mask=inside, other=0.0), tl.load(bias + d, mask=inside, other=0.0)
    normal = (tl.load(x + spot, mask=there, other=0.0).to(tl.float32) - m[None, :]) * s[None, :]
    if BACK:
        g = tl.load(gamma + d, mask=inside, other=0.0)
        felt = a[None, :] + normal * b[None, :]
        if WEIGHTED:
            felt = tl.where((tl.load(real + row, mask=row < rows, other=0) != 0)[:, None], felt, 0.0)
        value = (tl.load(grad + spot, mask=there, other=0.0).to(tl.float32) - felt) * (s * g)[None, :]
    else:
        value = normal * a[None, :] + b[None, :]
    tl.store(out + spot, value.to(out.dtype.element_ty), mask=there)


def _sums(x: Tensor, other: Tensor, real: Tensor, shift: Tensor, scale: Tensor, **how: bool) -> tuple[Tensor, Tensor]:
    rows, dim = x.shape
    out = torch.empty(triton.cdiv(rows, CHUNK), 2, dim, device=x.device)
    grid = (len(out), triton.cdiv(dim, LANES))
    sums[grid](x, other, real, shift, scale, out, rows, dim, R=ROWS, CHUNK=CHUNK, B=LANES, **how)
    first, second = out.sum(0)
    return first, second


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None, gain: Tensor, bias: Tensor, near: Tensor, eps: float):  # type: ignore[override] # noqa: ANN205
        x = x.contiguous()
        weighted = mask is not None
        real = x if mask is None else mask.contiguous().view(torch.uint8)
        first, second = _sums(x, x, real, near, near, WEIGHTED=weighted, PRODUCT=False)
        count = torch.full((), float(len(x)), device=x.device) if mask is None else mask.sum().clamp(min=1).float()
        mean, off = near + first / count, first / count
        variance = (second / count - off.square()).clamp(min=0)
        scale, out = torch.rsqrt(variance + eps), torch.empty_like(x)
        grid = (triton.cdiv(len(x), ROWS), triton.cdiv(x.shape[1], LANES))
        how = {"R": ROWS, "B": LANES, "WEIGHTED": False, "BACK": False}
        apply[grid](x, x, real, mean, scale, gain, bias, gain, out, *x.shape, **how)
        ctx.save_for_backward(x, real, mean, scale, gain, count)
        ctx.weighted, ctx.grid = weighted, grid
        ctx.mark_non_differentiable(mean, variance, count)
        return out, mean, variance, count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None, None]:
        x, real, mean, scale, gain, count = ctx.saved_tensors
        grad = grads[0].contiguous()
        felt, product = _sums(grad, x, real, mean, scale, WEIGHTED=False, PRODUCT=True)
        out = torch.empty_like(x)
        apply[ctx.grid](
            x, grad, real, mean, scale, felt / count, product / count, gain, out, *x.shape,
            R=ROWS, B=LANES, WEIGHTED=ctx.weighted, BACK=True,
        )  # fmt: skip
        return out, None, product, felt, None, None


def normalised(
    x: Tensor, mask: Tensor | None, gain: Tensor, bias: Tensor, *, near: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(N, D) normalised over its real rows, their mean, variance and number; `near` lies near the mean (rounding)."""
    found: tuple[Tensor, Tensor, Tensor, Tensor] = _Normalised.apply(x, mask, gain, bias, near, eps)
    return found
