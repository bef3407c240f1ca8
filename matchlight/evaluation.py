"""How good a run is: encode a split, score everything, hand the matrix to the referee (protocols)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from matchlight.checkpoints import write_array
from matchlight.core import BadInput
from matchlight.encode import encode_both
from matchlight.pairs import Pairs
from matchlight.protocols import evaluate_scores
from matchlight.runs import Run
from matchlight.similarity import score_all


def split_scores(run: Run, pairs: Pairs, split: str, *, budget: int | None = None, quiet: bool = True) -> np.ndarray:
    """(pictures, captions) float32 scores of one split, in file order."""
    inputs = run.inputs(pairs)
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
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
    quiet: bool = True,
) -> dict[str, Any]:
    """The report of a protocol on one split; `scores` keeps the matrix as a .npy file."""
    matrix = split_scores(run, pairs, split, budget=budget, quiet=quiet)
    if scores is not None:
        write_array(Path(scores), matrix)
    return evaluate_scores(matrix, pairs.subset(split), protocol=protocol, ties=ties)


def evaluate_file(path: str | Path, pairs: Pairs, split: str = "test", **options: Any) -> dict[str, Any]:
    """The referee alone: scores of any tool, as a .npy matrix of (pictures, captions) in file order."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; --from-scores reads a .npy matrix of (pictures, captions)") from None
    except (ValueError, EOFError, OSError) as problem:
        raise BadInput(f"{path}: not a readable .npy matrix: {problem}") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise BadInput(
            f"{path}: {matrix.dtype} of shape {matrix.shape}; a numeric (pictures, captions) matrix is needed"
        )
    return evaluate_scores(matrix, pairs.subset(split), **options)
