"""Maths shared by methods: unit length, masked means and softmaxes, pooling over sets, BatchNorm that knows masks."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.console import say
from matchlight.scoring.kernels.self_check import SWITCH

ROUNDING = 0.02  # of the largest value: what 16 bits may make of a gradient
FAR = -10000.0  # what a padded place holds before a sort or a softmax; real values must stay above it


def unit(x: Tensor, dim: int = -1, *, eps: float = 1e-8) -> Tensor:
    """x / (|x| + eps): eps is added to the norm, as the field's code does, not taken under the root."""
    return x / (x.norm(dim=dim, keepdim=True) + eps)


def masked_mean(x: Tensor, mask: Tensor | None, dim: int = 1) -> Tensor:
    """Mean of the real entries along `dim`; `mask` has the shape of x up to and including that dimension."""
    if mask is None:
        return x.mean(dim)
    weight = mask.to(x.dtype)
    while weight.dim() < x.dim():
        weight = weight[..., None]
    return (x * weight).sum(dim) / weight.sum(dim).clamp(min=1)


def masked_softmax(x: Tensor, mask: Tensor | None, dim: int = -1) -> Tensor:
    """Softmax over the real entries; padded ones get exactly 0."""
    if mask is None:
        return x.softmax(dim)
    return x.masked_fill(~mask, FAR).softmax(dim) * mask


@cache
def has_kernels(device: int) -> bool:
    """Whether our kernels for training run on this GPU, and give what plain tensors give; looked at once."""
    if os.environ.get(SWITCH, "1") == "0" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from matchlight.parts.kernel_check import differences

        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cuda", enabled=False):
            found = list(differences(torch.device("cuda", device)))
        wrong = [f"{name} off by {apart:.2g}" for name, apart in found if not apart < ROUNDING]
    except Exception as problem:  # whatever a compiler or a driver thinks of
        wrong = [f"{type(problem).__name__}: {problem}"[:160]]
    if wrong:
        say(f"training goes on without kernels of its own ({'; '.join(wrong)})")
    return not wrong


def in_onnx_export() -> bool:
    """Whether a model is being written as ONNX; asked without loading PyTorch's exporter, which takes a while."""
    return "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()


def top_mean(x: Tensor, mask: Tensor | None, *, k: int) -> Tensor:
    """(N, K, D) -> (N, D): per dimension, the mean of its `k` largest real values (all of them if fewer)."""
    if x.is_cuda and has_kernels(x.device.index or 0):
        from matchlight.parts.triton_pooling import fits, mean_of_largest

        if fits(x, k):
            return mean_of_largest(x, mask, k=k)
    filled = x if mask is None else x.masked_fill(~mask[..., None], FAR)
    if mask is not None and in_onnx_export():  # a set of any size: ONNX cannot take fewer than k
        filled = F.pad(filled, (0, 0, 0, k), value=FAR)
    best = largest(filled, min(k, filled.shape[1]))
    if mask is None:
        return best.mean(1)
    have = mask.sum(1).clamp(min=1, max=best.shape[1])  # sets smaller than k average what they have
    real = torch.arange(best.shape[1], device=x.device)[None] < have[:, None]
    return masked_mean(best, real)


def largest(x: Tensor, k: int) -> Tensor:
    """(N, K, D) -> (N, k, D): per dimension, the k largest values, the largest first."""
    if not x.is_cuda or k > 8:
        return x.topk(k, dim=1).values
    with torch.no_grad():  # a few rounds of max cost a GPU a fraction of topk along a short axis
        left, largest = x.clone(), []
        for _ in range(k):
            largest.append(left.max(1, keepdim=True).indices)
            left.scatter_(1, largest[-1], -torch.inf)
    return x.gather(1, torch.cat(largest, 1))


