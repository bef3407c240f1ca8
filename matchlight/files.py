"""Our own files: a tree of tensors and plain values in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.core import BadInput


def write_text(path: Path, text: str) -> None:
    """Write a small file atomically: a reader sees the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def write_json(path: Path, value: Any) -> None:
    """JSON with two spaces, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, what: str) -> Any:
    """A JSON file of ours; a missing or broken one is one clear line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file ({what})") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: not valid JSON ({what}): {problem}") from None


def write_array(path: Path, array: np.ndarray) -> None:
    """A .npy file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp.npy")
    try:
        np.save(draft, array)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def is_array_file(path: Path) -> bool:
    """Whether a file begins as a .npy does; a folder, a pipe or what nobody may read does not."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return file.read(6) == b"\x93NUMPY"
    except OSError:
        return False


def read_npz(path: Path, missing: str) -> dict[str, np.ndarray]:
    """All arrays of a .npz file; where there is none, `missing` says who writes it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; {missing}") from None
    except (ValueError, TypeError, AttributeError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        raise BadInput(f"{path}: not a readable .npz file; remove it, and what wrote it can be run again") from None


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A .npz file of named arrays, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp.npz")
    try:
        np.savez_compressed(draft, **arrays)  # type: ignore[arg-type]
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
