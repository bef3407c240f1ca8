"""DivE's control for capacity (supplement, B.1): one vector made as long as costs what sets of vectors cost.

Comparing two sets of K vectors takes K x K products of vectors. VSE-infinity with vectors K x K times as long costs as
much; if length were what helps, it would find as much.
"""

from __future__ import annotations

import numpy as np

from matchlight.measuring.protocols import figure
from matchlight.reproduce import style
from matchlight.reproduce.dive_cost import SETS, flops
from matchlight.reproduce.dive_cost import VSE as ONE_VECTOR
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, percent

QUICK = {"epochs": 3, "dim": 32, "head_dim": 16}
PLAIN = MethodSetup("VSE-infinity", "vse_infty", quick=QUICK)
DIVE = MethodSetup("DivE", "dive", quick=QUICK)
WIDE = "VSE-infinity, widened"
SOURCE = "DivE, supplement, B.1: FLOPs, and that the widened model loses 10.8 of rsum on Flickr30K; no rsum is printed"
PUBLISHED = ((PLAIN.shown, 1, None), (WIDE, 16, -10.8), (DIVE.shown, 16, None))


def capacity(work: Work) -> Result:
    """Rsum and FLOPs of a comparison: VSE-infinity, the same as dear as DivE, and DivE."""
    work.check((PLAIN, DIVE))
    sets = work.settled(DIVE)
    dim, slots = _number(sets["dim"]), _number(sets["slots"])
    wide = MethodSetup(WIDE, "vse_infty", {"dim": dim * slots**2}, QUICK)
    cost = {PLAIN.shown: flops(_number(work.settled(PLAIN)["dim"]), 1, 0.0)[ONE_VECTOR]}
    cost |= {WIDE: flops(dim * slots**2, 1, 0.0)[ONE_VECTOR], DIVE.shown: flops(dim, slots, 0.0)[SETS]}
    rows: list[Row] = []
    facts: dict[str, None] = {}
    for seed in range(work.seeds):
        for one in (PLAIN, wide, DIVE):
            run = work.train(one, seed=seed)
            rsum = figure(work.measured(run, protocol="recall"), "rsum")
            rows.append({"model": one.shown, "seed": seed, "flops": cost[one.shown], "rsum": rsum})
            facts[run_facts(one.shown, run)] = None
    return work.save(
        rows,
        lambda: _draw(rows, cost),
        table=[_line(rows, name, cost) for name in cost],
        facts=[*facts, "FLOPs: products of one comparison, features already encoded"],
        published=[{"model": n, "FLOPs, ratio": f, "rsum beside VSE-infinity": change} for n, f, change in PUBLISHED],
        source=SOURCE,
    )


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _of(rows: list[Row], name: str) -> np.ndarray:
    return np.array([row["rsum"] for row in rows if row["model"] == name])


def _line(rows: list[Row], name: str, cost: dict[str, float]) -> Row:
    plain = _of(rows, PLAIN.shown)
    return {
        "model": name,
        "FLOPs a pair": f"{cost[name]:,.0f}",
        "FLOPs, ratio": f"{cost[name] / cost[PLAIN.shown]:.1f}",
        "rsum": percent(_of(rows, name)),
        "rsum beside VSE-infinity": percent(_of(rows, name) - plain),
    }


def _draw(rows: list[Row], cost: dict[str, float]) -> style.Figure:
    figure, axes = style.panels(1, 2, height=1.8, sharey=True)
    names, places = list(cost), np.arange(len(cost))[::-1]
    mean, spread = np.array([mean_and_spread(_of(rows, name)) for name in names]).T
    ratio = np.array([cost[name] / cost[PLAIN.shown] for name in names])
    for panel, values, form, title in (
        (axes[0][0], ratio, "{:.1f}", "FLOPs of a comparison, VSE-infinity = 1"),
        (axes[0][1], mean, "{:.1f}", "rsum"),
    ):
        error = spread if panel is axes[0][1] and (spread > 0).any() else None
        panel.barh(places, values, 0.6, xerr=error, color=style.COLOURS[0])
        for y, value in zip(places, values, strict=True):
            panel.text(value + 0.015 * max(values), y, form.format(value), va="center", fontsize=6.5, color=style.GREY)
        panel.set(title=title, xlim=(0, 1.18 * max(values)))
        panel.set_yticks(places, names)
        panel.grid(axis="y", visible=False)
    style.letter(axes[0])
    return figure
