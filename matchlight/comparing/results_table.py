"""The results of a comparison as one table: a line per method, a column per share of noise, means over seeds.

The best of a column is set in bold; one that is surely below it has stars (`measuring/significance.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy as np

from matchlight.comparing.curves import Line, Panel
from matchlight.comparing.noise_columns import Noise, heading, is_per_picture, key, share_of
from matchlight.comparing.variants import Described
from matchlight.measuring import significance
from matchlight.measuring.protocols import Report

FORMATS = {"rsum": "{:.1f}", "MAP": "{:.3f}"}
ACROSS = "noise in the training data"


class Measurement(significance.Cell):
    """A finished cell, as its report.json and results.json hold it."""

    seconds: float
    report: Report


class Failure(TypedDict):
    """A cell that could not be trained, and why."""

    method: str
    noise: Noise
    seed: int
    why: str


class Seeds(TypedDict):
    """What the seeds of one method at one share of noise reached."""

    mean: float
    std: float
    values: list[float]


class Row(TypedDict):
    """A method's row of the table."""

    method: str
    shown: str
    measure: str
    noise: dict[str, Seeds]


class Results(TypedDict):
    """All that a comparison knows so far: results.json."""

    data: str
    split: str
    noise: list[Noise]
    seeds: int
    methods: list[Described]
    cells: list[Measurement]
    failed: list[Failure]
    table: NotRequired[list[Row]]
    tests: NotRequired[list[significance.Test]]


def summary(results: Results) -> list[Row]:
    """A row a method: per share of noise the mean, the standard deviation and the values of its seeds."""
    rows: list[Row] = []
    for one in results["methods"]:
        cells = [cell for cell in results["cells"] if cell["method"] == one["label"]]
        for measure in dict.fromkeys(cell["measure"] for cell in cells):
            by_noise: dict[str, Seeds] = {}
            for share in results["noise"]:
                values = [c["value"] for c in cells if c["noise"] == share and c["measure"] == measure]
                if values:
                    by_noise[key(share)] = {"mean": float(np.mean(values)), "std": spread(values), "values": values}
            rows.append({"method": one["label"], "shown": one["shown"], "measure": measure, "noise": by_noise})
    return rows


def spread(values: list[float]) -> float:
    """The standard deviation over seeds; 0 for one seed."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


# ---- entries of the table --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One place of the table: mean ± deviation, whether it is the best of its column, and its stars."""

    text: str
    best: bool = False
    mark: str = ""

    @property
    def plain(self) -> str:
        """For a terminal."""
        return self.text + self.mark

    @property
    def markdown(self) -> str:
        """Bold where it is the best; stars must not be taken for bold."""
        return f"**{self.text}**" if self.best else self.text + self.mark.replace("*", "\\*")

    @property
    def latex(self) -> str:
        """The same for LaTeX."""
        text = self.text.replace(" ± ", r" $\pm$ ")
        return rf"\textbf{{{text}}}" if self.best else text + (f"$^{{{self.mark}}}$" if self.mark else "")


def entries(results: Results) -> list[tuple[Row, list[Entry]]]:
    """(row of the summary, its entries, one a share of noise)."""
    rows = summary(results)
    marks = {(t["method"], t["measure"], t["noise"]): t["mark"] for t in results.get("tests", ())}
    tops = _tops(rows)
    out = []
    for row in rows:
        own = []
        for share in results["noise"]:
            seeds = row["noise"].get(key(share))
            mark = marks.get((row["method"], row["measure"], share), "")
            own.append(_entry(row["measure"], seeds, tops.get((row["measure"], key(share))), mark))
        out.append((row, own))
    return out


def _tops(rows: list[Row]) -> dict[tuple[str, str], float]:
    """The best mean of each column that has at least two."""
    columns: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for share, seeds in row["noise"].items():
            columns.setdefault((row["measure"], share), []).append(seeds["mean"])
    return {key: max(means) for key, means in columns.items() if len(means) > 1}


def _entry(measure: str, seeds: Seeds | None, top: float | None, mark: str) -> Entry:
    if seeds is None:
        return Entry("-")
    how = FORMATS.get(measure, "{:.4g}")
    more = f" ± {how.format(seeds['std'])}" if len(seeds["values"]) > 1 else ""
    return Entry(how.format(seeds["mean"]) + more, seeds["mean"] == top, mark)


def header(results: Results) -> list[str]:
    """Methods down, shares of noise across."""
    return ["method", "measure", *(heading(share) for share in results["noise"])]


def wide(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and rows for a terminal."""
    rows = [[row["shown"], row["measure"], *(one.plain for one in own)] for row, own in entries(results)]
    return header(results), rows


def remark(results: Results) -> str:
    """What a table was made on."""
    seeds = f"{results['seeds']} seed" + ("s, mean ± standard deviation" if results["seeds"] > 1 else "")
    return f"{results['data']}, split {results['split']}, {seeds}"


def panels(results: Results) -> list[Panel]:
    """A panel a measure and kind of noise: its methods against noise, which without noise is of either kind."""
    found: dict[str, Panel] = {}
    for whole in sorted({is_per_picture(noise) for noise in results["noise"]}):
        columns = [noise for noise in results["noise"] if is_per_picture(noise) == whole or not share_of(noise)]
        for row in summary(results):
            title = f"{row['measure']} on {results['split']}{', whole pictures' if whole else ''}"
            known = [(share_of(noise), row["noise"][key(noise)]) for noise in columns if key(noise) in row["noise"]]
            points = [(share, seeds["mean"], seeds["std"]) for share, seeds in known]
            found.setdefault(title, Panel(title)).lines.append(Line(row["shown"], points))
    return list(found.values()) or [Panel("comparison")]
