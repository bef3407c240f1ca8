"""A report as a table for the terminal; what it shows is told by the report's own keys."""

from __future__ import annotations

from typing import Any

from rich.table import Table

SIDES = {"i2t": "image to text", "t2i": "text to image", "mean": "mean", "image": "image", "text": "text"}
RECALLS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "median", "meanr": "mean rank"}
MANY = {"r1": "R@1", "map_at_r": "mAP@R", "r_precision": "R-precision"}
LABELS = {"map": "mAP", "ndcg": "NDCG", "micro_f1": "Micro-F1", "micro_f1_tuned": "Micro-F1 tuned"}


def table(report: dict[str, Any]) -> Table:
    """The report of any protocol, ready to print."""
    if "rsum" in report:
        return _recall(report)
    if "bins" in report:
        return _cross(report)
    if "map" in report:
        return _by_side({LABELS[name]: report[name] for name in LABELS if name in report}, digits=4)
    if set(report) == {"i2t", "t2i"}:
        return _by_side({"PMRP": report}, digits=1)
    return _by_side(report, digits=4)  # the eccv-caption package's keys


def _start(*columns: str, title: str | None = None, caption: str | None = None) -> Table:
    shown = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    shown.add_column(columns[0])
    for column in columns[1:]:
        shown.add_column(column, justify="right")
    return shown


def _recall(report: dict[str, Any]) -> Table:
    count = f"{report['pictures']} pictures, {report['captions']} captions"
    folds = f", mean of {len(report['folds'])} folds" if "folds" in report else ""
    many = report.get("many")
    extra = [f"{name} (all fits)" for name in MANY.values()] if many else []
    shown = _start("", *RECALLS.values(), *extra, caption=f"rsum {report['rsum']:.1f}; {count}{folds}")
    for side in ("i2t", "t2i"):
        figures = [f"{report[side][name]:.1f}" for name in RECALLS]
        shown.add_row(SIDES[side], *figures, *([f"{many[side][name]:.1f}" for name in MANY] if many else []))
    return shown


def _by_side(figures: dict[str, dict[str, float]], *, digits: int) -> Table:
    sides = list(dict.fromkeys(side for values in figures.values() for side in values))
    shown = _start("", *(SIDES.get(side, side) for side in sides))
    for name, values in figures.items():
        shown.add_row(name, *(f"{values[side]:.{digits}f}" if side in values else "" for side in sides))
    return shown


def _cross(report: dict[str, Any]) -> Table:
    middle = f"median {report['median']:.1f}, mean {report['mean']:.1f}; {report['pairs']} pairs"
    shown = _start("cross rank", "pairs", "share", caption=middle)
    for name, count in report["bins"].items():
        shown.add_row(name, str(count), f"{100 * count / report['pairs']:.1f}%")
    return shown
