"""hf:NAME: any vision model of the transformers library: a name on the hub or a folder, safetensors only."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import first_line, to_255
from matchlight.inputs.backbones.vision_transformer import TokenBackbone
from matchlight.inputs.preprocessing import USUAL, Frame, Preprocessing, Size, as_size, stated

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

CLASS_TOKENS = ("cls_token", "class_embedding")  # what libraries call it among the embeddings


class HubBackbone(TokenBackbone):
    """A vision model of the transformers library: a name on the hub or a folder, safetensors only, no remote code."""

    takes = "NAME"

    def __init__(self, name: str):
        network, says = _network(name), processor_of(name)
        preprocessor = stated(says)
        super().__init__(to_255(preprocessor.mean), to_255(preprocessor.std))
        self.stated = preprocessor
        self.network = getattr(network, "vision_model", network)  # a two-tower model: only its picture side
        if any(True for _ in getattr(self.network, "pooler", nn.Identity()).parameters()):
            self.network.pooler = None  # never asked, and random where the file has none: its hash would change
        if not {"size", "crop_size"} & says.keys():
            self.stated = self.stated.at(as_size(getattr(self.network.config, "image_size", USUAL)))
        self.name, self.dim, self.size = f"hf:{name}", _dim(self.network.config), self.stated.size
        if getattr(self.network.config, "num_attention_heads", None):
            embeddings = getattr(self.network, "embeddings", None)
            self.is_transformer(class_token=any(hasattr(embeddings, token) for token in CLASS_TOKENS))
        takes = inspect.signature(self.network.forward).parameters
        self.interpolates = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}

    def preprocessing(self, size: Size, frame: Frame = "whole") -> Preprocessing:
        """As the model's own preprocessor does it; "whole" leaves out its crop, "stated" keeps it."""
        made = self.stated.at(size)
        return replace(made, shorter=None) if frame == "whole" else made

    def states(self, pixels: Tensor) -> tuple[Tensor | None, Tensor]:
        """The last hidden state; positions are interpolated for other sizes than the model's own."""
        out = self.network(pixel_values=pixels, **self.interpolates).last_hidden_state
        if out.dim() == 4:
            return None, out.permute(0, 2, 3, 1)
        patch = as_size(getattr(self.network.config, "patch_size", 1))
        rows, columns = pixels.shape[2] // patch[0], pixels.shape[3] // patch[1]
        if out.shape[1] < rows * columns:  # a hierarchical network: fewer cells than patches, and no class token
            rows, columns = _halved(rows, columns, out.shape[1])
        cells = out[:, out.shape[1] - rows * columns :].unflatten(1, (rows, columns))
        return (out[:, 0] if self.has_class_token else None), cells


def _halved(rows: int, columns: int, cells: int) -> tuple[int, int]:
    """The grid of so many cells that halving the patches' grid leads to."""
    while rows * columns > cells:
        rows, columns = -(-rows // 2), -(-columns // 2)
    return (rows, columns) if rows * columns == cells else (1, cells)


def _network(name: str) -> PreTrainedModel:
    try:
        from transformers import AutoModel
        from transformers.utils import logging
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"hf:{name} needs transformers ({first_line(error)}): pip install 'matchlight[backbones]'"
        ) from None
    try:
        logging.disable_progress_bar()  # a bar a network, gone before it can be read
        return AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    except Exception as error:  # the message is what helps
        raise _missing(name, error) from None


def processor_of(name: str) -> Mapping[str, object]:
    """The model's preprocessor_config.json."""
    try:
        from transformers.image_processing_base import ImageProcessingMixin

        config, _ = ImageProcessingMixin.get_image_processor_dict(name)
        return dict(config)
    except Exception as error:
        raise _missing(name, error) from None


def _missing(name: str, error: Exception) -> BadInput:
    wanted = "a hub name or a folder with config.json, model.safetensors and preprocessor_config.json would do"
    return BadInput(f"hf:{name} cannot be had ({first_line(error)}); {wanted}")


def _dim(config: PretrainedConfig) -> int:
    sizes = getattr(config, "hidden_size", None) or getattr(config, "hidden_sizes", None)
    if not sizes:
        raise BadInput(
            f"hf:{getattr(config, 'name_or_path', '')} is no picture network: its config names no hidden size"
        )
    return int(sizes[-1] if isinstance(sizes, list | tuple) else sizes)
