"""A report as a table for the terminal; the report's own keys say which kind it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from matchlight.measuring.protocols.reports import Report, figure

SIDES = {"i2t": "image to text", "t2i": "text to image", "mean": "mean", "image": "image", "text": "text"}
BOTH = ("i2t", "t2i")
RECALLS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "median", "meanr": "mean rank"}
MANY = {"r1": "R@1", "map_at_r": "mAP@R", "r_precision": "R-precision"}
LABELS = {"map": "mAP", "ndcg": "NDCG", "micro_f1": "Micro-F1", "micro_f1_tuned": "Micro-F1 tuned"}
ASIDE = ("ci", "against", "thresholds", "spread")  # not figures of the protocol


def tables(report: Report) -> list[Table]:
    """The report of any protocol, or of all of them, ready to print."""
    left_out = _inside(report, "left_out")
    if left_out is None:
        return [table(report)]
    shown = []
    for name in report:
        each = _inside(report, name)
        if each is not None and name not in (*ASIDE, "left_out"):
            shown.append(table(each))
            shown[-1].title = name
    if left_out:
        shown.append(_start("left out", "why"))
        shown[-1].columns[1].justify = "left"
        for name, why in left_out.items():
            shown[-1].add_row(name, str(why))
    return shown


def table(report: Report) -> Table:
    """The report of one protocol, ready to print."""
    if "rsum" in report:
        return _recall(report)
    if "bins" in report:
        return _cross_rank(report)
    figures = [name for name in report if name not in ASIDE]
    if "map" in report:
        return _by_side(report, {name: title for name, title in LABELS.items() if name in figures}, digits=4)
    if set(figures) == set(BOTH):
        sure = {"PMRP": report["ci"]} if "ci" in report else {}
        return _by_side({"PMRP": {side: report[side] for side in BOTH}, "ci": sure}, {"PMRP": "PMRP"}, digits=1)
    return _by_side(report, {name: name for name in figures}, digits=4)  # the eccv-caption package's keys


def _inside(report: Report, name: str) -> Report | None:
    """What a report holds under a name, where that is a report or an object again."""
    value = report.get(name)
    return value if isinstance(value, Mapping) else None


def _start(*columns: str, caption: str | None = None) -> Table:
    shown = Table(caption=caption, title_justify="left", caption_justify="left")
    shown.add_column(columns[0])
    for column in columns[1:]:
        shown.add_column(column, justify="right")
    return shown


def _ends(report: Report, *path: str) -> Sequence[float]:
    """The interval of the figure at a path; empty where there is none."""
    value: object = report.get("ci")
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, list) else ()


def _with_interval(report: Report, *path: str, digits: int = 1) -> str:
    """A figure, with its interval where there is one: 45.7 (34.3 to 57.1)."""
    ends = _ends(report, *path)
    between = f" ({ends[0]:.{digits}f} to {ends[1]:.{digits}f})" if ends else ""
    return f"{figure(report, *path):.{digits}f}{between}"


def _recall(report: Report) -> Table:
    if report.get("ci"):  # intervals need room: figures down, sides across
        return _recall_with_intervals(report)
    many = "many" in report
    extra = [f"{name} (all fits)" for name in MANY.values()] if many else []
    shown = _start("", *RECALLS.values(), *extra, caption="\n".join(_recall_captions(report)))
    for side in BOTH:
        paths = [(side, name) for name in RECALLS] + ([("many", side, name) for name in MANY] if many else [])
        shown.add_row(SIDES[side], *(f"{figure(report, *path):.1f}" for path in paths))
    return shown


def _recall_with_intervals(report: Report) -> Table:
    shown = _start("", SIDES["i2t"], SIDES["t2i"], caption="\n".join(_recall_captions(report)))
    for name, title in RECALLS.items():
        shown.add_row(title, *(_with_interval(report, side, name) for side in BOTH))
    for name, title in MANY.items() if "many" in report else ():
        shown.add_row(f"{title} (all fits)", *(_with_interval(report, "many", side, name) for side in BOTH))
    return shown


def _recall_captions(report: Report) -> list[str]:
    count = f"{report['pictures']} pictures, {report['captions']} captions"
    each = report.get("folds")
    folds = f", mean of {len(each)} folds" if isinstance(each, list) else ""
    between = "; in brackets: 95% intervals" if report.get("ci") else ""
    lines = [f"rsum {_with_interval(report, 'rsum')}; {count}{folds}{between}"]
    if "summaries" in report:
        scan, vse = (figure(report, "summaries", name, "rsum") for name in ("scan", "vse++"))
        lines.append(f"(SCAN's code would print an rsum of {scan:.1f}, VSE++'s {vse:.1f}: both read a wrong column)")
    return lines


def _by_side(report: Report, titles: Mapping[str, str], *, digits: int) -> Table:
    """Figures down, sides across."""
    inside = {name: _inside(report, name) or {} for name in titles}
    sides = list(dict.fromkeys(side for values in inside.values() for side in values))
    shown = _start("", *(SIDES.get(side, side) for side in sides))
    for name, title in titles.items():
        known = {side: _with_interval(report, name, side, digits=digits) for side in inside[name]}
        shown.add_row(title, *(known.get(side, "") for side in sides))
    return shown


def _cross_rank(report: Report) -> Table:
    pairs, bins = figure(report, "pairs"), _inside(report, "bins") or {}
    middle = f"median {figure(report, 'median'):.1f}, mean {figure(report, 'mean'):.1f}; {pairs} pairs"
    if report.get("ci"):
        first, far = (_with_interval(report, name) for name in ("first", "above_200"))
        middle += f"\nfirst both ways, %: {first}; beyond 200, %: {far}"
    shown = _start("cross rank", "pairs", "share", caption=middle)
    for name in bins:
        count = figure(bins, name)
        shown.add_row(name, str(count), f"{100 * count / pairs:.1f}%")
    return shown
