"""The results of a comparison as files: cells as CSV, the table as Markdown and LaTeX, curves, JSON and report.html."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from matchlight import files
from matchlight.comparing.curves import draw
from matchlight.comparing.noise_columns import heading
from matchlight.comparing.results_page import as_html
from matchlight.comparing.results_table import ACROSS, Results, entries, header, panels, remark, summary
from matchlight.measuring import significance

COLUMNS: tuple[Literal["method", "noise", "seed", "measure", "value", "seconds"], ...] = (
    "method",
    "noise",
    "seed",
    "measure",
    "value",
    "seconds",
)


def flat(report: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """The numbers of a report by path: i2t_r1, map_mean; lists (folds) are left out."""
    out: dict[str, float] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{prefix}{name}_")
        elif isinstance(value, int | float):
            out[f"{prefix}{name}"] = value
    return out


def as_csv(results: Results) -> str:
    """A line a cell, with every number of its report."""
    cells = [{**{name: cell[name] for name in COLUMNS}, **flat(cell["report"])} for cell in results["cells"]]
    columns = list(dict.fromkeys(name for cell in cells for name in cell)) or ["method", "noise", "seed"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return text.getvalue()


def as_markdown(results: Results) -> str:
    """The table for people, and below it what its marks mean and what could not be trained."""
    rows = [[row["shown"], row["measure"], *(one.markdown for one in own)] for row, own in entries(results)]
    marks = ["---", "---", *("---:" for _ in results["noise"])]
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (header(results), marks, *rows)
    ]
    notes = ["", significance.NOTE.replace("*", "\\*")] if results.get("tests") else []
    failed = [
        f"- {bad['method']} at {heading(bad['noise'])}, seed {bad['seed']}: {bad['why']}" for bad in results["failed"]
    ]
    return "\n".join([remark(results), "", *lines, *notes, *(["", "Not trained:", "", *failed] if failed else []), ""])


def as_latex(results: Results) -> str:
    """The table for a paper; it needs the package booktabs."""
    rows = [[tex(row["shown"]), tex(row["measure"]), *(e.latex for e in own)] for row, own in entries(results)]
    body = [" & ".join(row) + r" \\" for row in rows]
    notes = [f"% {significance.NOTE}"] if results.get("tests") else []
    return "\n".join(
        [
            f"% {' '.join(remark(results).split())}; needs \\usepackage{{booktabs}}",
            *notes,
            rf"\begin{{tabular}}{{ll{'r' * len(results['noise'])}}}",
            r"\toprule",
            " & ".join(tex(name) for name in header(results)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def tex(text: str) -> str:
    """Text as LaTeX shows it."""
    return re.sub(r"[\\~^&%$#_{}]", lambda sign: TEX.get(sign[0], "\\" + sign[0]), text)


def as_svg(results: Results) -> str:
    """The curves as a file of their own."""
    return draw(panels(results), across=ACROSS)


def write(folder: Path, results: Results) -> None:
    """table.csv, table.md, table.tex, curves.svg, results.json and report.html, each replaced whole."""
    results["table"] = summary(results)
    results["tests"] = significance.tests(results["cells"], results["noise"], significance.shares_in(folder))
    files.write_text(folder / "table.csv", as_csv(results))
    files.write_text(folder / "table.md", as_markdown(results))
    files.write_text(folder / "table.tex", as_latex(results))
    files.write_text(folder / "curves.svg", as_svg(results))
    files.write_json(folder / "results.json", results)
    files.write_text(folder / "report.html", as_html(results, folder))
