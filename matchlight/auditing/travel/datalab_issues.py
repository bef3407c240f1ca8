"""The tables of cleanlab's Datalab: issues.csv, a line an example, and summary.csv, a line a kind of issue.

Columns are Datalab's: `is_label_issue`, `label_score`, `given_label`, `predicted_label` for class labels, and
`is_mismatch_issue`, `mismatch_score` for pairs, a kind of issue as a custom issue manager would add one. Scores are low
where something is wrong, as in Datalab.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from matchlight.auditing.travel.audited_rows import AuditedRows
from matchlight.core import BadInput
from matchlight.data.cells import safe_cell
from matchlight.data.findings import MISMATCHED, Finding

Cell = str | int | float | bool


def issues(audited: AuditedRows) -> dict[str, list[Cell]]:
    """The columns by name; row is the number of the pair, in whose place Datalab has the index."""
    findings = audited.findings
    columns: dict[str, list[Cell]] = {"row": [one.row for one in findings]}
    if audited.labelled:
        columns |= _label_issues(findings)
    if any(one.labels is None or one.reason == MISMATCHED for one in findings) or any(audited.pairs.captions):
        columns["is_mismatch_issue"] = [one.suspect and one.reason == MISMATCHED for one in findings]
        columns["mismatch_score"] = [one.score for one in findings]
    return columns


def _label_issues(findings: Sequence[Finding]) -> dict[str, list[Cell]]:
    labels = [one.labels for one in findings if one.labels is not None]
    scores = [one.label_score for one in labels]
    if any(score is None for score in scores):
        raise BadInput("pairs.csv: no column label_score, which audits did not write at first; audit the data again")
    return {
        "is_label_issue": [bool(one.side) for one in labels],
        "label_score": [score for score in scores if score is not None],
        "given_label": [one.label for one in labels],
        "predicted_label": [one.likely or one.label for one in labels],
    }


def summary(columns: dict[str, list[Cell]]) -> list[tuple[str, float, int]]:
    """(kind of issue, mean score, how many) as Datalab's issue summary has them."""
    kinds = [name[3:-6] for name in columns if name.startswith("is_") and name.endswith("_issue")]
    scores = {kind: [float(value) for value in columns[f"{kind}_score"]] for kind in kinds}
    return [
        (kind, sum(scores[kind]) / len(scores[kind]), sum(map(bool, columns[f"is_{kind}_issue"]))) for kind in kinds
    ]


def write_datalab(audited: AuditedRows, folder: Path) -> None:
    """issues.csv and summary.csv."""
    columns = issues(audited)
    _write(folder / "issues.csv", list(columns), zip(*columns.values(), strict=True))
    _write(folder / "summary.csv", ["issue_type", "score", "num_issues"], summary(columns))


def _write(path: Path, header: list[str], lines: Iterable[Sequence[Cell]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows([safe_cell(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
