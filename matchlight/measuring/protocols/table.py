"""A report as a table for the terminal; what it shows is told by the report's own keys."""

from __future__ import annotations

from typing import Any

from rich.table import Table

SIDES = {"i2t": "image to text", "t2i": "text to image", "mean": "mean", "image": "image", "text": "text"}
RECALLS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "median", "meanr": "mean rank"}
MANY = {"r1": "R@1", "map_at_r": "mAP@R", "r_precision": "R-precision"}
LABELS = {"map": "mAP", "ndcg": "NDCG", "micro_f1": "Micro-F1", "micro_f1_tuned": "Micro-F1 tuned"}
ASIDE = ("ci", "against", "thresholds", "spread")  # not figures of the protocol
Report = dict[str, Any]


def tables(report: Report) -> list[Table]:
    """The report of any protocol, or of all of them, ready to print."""
    if "left_out" not in report or not isinstance(report["left_out"], dict):
        return [table(report)]
    shown = []
    for name, each in report.items():
        if name not in (*ASIDE, "left_out"):
            shown.append(table(each))
            shown[-1].title = name
    if report["left_out"]:
        shown.append(_start("left out", "why"))
        shown[-1].columns[1].justify = "left"
        for name, why in report["left_out"].items():
            shown[-1].add_row(name, why)
    return shown


def table(report: Report) -> Table:
    """The report of one protocol, ready to print."""
    sure = report.get("ci", {})
    if "rsum" in report:
        return _recall(report, sure)
    if "bins" in report:
        return _cross(report, sure)
    figures = {name: value for name, value in report.items() if name not in ASIDE}
    if "map" in report:
        named = {LABELS[name]: figures[name] for name in LABELS if name in figures}
        return _by_side(named, {LABELS[name]: sure[name] for name in LABELS if name in sure}, digits=4)
    if set(figures) == {"i2t", "t2i"}:
        return _by_side({"PMRP": figures}, {"PMRP": sure} if sure else {}, digits=1)
    return _by_side(figures, sure, digits=4)  # the eccv-caption package's keys


def _start(*columns: str, caption: str | None = None) -> Table:
    shown = Table(caption=caption, title_justify="left", caption_justify="left")
    shown.add_column(columns[0])
    for column in columns[1:]:
        shown.add_column(column, justify="right")
    return shown


def _sure(value: float | None, ends: Any, digits: int) -> str:
    """A figure with its interval: 45.7 (34.3 to 57.1)."""
    if value is None:
        return ""
    between = f" ({ends[0]:.{digits}f} to {ends[1]:.{digits}f})" if ends else ""
    return f"{value:.{digits}f}{between}"


def _recall(report: Report, sure: Report) -> Table:
    many = report.get("many")
    if sure:  # intervals need room: figures down, sides across
        return _recall_with_intervals(report, sure)
    extra = [f"{name} (all fits)" for name in MANY.values()] if many else []
    shown = _start("", *RECALLS.values(), *extra, caption="\n".join(_captions(report, sure)))
    for side in ("i2t", "t2i"):
        figures = [f"{report[side][name]:.1f}" for name in RECALLS]
        shown.add_row(SIDES[side], *figures, *([f"{many[side][name]:.1f}" for name in MANY] if many else []))
    return shown


def _recall_with_intervals(report: Report, sure: Report) -> Table:
    shown = _start("", SIDES["i2t"], SIDES["t2i"], caption="\n".join(_captions(report, sure)))
    for name, title in RECALLS.items():
        shown.add_row(title, *(_sure(report[side][name], sure[side].get(name), 1) for side in ("i2t", "t2i")))
    for name, title in MANY.items() if "many" in report else ():
        both = [_sure(report["many"][side][name], sure["many"][side][name], 1) for side in ("i2t", "t2i")]
        shown.add_row(f"{title} (all fits)", *both)
    return shown


def _captions(report: Report, sure: Report) -> list[str]:
    count = f"{report['pictures']} pictures, {report['captions']} captions"
    folds = f", mean of {len(report['folds'])} folds" if "folds" in report else ""
    between = "; in brackets: 95% intervals" if sure else ""
    lines = [f"rsum {_sure(report['rsum'], sure.get('rsum'), 1)}; {count}{folds}{between}"]
    if "summaries" in report:
        wrong = report["summaries"]
        lines.append(f"(SCAN's code would print an rsum of {wrong['scan']['rsum']:.1f}, ")
        lines[-1] += f"VSE++'s {wrong['vse++']['rsum']:.1f}: both read a wrong column)"
    return lines


def _by_side(figures: dict[str, dict[str, float]], sure: Report, *, digits: int) -> Table:
    sides = list(dict.fromkeys(side for values in figures.values() for side in values))
    shown = _start("", *(SIDES.get(side, side) for side in sides))
    for name, values in figures.items():
        ends = sure.get(name, {})
        shown.add_row(name, *(_sure(values.get(side), ends.get(side), digits) for side in sides))
    return shown


def _cross(report: Report, sure: Report) -> Table:
    middle = f"median {report['median']:.1f}, mean {report['mean']:.1f}; {report['pairs']} pairs"
    if sure:
        first, far = (_sure(report[name], sure[name], 1) for name in ("first", "above_200"))
        middle += f"\nfirst both ways, %: {first}; beyond 200, %: {far}"
    shown = _start("cross rank", "pairs", "share", caption=middle)
    for name, count in report["bins"].items():
        shown.add_row(name, str(count), f"{100 * count / report['pairs']:.1f}%")
    return shown
