"""AOQ's sensitivity (supplement, Table 2): the second round with other weights of what the batch itself offers.

An online hinge is weighed by beta - (offline - online) / alpha. One first round serves all settings: it is trained and
mined once a seed, and every second round starts from its weights and draws from its lists.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.devices import pick_device
from matchlight.measuring.protocols import figure
from matchlight.methods.aoq import AOQ, SPARE
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, percent
from matchlight.runs.folder import Run
from matchlight.runs.hard_negatives import mine_run
from matchlight.training.registry import Chosen, find, settings_of

QUICK = {"epochs": 2}
FINAL = (1.5, 0.3)  # beta, alpha: what the paper settles on
PUBLISHED = {  # beta, alpha -> recalls of VSRN on COCO 1K, picture to text and text to picture
    (1.5, 0.2): (77.1, 95.3, 98.7, 63.8, 90.6, 95.8),
    (1.5, 0.3): (77.5, 95.5, 98.6, 63.5, 90.5, 95.8),
    (1.5, 0.5): (77.5, 95.5, 98.5, 63.3, 90.3, 95.6),
    (1.0, 0.3): (77.0, 95.2, 98.5, 63.2, 90.1, 95.5),
    (2.0, 0.3): (77.4, 95.4, 98.7, 63.3, 90.3, 95.7),
}
RECALLS = [(way, f"r{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)]
SOURCE = "VSRN on COCO 1K, AOQ's supplement, Table 2"


def sensitivity(work: Work) -> Result:
    """Recalls after the second round by alpha and beta, beside the first round alone."""
    base = str(work.settings.get("base", "vse_infty" if work.quick else "vsrn"))
    one = MethodSetup(base, base, quick=QUICK)
    work.check((one, _second(base, *FINAL)))
    rows: list[Row] = []
    for seed in range(work.seeds):
        first = work.train(one, seed=seed)
        rows.append({"round": "first", "beta": None, "alpha": None, "seed": seed, **recalls(work, first)})
        lists = mined(work, base, first)
        for beta, alpha in PUBLISHED:
            run = work.train(_second(base, beta, alpha, lists), seed=seed, start=first)
            rows.append({"round": "second", "beta": beta, "alpha": alpha, "seed": seed, **recalls(work, run)})
    facts = [run_facts("first round", first), run_facts("second rounds, from the first's weights and lists", run)]
    return work.save(
        rows,
        lambda: _draw(rows, base),
        table=[_line(rows, point) for point in (None, *PUBLISHED)],
        facts=facts,
        published=[_printed(point) for point in PUBLISHED],
        source=SOURCE,
    )


def _second(base: str, beta: float, alpha: float, lists: Path | None = None) -> MethodSetup:
    drawn = {} if lists is None else {"candidates": str(lists)}
    return MethodSetup(f"{beta:g}, {alpha:g}", "aoq", {"base": base, "beta": beta, "alpha": alpha, **drawn}, QUICK)


def mined(work: Work, base: str, first: Run) -> Path:
    """The folder of the first round's lists, as long as the second round asks for."""
    count, where = len(work.pairs.rows("train")), pick_device(work.device).type
    asked = work.arguments(_second(base, *FINAL))
    given, _ = settings_of(find("aoq"), asked, pairs=count, device=where)
    second = Chosen.of(find("aoq"), given).typed(given)
    assert isinstance(second, AOQ)
    folder = first.folder.parent / f"lists-{first.folder.name}-{second.h}"
    top = second.h * (1 if second.filter == "none" else SPARE)
    mine_run(first, work.pairs, folder, top=top, coarse=second.coarse)
    return folder


def recalls(work: Work, run: Run) -> Row:
    """R@1, R@5, R@10 both ways and their sum, on the test split."""
    report = work.measured(run, protocol="recall")
    return {**{f"{way} {name}": figure(report, way, name) for way, name in RECALLS}, "rsum": figure(report, "rsum")}


def _at(rows: list[Row], point: tuple[float, float] | None, what: str) -> np.ndarray:
    """One value a seed."""
    beta, alpha = point or (None, None)
    return np.array([row[what] for row in rows if (row["beta"], row["alpha"]) == (beta, alpha)])


def _line(rows: list[Row], point: tuple[float, float] | None) -> Row:
    line: Row = {"beta": "first round", "alpha": None} if point is None else _named(point)
    for what in ("i2t r1", "t2i r1", "rsum"):
        line[what.replace("r1", "R@1")] = percent(_at(rows, point, what))
    return {**line, "rsum beside 1.5, 0.3": percent(_at(rows, point, "rsum") - _at(rows, FINAL, "rsum"))}


def _named(point: tuple[float, float]) -> Row:
    return {"beta": f"{point[0]:g}", "alpha": f"{point[1]:g}"}


def _printed(point: tuple[float, float]) -> Row:
    printed = PUBLISHED[point]
    shown = {"i2t R@1": printed[0], "t2i R@1": printed[3], "rsum": sum(printed)}
    shown["rsum beside 1.5, 0.3"] = sum(printed) - sum(PUBLISHED[FINAL])
    return {**_named(point), **{name: percent([value]) for name, value in shown.items()}}


def _draw(rows: list[Row], base: str) -> style.Figure:
    """Rsum beside that of the final setting, against alpha and against beta: here and as printed."""
    figure, axes = style.panels(1, 2, height=2.6, sharey=True)
    styles = style.lines_of(["here", "printed"])
    ways = (("alpha", 1, "α at β = 1.5"), ("beta", 0, "β at α = 0.3"))
    for panel, (_, place, title) in zip(axes[0], ways, strict=True):
        points = sorted((p for p in PUBLISHED if p[1 - place] == FINAL[1 - place]), key=lambda p: p[place])
        values = [point[place] for point in points]
        apart = [_at(rows, point, "rsum") - _at(rows, FINAL, "rsum") for point in points]
        mean, spread = mean_and_spread(np.array(apart).T)
        style.band(panel, values, mean, spread, label=f"{base}, here", **styles["here"])
        printed = [sum(PUBLISHED[point]) - sum(PUBLISHED[FINAL]) for point in points]
        panel.plot(values, printed, label="VSRN on COCO 1K, published", **styles["printed"])
        panel.axhline(0, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        panel.set(title=title, xlabel=title[0], xticks=values)
        panel.margins(x=0.08, y=0.2)
    axes[0][0].set_ylabel("rsum (α = 0.3, β = 1.5: 0)")
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure
