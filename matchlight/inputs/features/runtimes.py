"""What computes a frozen network's features: torch, in float or bfloat16, or on a CPU ONNX Runtime, in float or int8.

ONNX in float gives the same numbers sooner (Lite networks, TinyViT and vision transformers were measured), so it is
taken for those by itself where it is installed and enough pictures are left to make up for the seconds that writing the
network takes. Where its numbers differ from torch's, torch is used. int8 and bfloat16 give other numbers: they are
taken only when asked for, and their features are kept apart from all others. bfloat16 is for vision transformers on
CPUs with products of its own (AVX-512 BF16, AMX): a third of the time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import torch

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.devices import multiplies_in_bfloat16
from matchlight.inputs.backbones.base import Backbone, Runtime, known_runtime
from matchlight.inputs.backbones.lite_backbones import LiteBackbone
from matchlight.inputs.backbones.onnx_backbone import OnnxBackbone
from matchlight.inputs.backbones.tiny_vit_backbone import TinyVit5M
from matchlight.inputs.backbones.vision_transformer import TokenBackbone
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.onnx_files import SAME, is_installed
from matchlight.inputs.preprocessing import Preprocessing

if TYPE_CHECKING:
    from matchlight.pairs import PictureSource

MANY, MANY_OF_TRANSFORMERS = 1000, 500  # pictures that are worth the seconds of writing a network as ONNX
LARGE = 100_000_000  # weights of a network that is not written as ONNX unasked: it would be in memory three times
OTHER_NUMBERS = ("onnx-int8", "torch-bf16")  # runtimes whose features are kept apart from all others
VARIABLE = "MATCHLIGHT_RUNTIME"
LARGEST = 65504.0  # the largest float16
SAMPLE = 32  # pictures that are compared with torch, and that int8 takes its ranges from


def asked_for(network: Backbone) -> Runtime:
    """What the network says; of one that says nothing, what `MATCHLIGHT_RUNTIME` does."""
    return network.runtime if network.runtime != "auto" else known_runtime(os.environ.get(VARIABLE) or "auto")


def computed_by(network: Backbone, source: PictureSource, made: Preprocessing, *, left: int) -> Backbone:
    """The network as its `runtime` says, for so many pictures that are left; what differs from torch is told."""
    wanted, on_cpu = asked_for(network), network.mean.device.type == "cpu"
    if wanted == "torch-bf16":
        return in_bfloat16(network)
    if not (wanted.startswith("onnx") or (wanted == "auto" and on_cpu and onnx_pays(network, left))):
        return network
    if not on_cpu:
        raise BadInput(f"--runtime {wanted}: ONNX Runtime is used on a CPU only; --device cpu would work")
    sample = next(decoded(source, 0, made, SAMPLE))[0]
    try:
        return _checked(OnnxBackbone(network, sample, int8=wanted == "onnx-int8"), sample, wanted)
    except BadInput:
        if wanted == "auto":
            return network
        raise


def onnx_pays(network: Backbone, left: int) -> bool:
    """Whether ONNX Runtime is there and saves more, over so many pictures, than writing the network costs."""
    if isinstance(network, TokenBackbone | TinyVit5M):
        few = sum(weight.numel() for weight in network.parameters()) < LARGE
        return few and left >= MANY_OF_TRANSFORMERS and is_installed()
    return isinstance(network, LiteBackbone) and left >= MANY and is_installed()


@torch.inference_mode()
def computed(network: Backbone, rows: np.ndarray, kind: str) -> np.ndarray:
    """Features of these pixels as they are stored, float16: a vector a cell ("grid") or their mean ("pooled")."""
    pixels = torch.from_numpy(rows).to(network.mean.device)
    half = pixels.is_cuda and network.rate_share < 1 and torch.cuda.is_bf16_supported()  # transformers bear it
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        features = network(pixels) if kind == "grid" else network.pooled(pixels)
    return features.float().clamp(-LARGEST, LARGEST).half().cpu().numpy()


def in_bfloat16(network: Backbone) -> Backbone:
    """The same network with weights and states in bfloat16; pixels are still normalised in full."""
    if network.mean.device.type == "cpu" and not multiplies_in_bfloat16(unknown=True):
        say("torch-bf16: this CPU has no products in bfloat16, so that float (torch) is quicker")
    mean, std = network.mean, network.std
    network = network.to(torch.bfloat16)
    network.mean, network.std, network.precision = mean.float(), std.float(), torch.bfloat16
    return network


def _checked(network: OnnxBackbone, sample: np.ndarray, wanted: str) -> OnnxBackbone:
    if wanted == "onnx-int8":
        say(f"int8: features of {len(sample)} pictures have a cosine of {network.likeness(sample):.4f} with float ones")
    elif (difference := network.difference(sample)) > SAME:
        raise BadInput(f"--runtime onnx: {network.name} differs by {difference:.1g} from torch, which would work")
    return network
