"""tinyvit-5m: TinyViT as a backbone."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, Size, to_255, weights_to_come
from matchlight.inputs.backbones.tiny_vit import FIVE_MILLION, STRIDE, TinyVit
from matchlight.inputs.preprocessing import USUAL, as_size
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE


class TinyVit5M(Backbone):
    """TinyViT of 5 million weights; any picture size, one cell for each 32 pixels begun."""

    name = "tinyvit-5m"
    dim = FIVE_MILLION.channels[-1]
    rate_share = 1 / 3  # of the rate that a CNN is tuned with

    def __init__(self) -> None:
        super().__init__(to_255((0.485, 0.456, 0.406)), to_255((0.229, 0.224, 0.225)))
        network = TinyVit()
        if not weights_to_come():
            fill(network, weight_store.needed(CATALOGUE[self.name]) / "model.safetensors")
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @classmethod
    def size_without_weights(cls, device: torch.device) -> Size:
        """What it was trained with."""
        return as_size(USUAL)

    def usual_size(self, device: torch.device) -> Size:
        """What it was trained with."""
        return self.size or self.size_without_weights(device)

    def grid(self, pixels: Tensor) -> Tensor:
        """The map before the classifier, cell by cell, row after row."""
        return self.network(pixels).flatten(2).transpose(1, 2)

    def cells(self, size: int | Size | None = None) -> int:
        """One for each 32 x 32 pixels begun."""
        height, width = as_size(size or self.size or USUAL)
        return -(-height // STRIDE) * -(-width // STRIDE)


def fill(network: TinyVit, path: Path) -> None:
    """Load the weights; a file of something else is one clear line."""
    try:
        network.load_state_dict(load_file(path))
    except (RuntimeError, OSError, ValueError) as problem:
        why = str(problem).splitlines()[-1].strip()
        cure = f"`matchlight weights remove {TinyVit5M.name}`, then `matchlight weights get {TinyVit5M.name}`"
        raise BadInput(f"{path}: not the weights of {TinyVit5M.name} ({why}); {cure}") from None
