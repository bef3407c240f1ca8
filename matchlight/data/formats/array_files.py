"""Named arrays out of .mat, .h5 and .npz files: numbers only, nothing followed, nothing run.

HDF5 can point at other files (external links, external storage, virtual data sets) and soft links can point anywhere:
all are refused. MATLAB objects, cells and functions are passed over. Pickled arrays are never read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.safety import check_size

if TYPE_CHECKING:
    import h5py

Wanted = Callable[[str], bool]
NUMBERS = {"double", "single", "logical"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
DENSEST = 1000  # an array this much larger than what is stored of it is no data


def arrays(path: Path, wanted: Wanted) -> dict[str, np.ndarray]:
    """The wanted arrays of a file, by its kind."""
    suffix = path.suffix.lower()
    return (mat if suffix == ".mat" else npz if suffix == ".npz" else h5)(path, wanted)


def names(path: Path) -> list[str]:
    """What the arrays of a file are called, without reading them; none if it is no such file."""
    try:
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as packed:
                return [name.removesuffix(".npy") for name in packed.namelist()]
        if path.suffix.lower() == ".mat" and not _is_h5(path):
            from scipy.io import whosmat

            return [name for name, _, _ in whosmat(str(path))]
        import h5py

        with h5py.File(path, "r") as file:
            return list(file)
    except Exception:  # three parsers, each with errors of its own; reading says what is wrong
        return []


def _is_h5(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"\x89HDF") or head[512:].startswith(b"\x89HDF")


def mat(path: Path, wanted: Wanted) -> dict[str, np.ndarray]:
    """Numbers of a MATLAB file, up to 7.2 by SciPy, 7.3 (which is HDF5, axes reversed) by h5py."""
    if _is_h5(path):
        return {name: value.T for name, value in h5(path, wanted).items()}
    from scipy.io import loadmat, whosmat

    try:
        listed = {name: (shape, kind) for name, shape, kind in whosmat(str(path)) if wanted(name) and kind in NUMBERS}
        sparse = [name for name, _, kind in whosmat(str(path)) if wanted(name) and kind == "sparse"]
        if sparse:
            raise BadInput(
                f"{path}: {sparse[0]} is a sparse matrix; save it in full, as MATLAB's full({sparse[0]}) gives it"
            )
        for name, (shape, _) in listed.items():
            check_size(shape, np.float64, f"{path} {name}")
        arrays = loadmat(str(path), variable_names=list(listed)) if listed else {}
    except BadInput:
        raise
    except Exception as error:  # a parser of a binary format: damaged bytes raise anything
        raise BadInput(f"{path}: not a MATLAB file, or damaged") from error
    return {name: arrays[name] for name in listed if name in arrays}


def npz(path: Path, wanted: Wanted) -> dict[str, np.ndarray]:
    """Numbers of a .npz."""
    try:
        with np.load(path, allow_pickle=False) as packed:
            sizes = {info.filename.removesuffix(".npy"): info for info in packed.zip.infolist()}
            for name in filter(wanted, packed.files):
                _check_packed(sizes[name].file_size, sizes[name].compress_size, f"{path} {name}")
            return {name: _numbers(packed[name], f"{path} {name}") for name in packed.files if wanted(name)}
    except BadInput:
        raise
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        if "pickle" in str(error).lower():
            raise BadInput(f"{path}: holds pickled objects, which are never read; save plain numbers") from error
        raise BadInput(f"{path}: not a .npz file, or damaged") from error
    except Exception as error:  # zlib and struct errors of damaged members
        raise BadInput(f"{path}: not a .npz file, or damaged") from error


def h5(path: Path, wanted: Wanted) -> dict[str, np.ndarray]:
    """Numbers of an HDF5 file's top level."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return {name: _dataset(file, name, path) for name in file if wanted(name)}
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, MemoryError) as error:
        raise BadInput(f"{path}: not an HDF5 file, or damaged") from error


def _dataset(file: h5py.File, name: str, path: Path) -> np.ndarray:
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise BadInput(f"{path}: {name} is a link, which is never followed; put the data itself there")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        raise BadInput(f"{path}: {name} is no array")
    if dataset.external or dataset.is_virtual:
        raise BadInput(f"{path}: {name} keeps its values in another file, which is never opened")
    if dataset.dtype.kind not in "fiub":
        raise BadInput(f"{path}: {name} holds {dataset.dtype} values; numbers are needed")
    check_size(dataset.shape, dataset.dtype, f"{path} {name}")
    _check_packed(dataset.nbytes, dataset.id.get_storage_size(), f"{path} {name}")
    return dataset[()]


def _check_packed(size: int, stored: int, where: str) -> None:
    check_size((size,), np.uint8, where)
    if size > (1 << 28) and size > DENSEST * max(stored, 1):
        raise BadInput(f"{where}: {size} bytes out of {stored} stored; this is no data")


def _numbers(array: np.ndarray, where: str) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{where}: holds {array.dtype} values; numbers are needed")
    return array
