"""A frozen backbone computed by ONNX Runtime on a CPU: the same numbers sooner, or with int8 other ones.

The network is written as ONNX for one picture size and opened with one thread a session, since whole batches side by
side keep all cores busy (features/decode.py). What comes out is compared with torch on pictures of the data before
anything is kept. int8 rounds weights and activations of matrix products (by the range of each batch) and of
convolutions (by the range found on those pictures).
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, first_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

SAME = 1e-4  # largest difference from torch, as a share of the largest number, of what counts as the same
INSTALL = "pip install 'matchlight[onnx]'"


def is_installed() -> bool:
    """Whether networks can be written as ONNX and run."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))


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
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="matchlight-onnx-") as folder:
        path = Path(folder, "network.onnx")
        _write(network, pixels, path)
        path = _quantised(path, pixels) if int8 else path
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def _write(network: Backbone, pixels: np.ndarray, path: Path) -> None:
    """By torch's older exporter: the newer one takes ten times as long and needs a third package."""
    example = torch.zeros(2, *pixels.shape[1:])
    free = {"pixels": {0: "pictures"}, "cells": {0: "pictures"}}
    try:
        with warnings.catch_warnings(), torch.inference_mode(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Whole(network).eval(),
                (example,),
                os.fspath(path),
                dynamo=False,
                input_names=["pixels"],
                output_names=["cells"],
                dynamic_axes=free,
            )
    except Exception as error:  # whatever a network holds that ONNX has no word for
        raise BadInput(
            f"backbone={network.name} cannot be written as ONNX ({first_line(error)}); the runtime torch would work"
        ) from None


def _quantised(path: Path, pixels: np.ndarray) -> Path:
    from onnxruntime import quantization

    class Pictures(quantization.CalibrationDataReader):
        """The pictures whose activations say how wide int8 must reach."""

        def __init__(self) -> None:
            self.each: Iterator[np.ndarray] = iter(pixels.astype(np.float32)[:, None])

        def get_next(self) -> dict[str, np.ndarray] | None:
            found = next(self.each, None)
            return None if found is None else {"pixels": found}

    logging.getLogger().addFilter(_without_advice)
    try:
        made = path.with_name("int8.onnx")
        if _has_matrices(path):
            quantization.quantize_dynamic(path, made, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True)
        else:
            quantization.quantize_static(path, made, Pictures(), op_types_to_quantize=["Conv"], per_channel=True)
        return made
    finally:
        logging.getLogger().removeFilter(_without_advice)


def _has_matrices(path: Path) -> bool:
    """Whether it is a transformer rather than a CNN, as far as int8 is concerned."""
    import onnx

    return any(node.op_type in ("MatMul", "Gemm") for node in onnx.load(os.fspath(path)).graph.node)


def _without_advice(record: logging.LogRecord) -> bool:
    return "pre-processing before quantization" not in record.getMessage()
