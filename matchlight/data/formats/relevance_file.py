"""relevance.npz beside a data set: a sparse matrix, captions x pictures, true where a caption fits a picture.

Read from plain arrays only, and checked before use: indices that point outside would crash the sparse routines.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.safety import inside
from matchlight.files import DAMAGED_ARRAY
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FILE = "relevance.npz"
WRITES = "scipy.sparse.save_npz writes such a file"
BYTES, MARGIN = 24, 1 << 20  # of a value with its row and column; of headers and of where rows begin


def attach(pairs: Pairs) -> Pairs:
    """The same data set with the relevance that lies beside it, if any."""
    captions, rows, pictures, kept = pairs.notes.pop("kept", (len(pairs), None, len(pairs.names), None))
    if pairs.relevance is not None or not len(pairs) or not (pairs.root / FILE).is_file():
        return pairs
    path = inside(pairs.root, FILE)
    _check_size(path, [(captions, pictures), (len(pairs), len(pairs.names))])
    matrix = _load(path)
    if matrix.shape == (captions, pictures) and rows is not None:  # written for the file, empty captions included
        matrix = matrix[rows][:, kept].tocsr()
    if matrix.shape != (len(pairs), len(pairs.names)):
        raise _misshapen(path, matrix.shape, (len(pairs), len(pairs.names)))
    return replace(pairs, relevance=matrix)


def _misshapen(path: Path, shape: tuple[int, ...], wanted: tuple[int, int]) -> BadInput:
    said = " x ".join(map(str, shape))
    return BadInput(f"{path}: is {said}; captions x pictures is {wanted[0]} x {wanted[1]} here")


def _check_size(path: Path, shapes: list[tuple[int, int]]) -> None:
    """Refuse a matrix of another shape, or one that unpacks to more than a whole one has, before it is unpacked."""
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
            if (own := packed.getinfo("shape.npy").file_size) > 1_000:
                raise BadInput(f"{path}: its shape is {own} bytes long; {WRITES}")
        with np.load(path, allow_pickle=False) as arrays:
            shape = tuple(int(length) for length in np.atleast_1d(arrays["shape"]))
    except BadInput:
        raise
    except (*DAMAGED_ARRAY, OSError, KeyError, zlib.error, zipfile.BadZipFile):
        return  # told when it is read
    if shape not in shapes:
        raise _misshapen(path, shape, shapes[-1])
    most = min(8 << 30, MARGIN + BYTES * max(rows * columns + rows + columns for rows, columns in shapes))
    if size > most:
        raise BadInput(f"{path}: unpacks to {size:,} bytes; {shape[0]} x {shape[1]} needs {most:,} at most")


def _load(path: Path) -> csr_matrix:
    from scipy.sparse import load_npz

    try:
        matrix = load_npz(path)
        return checked(matrix)
    except (*DAMAGED_ARRAY, OSError, LookupError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
        raise BadInput(f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it") from error


def checked(matrix: Any) -> csr_matrix:
    """A boolean CSR matrix whose indices are known to lie inside; ValueError otherwise."""
    from scipy.sparse import csr_matrix

    if matrix.format not in ("csr", "csc", "coo"):
        raise ValueError(f"{matrix.format} is no format of relevance")
    if matrix.format != "coo":  # coo is checked when it is made
        matrix.check_format(full_check=True)
    plain = csr_matrix(matrix, dtype=bool)
    plain.sum_duplicates()
    plain.eliminate_zeros()
    return plain
