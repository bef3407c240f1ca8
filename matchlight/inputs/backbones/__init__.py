"""Backbones: pixels in 0..255 -> a grid of vectors, whoever made the network: "lite0" (1, 2), "timm:NAME", "hf:NAME".

A backbone is one Module, used frozen (its features are extracted once and cached) or trained end to end. It does its
own normalising, so everything outside it speaks of plain pixels, and it always gives (N, cells, dim): tokens that stand
for no place in the picture (a class token, registers) are left out. Pooled features are the mean over the cells.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.backbones import lite, lite_weights

Size = tuple[int, int]  # height, width
HALF = (0.5, 0.5, 0.5)


def as_size(size: int | tuple[int, int] | list[int]) -> Size:
    """One number is a square; two are height, width."""
    height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    if min(height, width) < 1 or max(height, width) > 4096:
        raise BadInput(f"a picture size of {height} x {width} cannot be used; both sides must lie in 1..4096")
    return height, width


class Backbone(nn.Module):
    """Pixels (N, 3, H, W) in 0..255 -> (N, cells, dim)."""

    name: str
    dim: int
    size: Size | None = None  # the size it was made for; None: any, chosen by the device

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.frozen_statistics = False
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels 0..255 (uint8 or float) as the network was trained to see them."""
        return (pixels.to(self.mean.dtype) - self.mean) / self.std  # type: ignore[union-attr,arg-type,operator]

    def forward(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) pixels in 0..255 -> (N, cells, dim)."""
        return self.grid(self.normalise(pixels).contiguous(memory_format=torch.channels_last))

    def grid(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) normalised pixels -> (N, cells, dim)."""
        raise NotImplementedError

    def usual_size(self, device: torch.device) -> Size:
        """The picture size on this device where none is asked for: its own, or one that the device looks at fast."""
        return self.size or ((160, 160) if device.type == "cpu" else (224, 224))

    def cells(self, size: int | Size | None = None) -> int:
        """How many vectors a picture of this size gives."""
        height, width = as_size(size or self.size or 224)
        pixels = torch.zeros(1, 3, height, width, device=self.mean.device)  # type: ignore[arg-type]
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
        digest = hashlib.sha256(self.name.encode())
        for key, value in sorted(self.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())  # any dtype's bytes
        return digest.hexdigest()


class LiteBackbone(Backbone):
    """EfficientNet-Lite 0, 1 or 2; any picture size, one cell for each 32 pixels begun."""

    dim = lite.DIM

    def __init__(self, name: str) -> None:
        super().__init__((127.0,) * 3, (128.0,) * 3)
        self.name = name
        self.network = lite_weights.load(name).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def usual_size(self, device: torch.device) -> Size:
        """What it was trained with, on a CPU less."""
        return self.size or as_size(lite.usual_size(self.name, device.type))

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


class TimmBackbone(Backbone):
    """A picture network of the timm library with its published weights."""

    def __init__(self, name: str):
        network, config = _timm(name)
        super().__init__(_to_255(config["mean"]), _to_255(config["std"]))
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


class HubBackbone(Backbone):
    """A vision model of the transformers library: a name on the hub or a folder, safetensors only, no remote code."""

    def __init__(self, name: str):
        network, config = _hub(name)
        mean, std = config.get("image_mean", HALF), config.get("image_std", HALF)
        super().__init__(_to_255(mean), _to_255(std))
        network = getattr(network, "vision_model", network)  # a two-tower model: only its picture side
        self.network, self.name = network, f"hf:{name}"
        self.dim = _hub_dim(network.config)
        self.size = as_size(getattr(network.config, "image_size", None) or _hub_size(config))

    def grid(self, pixels: Tensor) -> Tensor:
        """The last hidden state without class and register tokens."""
        out = self.network(pixel_values=pixels).last_hidden_state
        if out.dim() == 4:
            return out.flatten(2).transpose(1, 2)
        patch = as_size(getattr(self.network.config, "patch_size", 1))
        cells = (pixels.shape[2] // patch[0]) * (pixels.shape[3] // patch[1])
        return out[:, max(out.shape[1] - cells, 0) :]


def _to_255(values: Any) -> tuple[float, ...]:
    """Means and deviations are published for pixels in 0..1."""
    return tuple(255.0 * float(value) for value in values)


def _timm(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit the torch beside it
        raise BadInput(
            f"timm:{name} needs timm and a working torchvision ({_line(error)}): pip install 'matchlight[timm]'"
        ) from None
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0)
        return network, timm.data.resolve_model_data_config(network)
    except Exception as error:  # unknown names, no network, gated files: each library layer has its own exception
        raise BadInput(f"timm:{name} cannot be had ({_line(error)}); `timm.list_pretrained()` lists names") from None


def _hub(name: str) -> tuple[Any, dict[str, Any]]:
    try:
        from transformers import AutoModel
        from transformers.image_processing_base import ImageProcessingMixin
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"hf:{name} needs transformers ({_line(error)}): pip install 'matchlight[backbones]'") from None
    try:
        network = AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
        config, _ = ImageProcessingMixin.get_image_processor_dict(name)
        return network, config
    except Exception as error:  # as above; the message is what helps
        wanted = "a hub name or a folder with config.json, model.safetensors and preprocessor_config.json would do"
        raise BadInput(f"hf:{name} cannot be had ({_line(error)}); {wanted}") from None


def _hub_dim(config: Any) -> int:
    sizes = getattr(config, "hidden_size", None) or getattr(config, "hidden_sizes", None)
    if not sizes:
        raise BadInput(f"hf:{config.name_or_path} is no picture network: its config names no hidden size")
    return int(sizes[-1] if isinstance(sizes, list | tuple) else sizes)


def _hub_size(config: dict[str, Any]) -> int:
    size = config.get("crop_size") or config.get("size") or 224
    return int(size if isinstance(size, int) else size.get("height") or size.get("shortest_edge") or 224)


def _line(error: BaseException) -> str:
    """The first line of an error, short enough to be part of one."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def backbone(name: str, size: int | Size | None = None) -> Backbone:
    """A backbone by name: "lite0", "lite1", "lite2", "timm:NAME", "hf:NAME"; `size` is that of the pictures to come."""
    kind, _, rest = name.partition(":")
    if name in lite.PLANS:
        made: Backbone = LiteBackbone(name)
    elif kind == "timm" and rest:
        made = TimmBackbone(rest)
    elif kind == "hf" and rest:
        made = HubBackbone(rest)
    else:
        raise BadInput(f"{name!r} is no backbone; known: {', '.join(lite.PLANS)}, timm:NAME, hf:NAME")
    made.size = made.size if size is None else as_size(size)
    return made.eval()
