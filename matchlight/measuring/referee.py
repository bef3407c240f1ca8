"""The referee: scores of a run or of any tool, judged alike; several as an ensemble, two against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import paired
from matchlight.measuring.protocols import ALL, Judged, evaluate_scores, judge_scores
from matchlight.pairs import Pairs


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of one split, and what a run knows besides."""

    matrix: np.ndarray  # (pictures, captions), in file order
    by_labels: bool = False  # judged by labels where nobody says how
    told: dict[str, Any] = field(default_factory=dict)  # predictions and thresholds, for the labels protocol
    spread: dict[str, float] | None = None  # within the sets of a method that has sets

    def judged(self, part: Pairs, *, protocol: str = "auto", **options: Any) -> Judged:
        """The report of one protocol, with the values a query behind it."""
        kind = "labels" if self.by_labels and protocol == "auto" else protocol
        return judge_scores(self.matrix, part, protocol=kind, **options, **self.told)


def report_of(
    scored: Scored,
    part: Pairs,
    *,
    protocol: str = "auto",
    ci: bool = False,
    against: Scored | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The report on a split: `ci` adds 95% intervals, `against` a paired test with other scores of the same split."""
    if protocol == ALL:
        report = evaluate_scores(scored.matrix, part, protocol=protocol, ci=ci, **options, **scored.told)
    else:
        mine = scored.judged(part, protocol=protocol, **options)
        report = mine.with_intervals() if ci else mine.report
        if against is not None:
            same = Scored(against.matrix, scored.by_labels)  # judged as the first one is
            report = {**report, "against": versus(mine, same.judged(part, protocol=protocol, **options))}
    return report if scored.spread is None else {**report, "spread": scored.spread}


def versus(mine: Judged, other: Judged) -> dict[str, Any]:
    """Figure by figure, how much higher the first is than the second, with an interval and a paired test's p."""
    out: dict[str, Any] = {}
    for path in mine.figures.sums:
        out[".".join(path)] = paired(mine.figures.shares(path), other.figures.shares(path))
    return out


# ---- from files ------------------------------------------------------------------------------------------------------


def evaluate_file(path: Any, pairs: Pairs, split: str = "test", **options: Any) -> dict[str, Any]:
    """The referee alone: scores of any tool, as a .npy matrix of (pictures, captions) in file order.

    Several files make an ensemble. Options are those of `report_of`.
    """
    return report_of(Scored(read_scores(path)), pairs.subset(split), **options)


def read_scores(path: Any) -> np.ndarray:
    """One .npy matrix, left on disk, or the mean of several."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    matrices = [_score_file(one) for one in paths]
    for one, matrix in zip(paths, matrices, strict=True):
        if matrix.shape != matrices[0].shape:
            raise BadInput(f"{one}: scores of {matrix.shape}, but {paths[0]} holds {matrices[0].shape}")
    return matrices[0] if len(matrices) == 1 else mean_scores(matrices)


def mean_scores(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """An ensemble: the plain mean of all scores, as the papers take it."""
    wide = np.float64 if matrices[0].dtype == np.float64 else np.float32
    total: Any = np.array(matrices[0], wide)
    for matrix in matrices[1:]:
        total += matrix
    total /= wide(len(matrices))
    return np.asarray(total)


def _score_file(path: str | Path) -> np.ndarray:
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
    return matrix
