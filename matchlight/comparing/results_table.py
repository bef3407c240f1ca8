"""The results of a comparison as one table: a line per method, a column per share of noise, means over seeds.

The best of a column is set in bold; one that is surely below it has stars (`measuring/significance.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from matchlight.comparing.curves import Line, Panel

FORMATS = {"rsum": "{:.1f}", "MAP": "{:.3f}"}
ACROSS = "noise in the training data"
Results = dict[str, Any]


def summary(results: Results) -> list[dict[str, Any]]:
    """A line a method: per share of noise the mean, the standard deviation and the values of its seeds."""
    lines = []
    for one in results["methods"]:
        cells = [cell for cell in results["cells"] if cell["method"] == one["label"]]
        for measure in dict.fromkeys(cell["measure"] for cell in cells):
            by_noise = {}
            for share in results["noise"]:
                values = [c["value"] for c in cells if c["noise"] == share and c["measure"] == measure]
                if values:
                    by_noise[f"{share:g}"] = {"mean": float(np.mean(values)), "std": spread(values), "values": values}
            lines.append({"method": one["label"], "shown": one["shown"], "measure": measure, "noise": by_noise})
    return lines


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


def entries(results: Results) -> list[tuple[dict[str, Any], list[Entry]]]:
    """(line of the summary, its entries, one a share of noise)."""
    lines = summary(results)
    marks = {(t["method"], t["measure"], t["noise"]): t["mark"] for t in results.get("tests", ())}
    tops = _tops(lines)
    out = []
    for line in lines:
        own = []
        for share in results["noise"]:
            found = line["noise"].get(f"{share:g}")
            mark = marks.get((line["method"], line["measure"], share), "")
            own.append(_entry(line, found, tops.get((line["measure"], f"{share:g}")), mark))
        out.append((line, own))
    return out


def _tops(lines: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The best mean of each column that has at least two."""
    columns: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        for share, found in line["noise"].items():
            columns.setdefault((line["measure"], share), []).append(found["mean"])
    return {key: max(means) for key, means in columns.items() if len(means) > 1}


def _entry(line: dict[str, Any], found: dict[str, Any] | None, top: float | None, mark: str) -> Entry:
    if found is None:
        return Entry("-")
    how = FORMATS.get(line["measure"], "{:.4g}")
    more = f" ± {how.format(found['std'])}" if len(found["values"]) > 1 else ""
    return Entry(how.format(found["mean"]) + more, found["mean"] == top, mark)


def header(results: Results) -> list[str]:
    """Methods down, shares of noise across."""
    return ["method", "measure", *(f"{100 * share:g}% noise" for share in results["noise"])]


def wide(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and rows for a terminal."""
    rows = [[line["shown"], line["measure"], *(one.plain for one in own)] for line, own in entries(results)]
    return header(results), rows


def remark(results: Results) -> str:
    """What a table was made on."""
    seeds = f"{results['seeds']} seed" + ("s, mean ± standard deviation" if results["seeds"] > 1 else "")
    return f"{results['data']}, split {results['split']}, {seeds}"


def panels(results: Results) -> list[Panel]:
    """A panel a measure: its methods against noise."""
    found: dict[str, Panel] = {}
    for line in summary(results):
        points = [(float(share), value["mean"], value["std"]) for share, value in line["noise"].items()]
        panel = found.setdefault(line["measure"], Panel(f"{line['measure']} on {results['split']}"))
        panel.lines.append(Line(line["shown"], points))
    return list(found.values()) or [Panel("comparison")]
