"""timm:NAME: any picture network of the timm library, with its published weights."""

from __future__ import annotations

from typing import Protocol, TypedDict

from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import first_line, to_255
from matchlight.inputs.backbones.vision_transformer import TokenBackbone
from matchlight.inputs.preprocessing import as_size


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


class TimmBackbone(TokenBackbone):
    """A picture network of the timm library with its published weights."""

    takes = "NAME"

    def __init__(self, name: str):
        network, config = _load(name)
        super().__init__(to_255(config["mean"]), to_255(config["std"]))
        self.network, self.name, self.dim = network, f"timm:{name}", network.num_features
        self.size = as_size(config["input_size"][1:])
        if hasattr(network, "num_prefix_tokens"):
            self.is_transformer(class_token=getattr(network, "cls_token", None) is not None)

    def states(self, pixels: Tensor) -> tuple[Tensor | None, Tensor]:
        """The features before pooling, without register tokens."""
        out = self.network.forward_features(pixels)
        if out.dim() == 3:
            cells = out[:, getattr(self.network, "num_prefix_tokens", 0) :]
            rows = _rows(cells.shape[1], pixels.shape[2] / pixels.shape[3])
            return (out[:, 0] if self.has_class_token else None), cells.unflatten(1, (rows, -1))
        if out.shape[1] != self.dim:  # windowed transformers put the channels last
            return None, out
        return None, out.permute(0, 2, 3, 1)


def _rows(cells: int, ratio: float) -> int:
    """How many rows so many cells have in a picture of this height to width; 1 where they fill no grid."""
    rows = round((cells * ratio) ** 0.5)
    return rows if rows and cells % rows == 0 else 1


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
