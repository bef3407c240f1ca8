"""DivE's ablation: its three changes to slot attention, each undone, and all of them at once.

Slots start from learned vectors (else from draws of one Gaussian), a round is added to its slot (else a GRU cell mixes
it in), and the feature of the whole is added to every element (else it is not).
"""

from __future__ import annotations

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.measuring.protocols import Report, figure
from matchlight.reproduce import style
from matchlight.reproduce.dive_runs import QUICK
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, percent

DRAWN, MIXED, PARTS = {"begin": "sampled"}, {"update": "gru"}, {"whole": False}
VARIANTS = tuple(
    MethodSetup(shown, "dive", given, QUICK)
    for shown, given in (
        ("DivE, all three changes", {}),
        ("without learned slots", DRAWN),
        ("without the residual sum", MIXED),
        ("without the whole", PARTS),
        ("none of the three", {**DRAWN, **MIXED, **PARTS}),
    )
)
FULL = VARIANTS[0].shown
PUBLISHED = dict(zip((one.shown for one in VARIANTS), (430.7, 427.2, 423.3, 342.0, 0.74), strict=True))
SOURCE = "rsum on COCO 5K, DivE"
RECALLS = [(way, f"r{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)]


def ablation(work: Work) -> Result:
    """Rsum with each change undone, and how spread the sets are then."""
    work.check(VARIANTS)
    rows: list[Row] = []
    facts = []
    for seed in range(work.seeds):
        for one in VARIANTS:
            run = work.train(one, seed=seed)
            rows.append({"variant": one.shown, "seed": seed, **measured(work.measured(run, protocol="recall"))})
            facts += [run_facts(one.shown, run)] if one.shown == FULL and not seed else []
    printed = [
        {"variant": name, "rsum": percent([value]), "beside all three": percent([value - PUBLISHED[FULL]])}
        for name, value in PUBLISHED.items()
    ]
    table = [_line(rows, one.shown) for one in VARIANTS]
    return work.save(
        rows,
        lambda: _draw(rows, work.pairs.root.name or "in memory"),
        table=table,
        facts=[
            *facts,
            "the others: the same",
            f"measured on {work.split}; the paper's 5K is COCO's testall as one gallery",
        ],
        published=printed,
        source=SOURCE,
    )


def measured(report: Report) -> Row:
    """Recalls and their sum, mAP@R where all that fits is known, and the spread within sets."""
    line: Row = {f"{way} {name}": figure(report, way, name) for way, name in RECALLS}
    line["rsum"] = figure(report, "rsum")
    if "many" in report:
        line |= {f"{way} mAP@R": figure(report, "many", way, "map_at_r") for way in ("i2t", "t2i")}
    if "spread" in report:
        line |= {f"spread {side}": figure(report, "spread", side) for side in (IMAGE, TEXT)}
    return line


def _line(rows: list[Row], name: str) -> Row:
    own = _of(rows, name)
    line: Row = {"variant": name}
    for what in (key for key in own[0] if key not in ("variant", "seed") and not key.endswith(("r5", "r10"))):
        values = [row[what] for row in own]
        line[what.replace("r1", "R@1")] = float(np.mean(values)) if what.startswith("spread") else percent(values)
    return {
        **line,
        "beside all three": percent([a["rsum"] - b["rsum"] for a, b in zip(own, _of(rows, FULL), strict=True)]),
    }


def _of(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["variant"] == name]


def _draw(rows: list[Row], data: str) -> style.Figure:
    """Bars of rsum, here and as printed: two scales, since the data differ."""
    figure, axes = style.panels(1, 2, height=2.2, sharey=True)
    names = [one.shown for one in VARIANTS]
    places = np.arange(len(names))[::-1]
    mean, spread = np.array([mean_and_spread([row["rsum"] for row in _of(rows, name)]) for name in names]).T
    axes[0][0].barh(places, mean, 0.6, xerr=spread if (spread > 0).any() else None, color=style.COLOURS[0])
    printed = np.array([PUBLISHED[name] for name in names])
    ends = (mean + spread, printed)
    axes[0][1].barh(places, printed, 0.6, color="#BBBBBB", hatch="////", edgecolor="white")
    titles = (f"here: {data}", "published: COCO 5K")
    for panel, values, end, title in zip(axes[0], (mean, printed), ends, titles, strict=True):
        for y, value, x in zip(places, values, end, strict=True):
            panel.text(x + 0.015 * max(end), y, f"{value:.1f}", va="center", fontsize=6.5, color=style.GREY)
        panel.set(title=title, xlabel="rsum", xlim=(0, 1.18 * max(end)))
        panel.set_yticks(places, names)
        panel.grid(axis="y", visible=False)
    style.letter(axes[0])
    return figure
