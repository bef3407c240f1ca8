"""Networks as ONNX files: written by torch, rounded to int8, opened by ONNX Runtime on a CPU.

What is shared by frozen backbones (backbones/onnx_backbone.py) and exported towers (runs/onnx_export.py).
"""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession
    from torch import Tensor, nn

SAME = 1e-4  # largest difference from torch, as a share of the largest number, of what counts as the same
INSTALL = "pip install 'matchlight[onnx]'"
OPSET = 17  # ONNX Runtime 1.13 of 2022 and later read it
MATRICES, CONVOLUTIONS = ["MatMul", "Gemm"], ["Conv"]
Arrays = Mapping[str, np.ndarray]


def is_installed() -> bool:
    """Whether networks can be written as ONNX and run."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def open_session(path: Path, *, threads: int) -> InferenceSession:
    """A file, ready to run on a CPU with so many threads."""
    return _session(os.fspath(path), threads=threads)


def _session(model: str | bytes, *, threads: int) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def write_network(
    network: nn.Module,
    example: Mapping[str, Tensor],
    path: Path,
    *,
    outputs: Sequence[str],
    free: Mapping[str, Mapping[int, str]],
) -> None:
    """A network as a file; `free` names the axes that may have any length.

    By torch's older exporter: the newer one takes ten times as long and needs a third package.
    """
    import torch

    with warnings.catch_warnings(), torch.inference_mode(), _silent():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            tuple(example.values()),
            os.fspath(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(example),
            output_names=list(outputs),
            dynamic_axes=dict(free),
        )


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on stdout, not from C++ either: of what cannot be written torch prints the whole graph there."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def round_matrices(path: Path, made: Path) -> None:
    """Weights of matrix products as int8; activations are rounded by the range of each batch."""
    from onnxruntime import quantization

    with _without_advice():
        quantization.quantize_dynamic(path, made, op_types_to_quantize=MATRICES, per_channel=True)


def round_convolutions(path: Path, made: Path, examples: Iterator[Arrays]) -> None:
    """Weights and activations of convolutions as int8, by the ranges that activations have for these examples."""
    from onnxruntime import quantization

    class Examples(quantization.CalibrationDataReader):
        """Inputs whose activations say how wide int8 must reach."""

        def get_next(self) -> Arrays | None:
            """One after the other."""
            return next(examples, None)

    with _without_advice():
        quantization.quantize_static(path, made, Examples(), op_types_to_quantize=CONVOLUTIONS, per_channel=True)


def has_any(path: Path, kinds: Sequence[str]) -> bool:
    """Whether the network in a file has an operation of these kinds."""
    import onnx

    return any(node.op_type in kinds for node in onnx.load(os.fspath(path)).graph.node)


def takes_weights_elsewhere(model: ModelProto) -> bool:
    """Whether a file takes weights from other files, whose paths a stranger could have chosen."""
    import onnx

    return any(one.data_location == onnx.TensorProto.EXTERNAL for one in model.graph.initializer)


def open_part(model: ModelProto, inputs: Sequence[str], output: str, *, threads: int) -> InferenceSession:
    """The part of a file that leads from some inputs to one output: ONNX Runtime would compute all the rest as well."""
    from onnx.utils import Extractor

    if [one.name for one in model.graph.output] == [output]:  # there is no rest
        return _session(model.SerializeToString(), threads=threads)
    known = {one.name for one in model.graph.input}
    kept = [one for one in model.graph.initializer if one.name not in known]  # without values for inputs left out
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    part = Extractor(model).extract_model(list(inputs), [output])
    return _session(part.SerializeToString(), threads=threads)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Quantising says, each time, that a file could be prepared for it."""

    def other(record: logging.LogRecord) -> bool:
        return "pre-processing before quantization" not in record.getMessage()

    logging.getLogger().addFilter(other)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(other)
