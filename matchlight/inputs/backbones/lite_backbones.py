"""lite0, lite1 and lite2: EfficientNet-Lite networks as backbones."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from matchlight.inputs.backbones import lite, lite_weights
from matchlight.inputs.backbones.base import Backbone, Size, as_size


class LiteBackbone(Backbone):
    """EfficientNet-Lite; any picture size, one cell for each 32 pixels begun."""

    dim = lite.DIM

    def __init__(self) -> None:
        super().__init__((127.0,) * 3, (128.0,) * 3)
        self.network = lite_weights.load(self.name).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @classmethod
    def size_without_weights(cls, device: torch.device) -> Size:
        """What it was trained with, on a CPU less."""
        return as_size(lite.usual_size(cls.name, device.type))

    def usual_size(self, device: torch.device) -> Size:
        """What it was trained with, on a CPU less."""
        return self.size or self.size_without_weights(device)

    def grid(self, pixels: Tensor) -> Tensor:
        """The map before the classifier, cell by cell, row after row."""
        return self.network(pixels).flatten(2).transpose(1, 2)

    def cells(self, size: int | Size | None = None) -> int:
        """One for each 32 x 32 pixels begun."""
        height, width = as_size(size or self.size or 224)
        return -(-height // lite.STRIDE) * -(-width // lite.STRIDE)

    def for_inference(self) -> Backbone:
        """A copy with batch norms folded into the convolutions."""
        copy = deepcopy(self).eval()
        copy.network = lite.folded(copy.network)
        return copy.requires_grad_(False)


class Lite0(LiteBackbone):
    """The smallest, and the default."""

    name = "lite0"


class Lite1(LiteBackbone):
    """More blocks."""

    name = "lite1"


class Lite2(LiteBackbone):
    """More blocks, and wider ones."""

    name = "lite2"
