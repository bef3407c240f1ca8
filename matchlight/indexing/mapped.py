"""Files mapped into memory without being kept open: an index of millions has more files than a process may open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from matchlight.data.formats.safety import load_npy


def mapped_bytes(path: Path) -> np.ndarray:
    """(n,) the bytes of a file that is not empty, read when they are looked at."""
    whole: np.ndarray = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8).numpy()
    whole.flags.writeable = False
    return whole


def mapped_array(path: Path) -> np.ndarray:
    """A .npy of numbers whose length agrees with its header, read when it is looked at."""
    checked = load_npy(path, kinds="fiub")
    if not isinstance(checked, np.memmap) or not checked.flags.c_contiguous:
        return checked
    array: np.ndarray = mapped_bytes(path)[checked.offset :].view(checked.dtype).reshape(checked.shape)
    return array
