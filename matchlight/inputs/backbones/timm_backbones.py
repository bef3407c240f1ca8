"""timm:NAME: any picture network of the timm library, with its published weights."""

from __future__ import annotations

from typing import Protocol, TypedDict

from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, as_size, first_line, to_255


class Config(TypedDict):
    """What we use of a timm model's configuration."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    input_size: tuple[int, int, int]  # channels, height, width


class Network(Protocol):
    """What we use of a timm model."""

    num_features: int

    def forward_features(self, pixels: Tensor) -> Tensor:
        """The features before pooling."""


class TimmBackbone(Backbone):
    """A picture network of the timm library with its published weights."""

    takes = "NAME"

    def __init__(self, name: str):
        network, config = _load(name)
        super().__init__(to_255(config["mean"]), to_255(config["std"]))
        self.network, self.name, self.dim = network, f"timm:{name}", network.num_features
        self.size = as_size(config["input_size"][1:])

    def grid(self, pixels: Tensor) -> Tensor:
        """The features before pooling, without class and register tokens."""
        out = self.network.forward_features(pixels)
        if out.dim() == 3:
            return out[:, getattr(self.network, "num_prefix_tokens", 0) :]
        if out.shape[1] != self.dim:  # windowed transformers put the channels last
            return out.flatten(1, 2)
        return out.flatten(2).transpose(1, 2)


def _load(name: str) -> tuple[Network, Config]:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit the torch beside it
        raise BadInput(
            f"timm:{name} needs timm and a working torchvision ({first_line(error)}): pip install 'matchlight[timm]'"
        ) from None
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0)
        return network, timm.data.resolve_model_data_config(network)
    except Exception as error:  # unknown names, no network, gated files: each library layer has its own exception
        raise BadInput(
            f"timm:{name} cannot be had ({first_line(error)}); `timm.list_pretrained()` lists names"
        ) from None
