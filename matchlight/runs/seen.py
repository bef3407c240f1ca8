"""Which pairs a run has learnt from, and whether two runs hold the same weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.data.fingerprints import is_same_data, marks
from matchlight.data.formats.safety import load_npy
from matchlight.pairs import Pairs

SEEN = "seen.npy"


def weights_mark(folder: Path) -> str:
    """Changes when a run's weights do: two of the same method, data and seed may still be trained further."""
    path = folder / "model.safetensors"
    try:
        with open(files.regular(path), "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; a run that finished an epoch has one") from None


def seen_by(pairs: Pairs, start: Path | None) -> np.ndarray:
    """Marks of all pairs that a new run learns from, and of those the run it starts from has learnt from."""
    before = start / SEEN if start is not None else None
    old = load_npy(before) if before is not None and before.is_file() else np.zeros(0, "<u8")
    return np.union1d(marks(pairs, pairs.rows("train")), old)


def trained_on(folder: Path, pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """(n,) bool: which of these pairs the run in a folder learnt from, also where the data have changed since."""
    path = folder / SEEN
    if path.is_file():
        return np.isin(marks(pairs, rows), load_npy(path))
    data = files.read_json(folder / "recipe.json", "a run's recipe").get("data")
    same = is_same_data(data, pairs)  # imported: learnt from nothing here
    return np.isin(rows, pairs.rows("train")) if same and "train" in pairs.split_names else np.zeros(len(rows), bool)
