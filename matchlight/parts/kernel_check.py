"""Do the kernels for training give what plain tensors give? A small random case of each, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from matchlight.parts.triton_norm import normalised
from matchlight.parts.triton_pooling import mean_of_largest

FAR, EPS = -10000.0, 1e-5
Made = Callable[[Tensor], Tensor]


def differences(device: torch.device, kind: torch.dtype = torch.bfloat16) -> Iterator[tuple[str, float]]:
    """Each kernel by name with its largest relative difference in values and gradients."""
    draw = torch.Generator().manual_seed(0)
    mask = (torch.rand(6, 40, generator=draw) < 0.8).to(device)
    mask[:, 0] = True
    x = torch.randn(6, 40, 70, generator=draw).to(kind).to(device)
    for k in (3, 10):
        plain = _top_mean(mask, k)
        yield f"top {k}", _apart(x, lambda v, k=k: mean_of_largest(v, mask, k=k), plain)  # type: ignore[misc]
    gain, bias = torch.linspace(0.5, 1.5, 70, device=device), torch.linspace(-1, 1, 70, device=device)
    for name, real in (("norm", mask.flatten()), ("norm of all", None)):

        def by_kernel(v: Tensor, real: Tensor | None = real) -> Tensor:
            near = torch.zeros(70, device=device)
            return normalised(v.flatten(0, 1), real, gain, bias, near=near, eps=EPS)[0]

        def plainly(v: Tensor, real: Tensor | None = real) -> Tensor:
            rows = v.flatten(0, 1)
            some = rows if real is None else rows[real]
            return (rows - some.mean(0)) * torch.rsqrt(some.var(0, correction=0) + EPS) * gain + bias

        yield name, _apart(x, by_kernel, plainly)


def _top_mean(mask: Tensor, k: int) -> Made:
    def made(v: Tensor) -> Tensor:
        best = v.float().masked_fill(~mask[..., None], FAR).topk(k, dim=1).values
        return best.mean(1)

    return made


def _apart(x: Tensor, ours: Made, plain: Made) -> float:
    found = []
    for made, values in ((ours, x), (plain, x.float())):
        leaf = values.detach().clone().requires_grad_()
        out = made(leaf)
        weight = torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out)
        (out.float() * weight).sum().backward()
        assert leaf.grad is not None
        found.append((out.detach().float(), leaf.grad.float()))
    apart = [(a - b).abs().max() / b.abs().max() for a, b in zip(*found, strict=True)]
    return float(torch.stack(apart).max())
