"""A frozen backbone computed by ONNX Runtime on a CPU: the same numbers sooner, or with int8 other ones.

The network is written as ONNX for one picture size and opened with one thread a session, since whole batches side by
side keep all cores busy (features/decode.py). What comes out is compared with torch on pictures of the data before
anything is kept. int8 rounds weights and activations of matrix products (by the range of each batch) and of
convolutions (by the range found on those pictures).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, first_line
from matchlight.inputs.onnx_files import (
    INSTALL,
    MATRICES,
    has_any,
    is_installed,
    open_session,
    round_convolutions,
    round_matrices,
    write_network,
)

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class OnnxBackbone(Backbone):
    """Another backbone, frozen, for pictures of one size on a CPU."""

    def __init__(self, network: Backbone, pixels: np.ndarray, *, int8: bool):
        if not is_installed():
            raise BadInput(f"the runtime onnx needs the packages onnx and onnxruntime: {INSTALL}")
        mean, std = (tuple(values.flatten().tolist()) for values in (network.mean, network.std))
        super().__init__(mean, std)
        self.name, self.dim, self.size = network.name, network.dim, network.size
        self._plain = [network]  # in a list: torch need not know its weights, which are in the session
        self._session = _session(network, pixels, int8=int8)

    def forward(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) pixels in 0..255 of the one size -> (N, cells, dim)."""
        return torch.from_numpy(self._session.run(None, {"pixels": pixels.float().numpy()})[0])

    def pool(self, grid: Tensor) -> Tensor:
        """As the backbone does."""
        return self._plain[0].pool(grid)

    @torch.inference_mode()
    def difference(self, pixels: np.ndarray) -> float:
        """How far these pictures' features are from torch's, at most, as a share of the largest number."""
        own, plain = (network(torch.from_numpy(pixels)) for network in (self, self._plain[0]))
        return float((own - plain).abs().max() / plain.abs().max().clamp(min=1e-12))

    @torch.inference_mode()
    def likeness(self, pixels: np.ndarray) -> float:
        """The mean cosine between these pictures' pooled features and torch's."""
        own, plain = (network.pooled(torch.from_numpy(pixels)) for network in (self, self._plain[0]))
        return float(nn.functional.cosine_similarity(own, plain).mean())


class _Whole(nn.Module):
    """A backbone from plain pixels on, as one function to write down."""

    def __init__(self, network: Backbone):
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network.grid(self.network.normalise(pixels))


def _session(network: Backbone, pixels: np.ndarray, *, int8: bool) -> InferenceSession:
    with tempfile.TemporaryDirectory(prefix="matchlight-onnx-") as folder:
        path = Path(folder, "network.onnx")
        _write(network, pixels, path)
        path = _quantised(path, pixels) if int8 else path
        return open_session(path, threads=1)


def _write(network: Backbone, pixels: np.ndarray, path: Path) -> None:
    example = {"pixels": torch.zeros(2, *pixels.shape[1:])}
    free = {"pixels": {0: "pictures"}, "cells": {0: "pictures"}}
    try:
        write_network(_Whole(network), example, path, outputs=["cells"], free=free)
    except Exception as error:  # whatever a network holds that ONNX has no word for
        raise BadInput(
            f"backbone={network.name} cannot be written as ONNX ({first_line(error)}); the runtime torch would work"
        ) from None


def _quantised(path: Path, pixels: np.ndarray) -> Path:
    """A transformer by its matrix products, a CNN by its convolutions."""
    made = path.with_name("int8.onnx")
    if has_any(path, MATRICES):
        round_matrices(path, made)
    else:
        round_convolutions(path, made, ({"pixels": one} for one in pixels.astype(np.float32)[:, None]))
    return made
