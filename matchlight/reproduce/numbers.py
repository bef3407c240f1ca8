"""The numbers behind a figure, as CSV for programs, JSON for both and Markdown for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from matchlight.data.cells import safe_cell

Row = dict[str, Any]  # a line of a table: numbers, which are computed with, and text


def as_csv(rows: Sequence[Row]) -> str:
    """A line a row, columns in the order they first appear; texts that a spreadsheet would run are quoted."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: safe_cell(v) if isinstance(v, str) else plain(v) for name, v in row.items()} for row in rows
    )
    return text.getvalue()


def as_markdown(table: Sequence[Row]) -> str:
    """A table for people."""
    columns = list(dict.fromkeys(name for row in table for name in row))
    lines = [columns, ["---", *("---:" for _ in columns[1:])]]
    lines += [[shown(row.get(name)) for name in columns] for row in table]
    return "".join("| " + " | ".join(entry.replace("|", "\\|") for entry in line) + " |\n" for line in lines)


def shown(value: object) -> str:
    """A value in a table: 0.438; - where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def plain(value: object) -> object:
    """What JSON can say: arrays as lists, paths as text, numbers that are none as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def mean_and_spread(values: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over seeds (the first axis); 0 for one seed."""
    array = np.asarray(values, np.float64)
    spread = array.std(0, ddof=1) if len(array) > 1 else np.zeros(array.shape[1:])
    return array.mean(0), np.asarray(spread)


def mean_report(reports: Sequence[Row]) -> Row:
    """The mean of several reports of one kind, figure by figure; what is no number is that of the first."""
    first = reports[0]
    out: Row = {}
    for name, value in first.items():
        every = [one[name] for one in reports if name in one]
        if isinstance(value, dict):
            out[name] = mean_report(every)
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            out[name] = float(np.mean(every)) if number else value
    return out


def with_spread(mean: float, spread: float, *, seeds: int) -> str | float:
    """A table's entry: the mean, and how seeds differ where there are several."""
    return float(mean) if seeds < 2 else f"{mean:.3f} ± {spread:.3f}"


def percent(values: Sequence[float] | np.ndarray) -> str:
    """Percentages of one or several seeds, to one decimal."""
    mean, spread = mean_and_spread(values)
    return f"{mean:.1f}" if len(values) < 2 else f"{mean:.1f} ± {spread:.1f}"
