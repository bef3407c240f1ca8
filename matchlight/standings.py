"""What a comparison found, for people and for programs: a table, every cell as CSV, the curves, the whole as JSON."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from matchlight import checkpoints
from matchlight.curves import Line, Panel, draw

FORMATS = {"rsum": "{:.1f}", "MAP": "{:.3f}"}


def summary(results: dict[str, Any]) -> list[dict[str, Any]]:
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


def wide(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows for people: methods down, shares of noise across."""
    header = ["method", "measure", *(f"{100 * share:g}% noise" for share in results["noise"])]
    return header, [[line["shown"], line["measure"], *_entries(line, results)] for line in summary(results)]


def _entries(line: dict[str, Any], results: dict[str, Any]) -> list[str]:
    out = []
    for share in results["noise"]:
        found = line["noise"].get(f"{share:g}")
        how = FORMATS[line["measure"]]
        more = "" if not found or len(found["values"]) < 2 else f" ± {how.format(found['std'])}"
        out.append(how.format(found["mean"]) + more if found else "-")
    return out


def flat(report: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a report by path: i2t_r1, map_mean; lists (folds) are left out."""
    out: dict[str, float] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            out[f"{prefix}{name}"] = value
    return out


def as_csv(results: dict[str, Any]) -> str:
    """A line a cell, with every number of its report."""
    cells = [{**_short(cell), **flat(cell["report"])} for cell in results["cells"]]
    columns = list(dict.fromkeys(name for cell in cells for name in cell)) or ["method", "noise", "seed"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return text.getvalue()


def _short(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: cell[name] for name in ("method", "noise", "seed", "measure", "value", "seconds")}


def as_markdown(results: dict[str, Any]) -> str:
    """The table for people, and below it what could not be trained."""
    header, rows = wide(results)
    marks = ["---", "---", *("---:" for _ in results["noise"])]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (header, marks, *rows)]
    seeds = f"{results['seeds']} seed" + ("s, mean ± standard deviation" if results["seeds"] > 1 else "")
    notes = [
        f"- {bad['method']} at {100 * bad['noise']:g}% noise, seed {bad['seed']}: {bad['why']}"
        for bad in results["failed"]
    ]
    said = f"{results['data']}, split {results['split']}, {seeds}"
    return "\n".join([said, "", *lines, *(["", "Not trained:", "", *notes] if notes else []), ""])


def as_svg(results: dict[str, Any]) -> str:
    """A panel a measure: its methods against noise."""
    panels: dict[str, Panel] = {}
    for line in summary(results):
        points = [(float(share), found["mean"], found["std"]) for share, found in line["noise"].items()]
        panel = panels.setdefault(line["measure"], Panel(f"{line['measure']} on {results['split']}"))
        panel.lines.append(Line(line["shown"], points))
    return draw(list(panels.values()) or [Panel("comparison")], across="noise in the training data")


def write(folder: Path, results: dict[str, Any]) -> None:
    """table.csv, table.md, curves.svg and results.json, each replaced whole."""
    results["table"] = summary(results)
    checkpoints.write_text(folder / "table.csv", as_csv(results))
    checkpoints.write_text(folder / "table.md", as_markdown(results))
    checkpoints.write_text(folder / "curves.svg", as_svg(results))
    checkpoints.write_json(folder / "results.json", results)
