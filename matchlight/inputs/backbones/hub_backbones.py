"""hf:NAME: any vision model of the transformers library: a name on the hub or a folder, safetensors only."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, as_size, first_line, to_255

HALF = (0.5, 0.5, 0.5)


class HubBackbone(Backbone):
    """A vision model of the transformers library: a name on the hub or a folder, safetensors only, no remote code."""

    takes = "NAME"

    def __init__(self, name: str):
        network, config = _load(name)
        mean, std = config.get("image_mean", HALF), config.get("image_std", HALF)
        super().__init__(to_255(mean), to_255(std))
        network = getattr(network, "vision_model", network)  # a two-tower model: only its picture side
        self.network, self.name = network, f"hf:{name}"
        self.dim = _dim(network.config)
        self.size = as_size(getattr(network.config, "image_size", None) or _size(config))

    def grid(self, pixels: Tensor) -> Tensor:
        """The last hidden state without class and register tokens."""
        out = self.network(pixel_values=pixels).last_hidden_state
        if out.dim() == 4:
            return out.flatten(2).transpose(1, 2)
        patch = as_size(getattr(self.network.config, "patch_size", 1))
        cells = (pixels.shape[2] // patch[0]) * (pixels.shape[3] // patch[1])
        return out[:, max(out.shape[1] - cells, 0) :]


def _load(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        from transformers import AutoModel
        from transformers.image_processing_base import ImageProcessingMixin
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"hf:{name} needs transformers ({first_line(error)}): pip install 'matchlight[backbones]'"
        ) from None
    try:
        network = AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
        config, _ = ImageProcessingMixin.get_image_processor_dict(name)
        return network, config
    except Exception as error:  # as above; the message is what helps
        wanted = "a hub name or a folder with config.json, model.safetensors and preprocessor_config.json would do"
        raise BadInput(f"hf:{name} cannot be had ({first_line(error)}); {wanted}") from None


def _dim(config: object) -> int:
    sizes = getattr(config, "hidden_size", None) or getattr(config, "hidden_sizes", None)
    if not sizes:
        raise BadInput(
            f"hf:{getattr(config, 'name_or_path', '')} is no picture network: its config names no hidden size"
        )
    return int(sizes[-1] if isinstance(sizes, list | tuple) else sizes)


def _size(config: dict[str, Any]) -> int:
    size = config.get("crop_size") or config.get("size") or 224
    return int(size if isinstance(size, int) else size.get("height") or size.get("shortest_edge") or 224)
