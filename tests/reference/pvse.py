"""PVSE the plain way: a loop over captions, items one by one, every formula written out."""

from __future__ import annotations

import torch
from torch import Tensor


def scores(images: Tensor, texts: Tensor) -> Tensor:
    """(I, K, D), (T, K, D) -> (I, T): for each caption in turn, the best of the K x K cosines with every picture."""
    columns = []
    for text in texts:
        each = torch.stack(
            [torch.stack([(images[:, k] * vector).sum(-1) for vector in text]) for k in range(text.shape[0])]
        )
        columns.append(each.flatten(0, 1).max(0).values)
    return torch.stack(columns, 1)


def attend(x: Tensor, first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """(N, R, D) -> (N, R, K) weights of local attention, item by item and only over what is real."""
    out = torch.zeros(*x.shape[:2], len(second))
    for n in range(len(x)):
        real = x[n][mask[n]]
        raw = torch.tanh(real @ first.T) @ second.T
        out[n, mask[n]] = torch.exp(raw) / torch.exp(raw).sum(0)
    return out


def diversity(residuals: Tensor) -> Tensor:
    """Mean over items of |off-diagonal Gram matrix of the unit residuals| / K^2."""
    values = []
    for r in residuals:
        r = r / r.norm(dim=1, keepdim=True)
        gram = r @ r.T
        k = len(r)
        off = sum(gram[a, b] ** 2 for a in range(k) for b in range(k) if a != b)
        values.append(torch.as_tensor(off).sqrt() / k**2)
    return torch.stack(values).mean()


def mmd(x: Tensor, y: Tensor) -> Tensor:
    """mean k(x, x) - 2 k(x, y) + k(y, y) with k = exp(-|x - y| / 2), differences written out."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-0.5 * (a[:, None] - b[None]).norm(dim=-1))

    return (kernel(x, x) - 2 * kernel(x, y) + kernel(y, y)).mean()
