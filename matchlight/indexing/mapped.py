"""Files mapped into memory without being kept open: an index of millions has more files than a process may open."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import cache
from pathlib import Path

import numpy as np

from matchlight.data.formats.safety import load_npy


def mapped_bytes(path: Path) -> np.ndarray:
    """(n,) the bytes of a file that is not empty, read when they are looked at."""
    size = path.stat().st_size
    if os.name != "posix":  # elsewhere the file stays open as long as it is mapped
        return np.memmap(path, dtype=np.uint8, mode="r")
    with path.open("rb") as file:
        start = _system().mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), 0)
    if start == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    room = (ctypes.c_uint8 * size).from_address(start)
    let_go = weakref.finalize(room, _system().munmap, start, size)  # once no array looks at it any more
    let_go.atexit = False  # threads may still read when Python ends
    whole = np.ctypeslib.as_array(room)
    whole.flags.writeable = False
    return whole


@cache
def _system() -> ctypes.CDLL:
    """The C library, whose mmap leaves a file closed; Python's own keeps it open (before 3.13 in any case)."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def mapped_array(path: Path) -> np.ndarray:
    """A .npy of numbers whose length agrees with its header, read when it is looked at."""
    checked = load_npy(path, kinds="fiub")
    if not isinstance(checked, np.memmap) or not checked.flags.c_contiguous:
        return checked
    array: np.ndarray = mapped_bytes(path)[checked.offset :].view(checked.dtype).reshape(checked.shape)
    return array
