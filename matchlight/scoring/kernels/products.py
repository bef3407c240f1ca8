"""The one product nothing spares: all words with all regions, in blocks under a byte budget, as precise as asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from matchlight.scoring.kernels.packed import Packed, blocks

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}
FEWEST = 32  # pictures a block holds where it can: fewer make thin products


@contextmanager
def matrix_units(*, tf32: bool) -> Iterator[None]:
    """float32 products by TF32 matrix units, or without; what was set before comes back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def as_operand(x: Tensor, precision: str) -> Tensor:
    """What a product of this precision reads. For unit vectors fp16 is as fine as TF32, at twice the rate."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
    return x.to(HALVES.get(precision, torch.float32)).contiguous()


def product(words: Tensor, regions: Tensor, precision: str) -> Tensor:
    """(W, N) products of two operands, summed and written in float32 where the device can."""
    if precision not in HALVES:
        with matrix_units(tf32=precision == "tf32"):
            return words @ regions.T
    if words.device.type == "cuda":
        try:
            return torch.mm(words, regions.T, out_dtype=torch.float32)  # type: ignore[call-overload, no-any-return]
        except torch.cuda.OutOfMemoryError:
            raise
        except (TypeError, RuntimeError):  # an older PyTorch: sums are float32 inside, the result is rounded once
            return words @ regions.T
    return words.float() @ regions.float().T


def grams(sets: Tensor) -> Tensor:
    """(N, K, K) inner products within each set, in full float32."""
    with matrix_units(tf32=False):
        return sets.float() @ sets.float().transpose(1, 2)


def plan(texts: Packed, *, pictures: int, regions: int, budget: int) -> Iterator[tuple[int, int, int]]:
    """(first caption, last caption, pictures at a time): all captions at once where a fair block of pictures fits."""
    room = max(1, budget // (4 * regions))  # (picture, word) places
    few = min(pictures, FEWEST)
    for first, last in blocks(texts.offsets, words=max(1, room // few)):
        here = int(texts.offsets[last] - texts.offsets[first])
        tall = max(1, min(pictures, room // max(1, here)))
        yield first, last, tall if tall < 8 else tall // 4 * 4  # rows of 36 x 4 numbers begin where wide loads may
