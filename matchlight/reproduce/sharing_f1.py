"""Who names labels best (supplement, Table 1): Micro-F1 of pictures and of texts, by method and data set."""

from __future__ import annotations

import numpy as np

from matchlight.measuring.protocols import Report, figure
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread
from matchlight.reproduce.sharing import CONSISTENT, INDEPENDENT, QUICK, SHARING, SIDES, Column, columns

DSCMR = MethodSetup("DSCMR", "dscmr", quick=QUICK)
CLASSIFIERS = (INDEPENDENT, DSCMR, CONSISTENT, SHARING)
THRESHOLDS = {"f1": "F1 at 0.5", "f1_tuned": "F1 tuned"}
SOURCE = "semantic sharing, supplement, Table 1; the threshold is not told"
PUBLISHED = {  # Micro-F1 of pictures and texts, by data set, in the order of CLASSIFIERS
    "FLICKR25K": ((0.672, 0.53), (0.634, 0.536), (0.686, 0.549), (0.690, 0.556)),
    "NUS-WIDE": ((0.644, 0.529), (0.611, 0.570), (0.651, 0.596), (0.651, 0.597)),
    "COCO1K": ((0.628, 0.623), (0.627, 0.614), (0.683, 0.632), (0.692, 0.635)),
    "COCO5K": ((0.624, 0.617), (0.538, 0.538), (0.685, 0.63), (0.689, 0.633)),
}


def classification(work: Work) -> Result:
    """Micro-F1 of pictures and texts by method: at a threshold of 0.5, and at the one that is best on val."""
    shown = columns(work)
    for column in shown:
        column.work.check(CLASSIFIERS)
    rows: list[Row] = []
    for column in shown:
        for seed in range(work.seeds):
            for one in CLASSIFIERS:
                f1 = f1_of(_report(column, one, seed))
                rows += [{"data": column.name, "method": one.shown, "seed": seed, **line} for line in f1]
    printed = [
        {"method": one.shown, **{f"{data}, {side}": v[k][s] for data, v in PUBLISHED.items() for s, side in _SIDES}}
        for k, one in enumerate(CLASSIFIERS)
    ]
    names = [column.name for column in shown]
    return work.save(
        rows,
        lambda: _draw(names, rows),
        table=[_line(names, rows, one.shown) for one in CLASSIFIERS],
        published=printed,
        source=SOURCE,
    )


_SIDES = tuple(enumerate(SIDES.values()))


def _report(column: Column, one: MethodSetup, seed: int) -> Report:
    return column.work.measured(column.work.train(one, seed=seed), protocol="labels", fold=column.fold)


def f1_of(report: Report) -> list[Row]:
    """Micro-F1 by side, plain and tuned; tuned is not there where the data has no val split."""
    tuned = "micro_f1_tuned" in report
    return [
        {
            "side": side,
            "f1": figure(report, "micro_f1", side),
            "f1_tuned": figure(report, "micro_f1_tuned", side) if tuned else None,
        }
        for side in SIDES
    ]


def _line(names: list[str], rows: list[Row], method: str) -> Row:
    line: Row = {"method": method}
    for name in names:
        for what, title in THRESHOLDS.items():
            for side, shown in SIDES.items():
                mean, spread = _f1(rows, name, method, side, what)
                head = f"{title}, {shown}" if len(names) == 1 else f"{name}: {title}, {shown}"
                line[head] = with_spread(mean, spread, seeds=len({row["seed"] for row in rows}))
    return line


def _f1(rows: list[Row], data: str, method: str, side: str, what: str) -> tuple[float, float]:
    own = [row[what] for row in rows if (row["data"], row["method"], row["side"]) == (data, method, side)]
    mean, spread = mean_and_spread([np.nan if value is None else value for value in own])
    return float(mean), float(spread)


def _draw(names: list[str], rows: list[Row]) -> style.Figure:
    """A row of panels a data set: pictures left, texts right."""
    figure, axes = style.panels(len(names), 2, height=0.6 + 1.5 * len(names), sharex=True, sharey=True)
    places = np.arange(len(CLASSIFIERS))[::-1]
    for line, data in zip(axes, names, strict=True):
        for panel, (side, title) in zip(line, SIDES.items(), strict=True):
            _draw_panel(panel, rows, data, side)
            panel.set_title(title if len(names) == 1 else f"{data}: {title}")
            panel.set_yticks(places, [one.shown for one in CLASSIFIERS])
            panel.set_ylim(-0.5, len(CLASSIFIERS) - 0.5)
            panel.grid(axis="y", visible=False)
            style.few_ticks(panel.xaxis)
    for panel in axes[-1]:
        panel.set_xlabel("Micro-F1")
    axes[0][0].set_xlim(left=-0.02 * axes[0][0].get_xlim()[1])  # a marker at 0 is seen whole
    style.letter(axes.flat)
    style.legend_below(figure, axes[0][0])
    return figure


def _draw_panel(panel: style.Axes, rows: list[Row], data: str, side: str) -> None:
    places = np.arange(len(CLASSIFIERS))[::-1]
    looks = (("f1", "threshold 0.5", 0.13, "none"), ("f1_tuned", "threshold tuned on val", -0.13, None))
    for (what, name, shift, face), colour, marker in zip(looks, style.COLOURS, style.MARKERS, strict=False):
        mean, spread = np.array([_f1(rows, data, one.shown, side, what) for one in CLASSIFIERS]).T
        dot: style.Options = {"color": colour, "mfc": face or colour, "fmt": marker, "elinewidth": 0.9, "label": name}
        panel.errorbar(mean, places + shift, xerr=spread, **dot)
