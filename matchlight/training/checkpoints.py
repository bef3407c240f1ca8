"""Weights and training states: tensors and plain values in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from matchlight import files
from matchlight.core import BadInput
from matchlight.data.value_trees import TREE, UNREADABLE, Leaf, packed, unpacked

State = dict[str, Any]  # plain values, tensors, arrays, dicts and lists of these; who takes it back knows its types


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU that later steps cannot change and that shares memory with nothing."""
    copy = tensor.detach().cpu().contiguous()
    return copy.clone() if copy.data_ptr() == tensor.data_ptr() else copy


def _write(
    path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None, *, flush: bool = True
) -> None:
    """One safetensors file, by default flushed to the disk before it takes the place of the old one."""
    try:
        with files.replaced(path, flush=flush, apart=True) as draft:  # safetensors has a temporary file of its own
            save_file(tensors, str(draft), metadata=metadata)
    except SafetensorError as problem:  # safetensors has no OSError; a full disk is one by now
        raise BadInput(f"{path}: cannot be written: {problem}") from None


def save_weights(path: Path, state: dict[str, torch.Tensor], *, by: Writer | None = None, flush: bool = True) -> None:
    """A state dict as safetensors, atomically; what need not outlive the machine is not flushed."""
    whole = {name: _own(value) for name, value in state.items()}
    (by.do if by else _now)(lambda: _write(path, whole, flush=flush))


def _now(job: Callable[[], None]) -> None:
    job()


class Writer:
    """Writes in the order asked for, behind the back of a training loop; `flush` waits and raises what went wrong."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._last: Future[None] | None = None
        self.cost = 0.0  # seconds that the last job took

    def do(self, job: Callable[[], None]) -> None:
        """Queue a job; at most one waits behind the one under way, so that copies never pile up."""
        waiting, self._last = self._last, self._pool.submit(self._timed, job)
        if waiting is not None:
            waiting.result()

    def _timed(self, job: Callable[[], None]) -> None:
        began = time.monotonic()
        job()
        self.cost = time.monotonic() - began

    def flush(self) -> None:
        """Everything asked for is on the disk."""
        if self._last is not None:
            self._last.result()


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """A state dict from safetensors."""
    try:
        return load_file(str(files.regular(path)))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; a run that finished an epoch has one") from None
    except SafetensorError as problem:
        raise BadInput(f"{path}: not a readable safetensors file: {problem}") from None


def save_tree(path: Path, tree: State, *, by: Writer | None = None) -> None:
    """Nested dicts, lists, numbers, strings, tensors and arrays as one safetensors file, atomically."""
    tensors: dict[str, torch.Tensor] = {}

    def keep(value: Any) -> Leaf | None:
        if not isinstance(value, torch.Tensor | np.ndarray):
            return None
        tensors[key := str(len(tensors))] = _own(torch.as_tensor(value))
        return {"tensor": key, "numpy": isinstance(value, np.ndarray)}

    shape = json.dumps(packed(tree, keep))
    (by.do if by else _now)(lambda: _write(path, tensors or {"empty": torch.zeros(0)}, {TREE: shape}))


def load_tree(path: Path) -> State:
    """What `save_tree` wrote."""
    try:
        with safe_open(str(files.regular(path)), framework="pt") as file:
            shape = json.loads((file.metadata() or {})[TREE])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
        return unpacked(shape, lambda leaf: _kept(leaf, tensors))
    except UNREADABLE as problem:
        raise BadInput(f"{path}: not a readable checkpoint: {problem}") from None


def _kept(leaf: Leaf, tensors: dict[str, torch.Tensor]) -> torch.Tensor | np.ndarray:
    tensor = tensors[leaf["tensor"]]
    return tensor.numpy() if leaf["numpy"] else tensor
