"""The referee: scores of a run or of any tool, measured alike; several as an ensemble, two against each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from matchlight.core import BadInput
from matchlight.files import DAMAGED_ARRAY, regular
from matchlight.measuring.evaluation_result import Evaluation
from matchlight.measuring.metrics import PairedTest, paired
from matchlight.measuring.metrics.arrays import Array
from matchlight.measuring.protocols import ALL, Measured, Options, Report, evaluate_scores, measure_scores
from matchlight.measuring.protocols.reports import BySide
from matchlight.pairs import Pairs
from matchlight.scoring.all_pairs import to_host

ScoreFiles = str | Path | Sequence[str | Path]  # one .npy matrix, or several for an ensemble


class Predicted(TypedDict, total=False):
    """What a method says of labels, for the labels protocol: options of that protocol."""

    predictions: dict[str, np.ndarray]  # (N, classes) probabilities by side
    thresholds: BySide | None  # chosen on validation data


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one split, and what a run knows besides."""

    matrix: np.ndarray | Tensor  # (pictures, captions), in file order; a tensor stays on its device
    by_labels: bool = False  # measured by labels where nobody says how
    predicted: Predicted = field(default_factory=Predicted)
    spread: BySide | None = None  # within the sets of a method that has sets

    def on_host(self) -> np.ndarray:
        """The matrix as an array in host memory (or on disk, where it came from a file)."""
        return to_host(self.matrix) if isinstance(self.matrix, Tensor) else self.matrix

    def measured(self, part: Pairs, *, protocol: str = "auto", **options: Unpack[Options]) -> Measured:
        """The report of one protocol, with the values of each query behind it."""
        kind = "labels" if self.by_labels and protocol == "auto" else protocol
        every: Options = {**options, **self.predicted}
        return measure_scores(self.matrix, part, protocol=kind, **every)

    def with_spread(self, report: Report) -> Report:
        """A report on these scores, with the spread within sets where there are sets."""
        return report if self.spread is None else {**report, "spread": self.spread}


def report_of(
    scored: Scored,
    part: Pairs,
    *,
    protocol: str = "auto",
    ci: bool = False,
    against: Scored | None = None,
    **options: Unpack[Options],
) -> Report:
    """The report on a split: `ci` adds 95% intervals, `against` a paired test with other scores of the same split."""
    if protocol == ALL:
        every: Options = {**options, **scored.predicted}
        report = evaluate_scores(scored.matrix, part, protocol=protocol, ci=ci, **every)
    else:
        mine = scored.measured(part, protocol=protocol, **options)
        report = mine.with_intervals() if ci else mine.report
        if against is not None:
            same = Scored(against.matrix, scored.by_labels)  # measured as the first one is
            report = {**report, "against": versus(mine, same.measured(part, protocol=protocol, **options))}
    return scored.with_spread(report)


def versus(mine: Measured, other: Measured) -> dict[str, PairedTest]:
    """Figure by figure, how much higher the first is than the second, with an interval and a paired test's p."""
    paths = mine.figures.sums
    return {".".join(path): paired(mine.figures.shares(path), other.figures.shares(path)) for path in paths}


# ---- from files ------------------------------------------------------------------------------------------------------


def evaluate_file(
    path: ScoreFiles,
    pairs: Pairs,
    split: str = "test",
    *,
    protocol: str = "auto",
    ci: bool = False,
    **options: Unpack[Options],
) -> Evaluation:
    """The referee alone: scores of any tool, as a .npy matrix of (pictures, captions) in file order.

    Several files make an ensemble.
    """
    report = report_of(Scored(read_scores(path)), pairs.subset(split), protocol=protocol, ci=ci, **options)
    return Evaluation(report, split, protocol)


def read_scores(path: ScoreFiles) -> np.ndarray:
    """One .npy matrix, left on disk, or the mean of several."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    matrices = [_score_file(one) for one in paths]
    for one, matrix in zip(paths, matrices, strict=True):
        if matrix.shape != matrices[0].shape:
            raise BadInput(f"{one}: scores of {matrix.shape}, but {paths[0]} holds {matrices[0].shape}")
    return matrices[0] if len(matrices) == 1 else mean_scores(matrices)


def mean_scores(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """An ensemble: the plain mean of all scores, as the papers take it."""
    total: Array = np.array(matrices[0], np.float64 if matrices[0].dtype == np.float64 else np.float32)
    for matrix in matrices[1:]:
        total += matrix
    total /= total.dtype.type(len(matrices))
    return total


@torch.inference_mode()
def mean_of(first: Tensor, others: Iterable[Tensor]) -> Tensor:
    """The same mean on the device of the first, one matrix after the other."""
    number = 1
    for matrix in others:
        first += matrix.to(first.device)
        number += 1
    return first.div_(number)


def _score_file(path: str | Path) -> np.ndarray:
    regular(Path(path))
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; --from-scores reads a .npy matrix of (pictures, captions)") from None
    except (*DAMAGED_ARRAY, OSError):  # NumPy's own words advise to unpickle
        raise BadInput(f"{path}: not a readable .npy matrix of (pictures, captions)") from None
    if not isinstance(matrix, np.ndarray):
        raise BadInput(f"{path}: an archive of arrays; --from-scores reads one .npy matrix of (pictures, captions)")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise BadInput(
            f"{path}: {matrix.dtype} of shape {matrix.shape}; a numeric (pictures, captions) matrix is needed"
        )
    return matrix
