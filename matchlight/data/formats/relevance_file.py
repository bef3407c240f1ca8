"""relevance.npz beside a data set: a sparse matrix, captions x pictures, true where a caption fits a picture.

Read from plain arrays only, and checked before use: indices that point outside would crash the sparse routines.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchlight.core import BadInput
from matchlight.data.formats.safety import inside
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FILE = "relevance.npz"


def attach(pairs: Pairs) -> Pairs:
    """The same data set with the relevance that lies beside it, if any."""
    captions, rows, pictures, kept = pairs.notes.pop("kept", (len(pairs), None, len(pairs.names), None))
    if pairs.relevance is not None or not (pairs.root / FILE).is_file():
        return pairs
    path = inside(pairs.root, FILE)
    matrix = _load(path)
    if matrix.shape == (captions, pictures) and rows is not None:  # written for the file, empty captions included
        matrix = matrix[rows][:, kept].tocsr()
    if matrix.shape != (len(pairs), len(pairs.names)):
        wanted = f"{len(pairs)} x {len(pairs.names)}"
        raise BadInput(f"{path}: is {matrix.shape[0]} x {matrix.shape[1]}; captions x pictures is {wanted} here")
    return replace(pairs, relevance=matrix)


def _load(path: Path) -> csr_matrix:
    from scipy.sparse import load_npz

    try:
        matrix = load_npz(path)
        return checked(matrix)
    except (ValueError, OSError, KeyError, TypeError, IndexError, NotImplementedError, zipfile.BadZipFile) as error:
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
