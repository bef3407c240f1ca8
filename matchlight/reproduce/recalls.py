"""The six recalls of a run or of a score file, as exhibits of pairs show them: both ways, and their sum."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matchlight.measuring.protocols import figure
from matchlight.reproduce.exhibits import Work
from matchlight.reproduce.numbers import Row, percent
from matchlight.runs.folder import Run

RECALLS = [(way, f"r{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)]


def columns() -> list[str]:
    """What they are called."""
    return [f"{way} R@{name[1:]}" for way, name in RECALLS]


def recalls(work: Work, source: Run | Path, *, fold: int | None = None) -> Row:
    """R@1, R@5, R@10 both ways and their sum on the split that is shown; with folds, the mean over them."""
    report = work.measured(source, protocol="recall", fold=fold)
    six = {column: figure(report, *place) for column, place in zip(columns(), RECALLS, strict=True)}
    return {**six, "rsum": figure(report, "rsum")}


def over_seeds(rows: Sequence[Row]) -> Row:
    """A line of a table: the mean of each recall over seeds, with the deviation where there are several."""
    return {name: percent([row[name] for row in rows]) for name in (*columns(), "rsum")}


def printed(six: Sequence[float]) -> Row:
    """Published recalls as a line of a table."""
    shown = {name: percent([value]) for name, value in zip(columns(), six, strict=True)}
    return {**shown, "rsum": percent([sum(six)])}
