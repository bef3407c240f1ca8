"""Nested values as JSON with their arrays beside it, in one safetensors file: no pickle is needed to keep them.

The table of an index is read and written here with NumPy alone; training/checkpoints.py keeps tensors in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from matchlight import files
from matchlight.console import BadInput

Tree = dict[str, Any]  # plain values, arrays, dicts and lists of these; who takes it back knows its types
Leaf = dict[str, Any]  # what stands in the JSON for an array: under which name it is kept
TREE = "tree"  # of the file's metadata
UNREADABLE = (SafetensorError, KeyError, ValueError, RecursionError)  # what a damaged file raises


def packed(value: Any, keep: Callable[[Any], Leaf | None]) -> Any:
    """A value as JSON can hold it; `keep` puts an array aside and says what stands in for it, None: it is none."""
    if (leaf := keep(value)) is not None:
        return leaf
    if isinstance(value, dict):
        return {"dict": [[packed(k, keep), packed(v, keep)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [packed(v, keep) for v in value], "tuple": isinstance(value, tuple)}
    return value.item() if isinstance(value, np.generic) else value


def unpacked(value: Any, kept: Callable[[Leaf], Any]) -> Any:
    """The value again; `kept` gives the array that a leaf stands for."""
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return kept(value)
    if "dict" in value:
        return {unpacked(k, kept): unpacked(v, kept) for k, v in value["dict"]}
    items = [unpacked(v, kept) for v in value["list"]]
    return tuple(items) if value["tuple"] else items


def save_arrays(path: Path, tree: Tree) -> None:
    """Nested dicts, lists, numbers, strings and arrays as one safetensors file, atomically."""
    arrays: dict[str, np.ndarray] = {}

    def keep(value: Any) -> Leaf | None:
        if not isinstance(value, np.ndarray):
            return None
        arrays[key := str(len(arrays))] = np.ascontiguousarray(value)
        return {"tensor": key, "numpy": True}

    shape = json.dumps(packed(tree, keep))
    try:
        with files.replaced(path, flush=True, apart=True) as draft:  # safetensors has a temporary file of its own
            save_file(arrays or {"empty": np.zeros(0, np.float32)}, str(draft), metadata={TREE: shape})
    except SafetensorError as problem:  # safetensors has no OSError; a full disk is one by now
        raise BadInput(f"{path}: cannot be written: {problem}") from None


def load_arrays(path: Path) -> Tree:
    """What `save_arrays` wrote."""
    try:
        with safe_open(str(files.regular(path)), framework="np") as file:
            shape = json.loads((file.metadata() or {})[TREE])
            return unpacked(shape, lambda leaf: file.get_tensor(leaf["tensor"]))
    except UNREADABLE as problem:
        raise BadInput(f"{path}: not a readable table: {problem}") from None
