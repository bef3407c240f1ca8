"""What computes a frozen network's features: torch, or on a CPU ONNX Runtime, in float or with int8.

ONNX in float gives the same numbers, of the Lite networks sooner, so it is taken for those by itself where it is
installed and enough pictures are left to make up for the seconds that writing the network takes. int8 gives other
numbers: it is taken only when asked for, and its features are kept apart from all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone
from matchlight.inputs.backbones.lite_backbones import LiteBackbone
from matchlight.inputs.backbones.onnx_backbone import OnnxBackbone
from matchlight.inputs.backbones.preprocessing import Preprocessing
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.onnx_files import SAME, is_installed

if TYPE_CHECKING:
    from matchlight.pairs import PictureSource

MANY = 1000  # pictures from which it is worth the seconds that writing a network as ONNX takes
SAMPLE = 32  # pictures that are compared with torch, and that int8 takes its ranges from


def computed_by(network: Backbone, source: PictureSource, made: Preprocessing, *, left: int) -> Backbone:
    """The network as its `runtime` says, for so many pictures that are left; what differs from torch is told."""
    wanted, on_cpu = network.runtime, network.mean.device.type == "cpu"
    quicker = isinstance(network, LiteBackbone) and on_cpu and left >= MANY and is_installed()
    if not (wanted.startswith("onnx") or (wanted == "auto" and quicker)):
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


def _checked(network: OnnxBackbone, sample: np.ndarray, wanted: str) -> OnnxBackbone:
    if wanted == "onnx-int8":
        say(f"int8: features of {len(sample)} pictures have a cosine of {network.likeness(sample):.4f} with float ones")
    elif (difference := network.difference(sample)) > SAME:
        raise BadInput(f"--runtime onnx: {network.name} differs by {difference:.1g} from torch, which would work")
    return network
