"""What keeps a data set inside its own folder, its arrays plain numbers, and its output whole or absent.

A data set comes from strangers. Names written in it are places below its folder and nothing else: no absolute path, no
`..`, no link that leads out. Arrays are read only if the file's length agrees with its header and they hold numbers.
Output is written beside its final place and moved there when complete, so that a crash never leaves half a data set.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from matchlight.console import BadInput
from matchlight.files import DAMAGED_ARRAY

MAX_FILE = 1 << 29  # bytes of one picture file; a larger one is no picture of 64 megapixels
MAX_ARRAY = 1 << 36  # bytes of one array read into memory
ROWS = 1 << 14  # of an array that are checked at once


def safe_name(name: str) -> str | None:
    """A place below the data folder, written plainly (`a/b.jpg`); None if it is absolute or climbs out."""
    if not name or name[0] == "/" or "\0" in name or (len(name) > 1 and name[1] == ":"):
        return None
    if ".." not in name and "//" not in name and "./" not in name and "\\" not in name:
        return name
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    return None if ".." in parts or not parts else "/".join(parts)


def is_inside(root: str, path: str) -> bool:
    """True if `path`, with every link followed, is `root` (already real) or below it."""
    real = os.path.realpath(path)
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


def inside(root: Path, name: str) -> Path:
    """The file `name` of the data folder; a link that leads out of the folder is refused."""
    path = root / name
    if not is_inside(os.path.realpath(root), str(path)):
        raise BadInput(f"{path}: this link leaves the data folder; put the file itself there instead")
    return path


def stays_inside(root: Path, path: Path) -> bool:
    """Whether a file of the data folder is one of its own, or linked to one; others are passed over, not read."""
    return is_inside(os.path.realpath(root), str(path))


def read_regular(path: str | Path, *, limit: int = MAX_FILE) -> bytes:
    """The bytes of a regular file (never a pipe or a device, which could block for ever)."""
    place = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        about = os.fstat(place)
        if not stat.S_ISREG(about.st_mode):
            raise OSError("not a regular file")
        if about.st_size > limit:
            raise OSError(f"{about.st_size} bytes, more than the {limit} allowed")
        return read_range(place, 0, about.st_size)
    finally:
        os.close(place)


def read_range(place: int, offset: int, size: int) -> bytes:
    """`size` bytes at `offset` of an open file, without moving its position: safe among threads."""
    parts = []
    while size > 0:
        part = os.pread(place, min(size, 1 << 30), offset)
        if not part:
            raise OSError("the file ends early")
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_size(shape: tuple[int, ...], dtype: npt.DTypeLike, where: str) -> None:
    """Refuse an array whose header promises more than memory could hold."""
    count = 1
    for length in shape:
        count *= int(length)
    if count * np.dtype(dtype).itemsize > MAX_ARRAY:
        raise BadInput(f"{where}: an array of shape {shape} is too large to read; split the file")


def load_npy(path: Path, *, kinds: str = "fiub") -> np.ndarray:
    """A memory-mapped .npy of numbers whose length agrees with its header; never a pickled one."""
    shape, fortran, dtype, offset = _npy_header(path)
    if dtype.kind not in kinds or dtype.hasobject:
        raise BadInput(
            f"{path}: holds {dtype} values; a .npy of plain numbers is needed (pickled arrays are never read)"
        )
    if not shape or any(type(length) is not int or length < 0 for length in shape):  # True would pass for 1
        raise BadInput(f"{path}: its header says shape {shape}; an array with a row a picture is needed, (n, dim) say")
    count = 1
    for length in shape:
        count *= length
    expected, there = offset + count * dtype.itemsize, path.stat().st_size
    if there != expected:
        raise BadInput(
            f"{path}: {there} bytes, but its header {shape} {dtype} needs {expected}; the file is cut or damaged"
        )
    if count == 0:
        raise BadInput(f"{path}: holds no values (shape {shape})")
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")


def _npy_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    reading = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            shape, fortran, dtype = reading[version](file)
            return shape, fortran, dtype, file.tell()
    except (*DAMAGED_ARRAY, KeyError, SyntaxError) as error:
        raise BadInput(f"{path}: not a .npy file, or its header is damaged") from error


def finite(array: np.ndarray, where: str) -> np.ndarray:
    """The array as it is, or one line naming the first row with NaN or infinite values."""
    rows = bad_rows(array)
    if len(rows):
        raise BadInput(f"{where}: row {rows[0]} holds NaN or infinite values ({len(rows)} such rows)")
    return array


def bad_rows(array: np.ndarray) -> np.ndarray:
    """Places of the rows that hold NaN or infinite values."""
    if array.dtype.kind != "f":
        return np.zeros(0, dtype=np.int64)
    flat = array.reshape(len(array), -1)
    starts = range(0, len(flat), ROWS)  # the array may be larger than memory
    found = [start + np.flatnonzero(~np.isfinite(flat[start : start + ROWS]).all(1)) for start in starts]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