def glorot(layer: nn.Linear) -> nn.Linear:
    """Weights uniform within sqrt(6 / (in + out)), bias 0: how the field starts its projections."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm over the last dimension of (N, D) or (N, K, D): padding does not count, all processes do.

    The weights are those of nn.BatchNorm1d. `count_padding` counts padded rows as the old code does.
    """

    def __init__(self, features: int, *, count_padding: bool = False, affine: bool = True):
        super().__init__(features, affine=affine)
        self.count_padding = count_padding

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Normalised x, same shape."""
        rows = x.flatten(0, -2)
        if self.count_padding:
            mask = None
        alone = mask is None and devices.world() == 1 and len(rows) > 1  # torch refuses the statistics of one row
        if not self.training or alone:
            return super().forward(rows).view_as(x)
        real = None if mask is None else mask.flatten()
        if rows.is_cuda and self.affine and devices.world() == 1 and has_kernels(rows.device.index or 0):
            return self._in_passes(rows, real).view_as(x)
        return self._shared(rows.float(), real).to(x.dtype).view_as(x)

    def _in_passes(self, rows: Tensor, mask: Tensor | None) -> Tensor:
        """The same by kernels of our own, on one GPU."""
        from matchlight.parts.triton_norm import normalised

        assert self.running_mean is not None
        near = self.running_mean.clone()
        out, mean, variance, count = normalised(rows, mask, self.weight, self.bias, near=near, eps=self.eps)
        self._remember(mean, variance * count / (count - 1).clamp(min=1))
        return out

    def _shared(self, rows: Tensor, mask: Tensor | None) -> Tensor:
        weight = rows.new_ones(len(rows), 1) if mask is None else mask[:, None].to(rows.dtype)
        count = devices.total(weight.sum()).clamp(min=1)
        mean = devices.total((rows * weight).sum(0)) / count
        variance = devices.total(((rows - mean).square() * weight).sum(0)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        normal = (rows - mean) * torch.rsqrt(variance + self.eps)
        return normal * self.weight + self.bias if self.affine else normal

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)


@cache
def _positions(count: int, dim: int) -> Tensor:
    place = torch.arange(count, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * -(math.log(10000.0) / dim))
    table = torch.zeros(count, dim)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos(place * rate)
    return table


class GeneralizedPooling(nn.Module):
    """GPO: sort each dimension over the set, then average with learned weights that depend on the set's size alone."""

    def __init__(self, *, code: int = 32, hidden: int = 32, temperature: float = 0.1):
        super().__init__()
        self.code = code
        self.temperature = temperature
        self.gru = nn.GRU(code, hidden, 1, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)

    @torch.no_grad()
    def settle(self) -> None:
        """Begin as the mean: every place weighs the same until training says otherwise."""
        self.linear.weight.zero_()

    def weights(self, sizes: Tensor, longest: int) -> Tensor:
        """(N, longest) weights of the sorted places for sets of these sizes (on the CPU); each row sums to 1."""
        kinds, which = sizes.unique(return_inverse=True)  # a weight row depends on the size only: run each size once
        device = self.linear.weight.device
        codes = _positions(longest, self.code).to(device).expand(len(kinds), -1, -1)
        packed = nn.utils.rnn.pack_padded_sequence(codes, kinds.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=longest)
        ahead, back = states.chunk(2, -1)
        score = self.linear((ahead + back) / 2).squeeze(-1)
        real = torch.arange(longest)[None] < kinds[:, None].cpu()
        theta = (score.masked_fill(~real.to(device), FAR) / self.temperature).softmax(-1)
        return theta[which.to(device)]

    def forward(self, x: Tensor, mask: Tensor | None, sizes: Tensor | None = None) -> Tensor:
        """(N, K, D) -> (N, D); `sizes` on the CPU spares a wait for the device."""
        if mask is None:
            theta = self.weights(torch.tensor([x.shape[1]]), x.shape[1])
            return torch.einsum("k,nkd->nd", theta[0].to(x.dtype), x.sort(dim=1, descending=True).values)
        real = mask[..., None]
        ordered = x.masked_fill(~real, FAR).sort(dim=1, descending=True).values
        count = mask.sum(1) if sizes is None else sizes
        theta = self.weights(count.cpu(), x.shape[1])
        within = torch.arange(x.shape[1], device=x.device)[None] < count.to(x.device)[:, None]
        return torch.einsum("nk,nkd->nd", theta.to(x.dtype), ordered * within[..., None])


class TopMean(nn.Module):
    """Average the `k` largest values of each dimension: pooling with nothing to learn, called as GPO is."""

    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def settle(self) -> None:
        """Nothing to learn, nothing to begin with."""

    def forward(self, x: Tensor, mask: Tensor | None, sizes: Tensor | None = None) -> Tensor:
        """(N, K, D) -> (N, D)."""
        return top_mean(x, mask, k=self.k)


def pooling_by(name: str, *, top: int) -> GeneralizedPooling | TopMean:
    """Sets to vectors: `gpo`, or the mean of the `top` largest values."""
    return GeneralizedPooling() if name == "gpo" else TopMean(top)


class Residual(nn.Module):
    """Linear projection plus a two-layer MLP of the raw input: how regions enter VSE-infinity and its heirs."""

    def __init__(self, inside: int, outside: int, *, hidden: int, norm: bool = True):
        super().__init__()
        self.fc = glorot(nn.Linear(inside, outside))
        self.first = nn.Linear(inside, hidden)
        self.norm = BatchNorm(hidden) if norm else None
        self.second = nn.Linear(hidden, outside)

    @torch.no_grad()
    def settle(self) -> None:
        """Begin as the projection alone: the MLP adds nothing until training says otherwise."""
        self.second.weight.zero_()
        self.second.bias.zero_()

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) -> (N, K, outside)."""
        inner = self.first(x)
        inner = inner if self.norm is None else self.norm(inner, mask)
        return self.fc(x) + self.second(F.relu(inner))
