"""How good a run is: encode a split, score everything, hand the matrix to the referee (protocols)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight.checkpoints import write_array
from matchlight.core import IMAGE, TEXT, BadInput, Embeddings
from matchlight.encode import encode_both, predicted
from matchlight.metrics import best_threshold
from matchlight.pairs import Labels, Pairs
from matchlight.prepare import Inputs
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
    with products_in(precision, run.device):
        images, texts = _encoded(run, run.inputs(pairs), split, quiet=quiet)
        return score_all(run.matcher, images, texts, budget=budget, quiet=quiet)


def _encoded(run: Run, inputs: Inputs, split: str, *, quiet: bool) -> tuple[Embeddings, Embeddings]:
    """Pictures and captions of a split, in file order."""
    pairs = inputs.table.pairs
    return encode_both(run.matcher, inputs.table, pairs.pictures_of(split), pairs.rows(split), quiet=quiet)


def _predicted(run: Run, sides: tuple[Embeddings, Embeddings], labels: Labels) -> dict[str, np.ndarray]:
    """Label probabilities by side, columns as the data names its classes; empty where the method predicts none."""
    found = predicted(run.matcher, *sides)
    return {side: _columns(named, run.classes or labels.names, labels.names) for side, named in found.items()}


def _columns(found: np.ndarray, known: list[str], wanted: list[str]) -> np.ndarray:
    """Probabilities of the classes `wanted`; one that the run never saw has probability 0."""
    place = {name: k for k, name in enumerate(known[: found.shape[1]])}
    out = np.zeros((len(found), len(wanted)), np.float32)
    for column, name in enumerate(wanted):
        if name in place:
            out[:, column] = found[:, place[name]]
    return out


def _thresholds(run: Run, inputs: Inputs, split: str, *, quiet: bool) -> dict[str, float] | None:
    """By side, the threshold with the best Micro-F1 on val; None where there is no val split beside `split`."""
    pairs = inputs.table.pairs
    if split == "val" or "val" not in pairs.split_names or not len(pairs.rows("val")):
        return None
    labels = pairs.subset("val").labels
    assert labels is not None
    real = {IMAGE: labels.image, TEXT: labels.text}
    found = _predicted(run, _encoded(run, inputs, "val", quiet=quiet), labels)
    return {side: best_threshold(given, real[side]) for side, given in found.items()}


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
    """The report of a protocol on one split; `scores` keeps the matrix as a .npy file.

    `auto` is `labels` for a method that was trained by labels, else what the data suggests.
    """
    by_labels = pairs.labels is not None and (protocol == "labels" or (protocol == "auto" and run.by_labels))
    inputs = run.inputs(pairs)
    extra: dict[str, Any] = {}
    with products_in(precision, run.device):
        sides = _encoded(run, inputs, split, quiet=quiet)
        matrix = score_all(run.matcher, *sides, budget=budget, quiet=quiet)
        if by_labels and pairs.labels is not None and (found := _predicted(run, sides, pairs.labels)):
            extra = {"predictions": found, "thresholds": _thresholds(run, inputs, split, quiet=quiet)}
    if scores is not None:
        write_array(Path(scores), matrix)
    name = "labels" if by_labels else protocol
    return evaluate_scores(matrix, pairs.subset(split), protocol=name, ties=ties, **extra)


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
