"""What a backbone is: one Module from pixels in 0..255 to a grid of vectors.

Ours are such classes; another package adds one under the entry point `matchlight.backbones` (see `matchlight.plugins`):

    class Stripes(Backbone):
        name, dim = "stripes", 3

        def __init__(self) -> None:
            super().__init__(mean=(127.5,) * 3, std=(127.5,) * 3)  # of pixels in 0..255

        def grid(self, pixels: Tensor) -> Tensor:
            return F.avg_pool2d(pixels, 16).flatten(2).transpose(1, 2)  # (N, cells, dim)

`backbone=stripes` then names it. A class that `takes` a name is made with what stands after the colon
(`backbone=timm:resnet50`). The class does its own normalising, and leaves out tokens that stand for no place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.backbones.attention_products import quick_attention
from matchlight.inputs.preprocessing import Frame, Preprocessing, Size, as_size

Runtime = Literal[
    "auto", "torch", "torch-bf16", "onnx", "onnx-int8"
]  # what computes a frozen backbone: features/runtimes.py


class Backbone(nn.Module):
    """Pixels (N, 3, H, W) in 0..255 -> (N, cells, dim)."""

    takes: ClassVar[str] = ""  # what stands after the colon of `backbone=timm:NAME`, in capitals; "": no colon
    rate_share: float = 1.0  # of the rate that a CNN is tuned with: what was trained longer bears smaller steps
    runtime: Runtime = "auto"
    precision: torch.dtype = torch.float32  # of its weights, where it is computed in less than all
    name: str  # as it was asked for: features are cached under it
    dim: int
    size: Size | None = None  # the size it was made for; None: any, chosen by the device

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.frozen_statistics = False
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels 0..255 (uint8 or float) as the network was trained to see them."""
        return (pixels.to(self.mean.dtype) - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) pixels in 0..255 -> (N, cells, dim)."""
        seen = self.normalise(pixels).to(self.precision)  # normalised in full: 8 bits of a mantissa are few
        with quick_attention(seen):
            return self.grid(seen.contiguous(memory_format=torch.channels_last))

    def grid(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) normalised pixels -> (N, cells, dim)."""
        raise NotImplementedError

    @property
    def pooled_dim(self) -> int:
        """Numbers of a picture's one vector."""
        return self.dim

    def pooled(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) pixels in 0..255 -> (N, pooled_dim)."""
        return self.pool(self(pixels))

    def pool(self, grid: Tensor) -> Tensor:
        """(N, cells, dim) -> (N, pooled_dim): the mean over the cells."""
        return grid.mean(1)

    def preprocessing(self, size: Size, frame: Frame = "whole") -> Preprocessing:
        """How a picture becomes pixels of this size: whole, its sides squashed."""
        return Preprocessing(size)

    def usual_size(self, device: torch.device) -> Size:
        """The picture size on this device where none is asked for: its own, or one that the device looks at fast."""
        return self.size or ((160, 160) if device.type == "cpu" else (224, 224))

    @classmethod
    def size_without_weights(cls, device: torch.device) -> Size | None:
        """`usual_size` where it is known before the weights are loaded, which spares loading them."""
        return None

    def cells(self, size: int | Size | None = None) -> int:
        """How many vectors a picture of this size gives."""
        height, width = as_size(size or self.size or 224)
        pixels = torch.zeros(1, 3, height, width, device=self.mean.device)
        with torch.inference_mode():
            return self(pixels).shape[1]

    def freeze_statistics(self) -> Backbone:
        """Batch norms keep their running statistics from now on, also after `train()`; returns itself."""
        self.frozen_statistics = True
        return self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """As in torch, save that frozen statistics stay frozen."""
        super().train(mode)
        if self.frozen_statistics:
            for layer in self.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    layer.eval()
        return self

    def for_inference(self) -> Backbone:
        """A copy that gives the same values and may be faster; it cannot be trained."""
        return deepcopy(self).eval().requires_grad_(False)

    def fingerprint(self) -> str:
        """A hash of the weights: features cached under another one are never mixed up with these."""
        return digest_of_weights(self, self.name)


_TO_COME = ContextVar("weights are loaded afterwards", default=False)


@contextmanager
def loaded_later() -> Iterator[None]:
    """Networks of our own made inside need no file: a run's own weights are loaded into them afterwards."""
    before = _TO_COME.set(True)
    try:
        yield
    finally:
        _TO_COME.reset(before)


def weights_to_come() -> bool:
    """Whether weights are loaded by whoever makes the network."""
    return _TO_COME.get()


def digest_of_weights(network: nn.Module, name: str) -> str:
    """A hash of a network's name and of all its weights."""
    digest = hashlib.sha256(name.encode())
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())  # any dtype's bytes
    return digest.hexdigest()


def known_runtime(name: str) -> Runtime:
    """A runtime by its name."""
    for known in get_args(Runtime):
        if name == known:
            return known
    raise BadInput(f"{name!r} is no runtime; known: {', '.join(get_args(Runtime))}")


def to_255(values: Iterable[float]) -> tuple[float, ...]:
    """Means and deviations are published for pixels in 0..1."""
    return tuple(255.0 * float(value) for value in values)


def first_line(error: BaseException) -> str:
    """The first line of an error, short enough to be part of one."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
