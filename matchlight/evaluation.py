"""How good a run is: encode a split, score everything, hand the matrix to the referee (protocols)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight.checkpoints import write_array
from matchlight.core import BadInput
from matchlight.encode import encode_both
from matchlight.pairs import Pairs
from matchlight.protocols import evaluate_scores
from matchlight.runs import Run
from matchlight.similarity import score_all

PRECISIONS = ("fp32", "tf32")


@contextmanager
def products_in(precision: str, device: torch.device) -> Iterator[None]:
    """Matrix products of this precision for a while: fp32 is exact, tf32 lets a GPU round their inputs."""
    if precision not in PRECISIONS:
        raise BadInput(f"--precision {precision}: {' or '.join(PRECISIONS)}")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" and device.type == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def split_scores(
    run: Run, pairs: Pairs, split: str, *, budget: int | None = None, precision: str = "fp32", quiet: bool = True
) -> np.ndarray:
    """(pictures, captions) float32 scores of one split, in file order."""
    inputs = run.inputs(pairs)
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    with products_in(precision, run.device):
        images, texts = encode_both(run.matcher, inputs.table, pictures, rows, quiet=quiet)
        return score_all(run.matcher, images, texts, budget=budget, quiet=quiet)


def evaluate(
    run: Run,
    pairs: Pairs,
    split: str = "test",
    *,
    protocol: str = "auto",
    ties: str = "worst",
    scores: str | Path | None = None,
    budget: int | None = None,
    precision: str = "fp32",
    quiet: bool = True,
) -> dict[str, Any]:
    """The report of a protocol on one split; `scores` keeps the matrix as a .npy file."""
    matrix = split_scores(run, pairs, split, budget=budget, precision=precision, quiet=quiet)
    if scores is not None:
        write_array(Path(scores), matrix)
    return evaluate_scores(matrix, pairs.subset(split), protocol=protocol, ties=ties)


def evaluate_file(path: str | Path, pairs: Pairs, split: str = "test", **options: Any) -> dict[str, Any]:
    """The referee alone: scores of any tool, as a .npy matrix of (pictures, captions) in file order."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; --from-scores reads a .npy matrix of (pictures, captions)") from None
    except (ValueError, EOFError, OSError):  # NumPy's own words advise to unpickle
        raise BadInput(f"{path}: not a readable .npy matrix of (pictures, captions)") from None
    if not isinstance(matrix, np.ndarray):
        raise BadInput(f"{path}: an archive of arrays; --from-scores reads one .npy matrix of (pictures, captions)")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise BadInput(
            f"{path}: {matrix.dtype} of shape {matrix.shape}; a numeric (pictures, captions) matrix is needed"
        )
    return evaluate_scores(matrix, pairs.subset(split), **options)
