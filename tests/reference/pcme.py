"""PCME the plain way: a loop over captions and over pairs of draws, in the formulas of the paper."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def distances(images: Tensor, text: Tensor) -> Tensor:
    """(I, J, D) pictures and one caption (J, D) -> (I, J * J), every difference written out."""
    apart = images[:, :, None] - text[None, None]
    return (apart.square().sum(-1) + 1e-6).sqrt().flatten(1)


def logits(images: Tensor, text: Tensor, a: float, b: float) -> Tensor:
    return -a * distances(images, text) + b


def probabilities(images: Tensor, texts: Tensor, a: float, b: float) -> Tensor:
    """(I, T): e^l / (e^l + e^-l), averaged over the pairs of draws."""
    columns = []
    for text in texts:
        value = logits(images, text, a, b)
        columns.append((value.exp() / (value.exp() + (-value).exp())).mean(1))
    return torch.stack(columns, 1)


def dots(images: Tensor, texts: Tensor) -> Tensor:
    """(I, T): the sum of all J x J products of draws."""
    columns = [sum((images * draw).sum(-1).sum(1) for draw in text) for text in texts]
    return torch.stack([torch.as_tensor(column) for column in columns], 1)


def nll(value: Tensor, matched: int) -> Tensor:
    """(N, J * J) logits -> (N,): log J^2 - logsumexp(m l - logsumexp(l, -l))."""
    norm = torch.stack([value, -value]).logsumexp(0)
    return math.log(value.shape[1]) - (matched * value - norm).logsumexp(1)


def loss(images: Tensor, texts: Tensor, a: float, b: float) -> Tensor:
    """Every picture with every caption, the n-th of each a pair; both directions, which are the same number."""
    total = torch.zeros((), dtype=images.dtype)
    for i in range(len(images)):
        for t in range(len(texts)):
            total = total + nll(logits(images[i : i + 1], texts[t], a, b), 1 if i == t else -1).sum()
    return 2 * total


def kl(draws: Tensor, log_sigma: Tensor) -> Tensor:
    """Summed over items and dimensions, log sigma taken for a log-variance."""
    mean = draws.mean(1)
    return -0.5 * (1 + log_sigma - mean**2 - log_sigma.exp()).sum()


def uniformity(draws: Tensor) -> Tensor:
    """log of the mean over pairs i < j of exp(-2 d^2)."""
    n = len(draws)
    near = [torch.exp(-2 * (draws[i] - draws[j]).square().sum()) for i in range(n) for j in range(i + 1, n)]
    return torch.stack(near).mean().log()
