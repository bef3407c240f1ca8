"""AOQ's sensitivity (supplement, Table 2): the second round with other weights of what the batch itself offers.

An online hinge is weighed by beta - (offline - online) / alpha. One first round serves all settings: it is trained and
mined once a seed, and every second round starts from its weights and draws from its lists.
"""

from __future__ import annotations

import numpy as np

from matchlight.reproduce import style
from matchlight.reproduce.aoq_rounds import bases, first, fold_of, galleries, mined, second
from matchlight.reproduce.aoq_rounds import title as shown_as
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import Arguments, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, percent
from matchlight.reproduce.recalls import over_seeds, printed, recalls

FINAL = (1.5, 0.3)  # beta, alpha: what the paper settles on
PUBLISHED = {  # beta, alpha -> recalls of VSRN on COCO 1K, picture to text and text to picture
    (1.5, 0.2): (77.1, 95.3, 98.7, 63.8, 90.6, 95.8),
    (1.5, 0.3): (77.5, 95.5, 98.6, 63.5, 90.5, 95.8),
    (1.5, 0.5): (77.5, 95.5, 98.5, 63.3, 90.3, 95.6),
    (1.0, 0.3): (77.0, 95.2, 98.5, 63.2, 90.1, 95.5),
    (2.0, 0.3): (77.4, 95.4, 98.7, 63.3, 90.3, 95.7),
}
BESIDE = "rsum beside 1.5, 0.3"
SOURCE = "VSRN on COCO 1K, AOQ's supplement, Table 2"


def sensitivity(work: Work) -> Result:
    """Recalls after the second round by alpha and beta, beside the first round alone."""
    base = bases(work)[0]
    work.check((first(base), second(base)))
    rows: list[Row] = []
    fold = fold_of(work)
    for seed in range(work.seeds):
        one = work.train(first(base), seed=seed)
        rows.append({"round": "first", "beta": None, "alpha": None, "seed": seed, **recalls(work, one, fold=fold)})
        lists = mined(work, base, one)
        for point in PUBLISHED:
            run = work.train(second(base, lists, **_changes(point)), seed=seed, start=one)
            named = {"beta": point[0], "alpha": point[1]}
            rows.append({"round": "second", **named, "seed": seed, **recalls(work, run, fold=fold)})
    facts = [run_facts("first round", one), run_facts("second rounds, from the first's weights and lists", run)]
    return work.save(
        rows,
        lambda: _draw(rows, base),
        table=[_line(rows, point) for point in (None, *PUBLISHED)],
        facts=[f"split {work.split}, {galleries(fold)}", *facts],
        published=[
            {**_named(point), **printed(PUBLISHED[point]), BESIDE: _printed_beside(point)} for point in PUBLISHED
        ],
        source=SOURCE,
    )


def _changes(point: tuple[float, float]) -> Arguments:
    """What is set; nothing where it is what the paper settles on, a run that other exhibits have as well."""
    return {} if point == FINAL else {"beta": point[0], "alpha": point[1]}


def _at(rows: list[Row], point: tuple[float, float] | None, what: str) -> np.ndarray:
    """One value a seed."""
    beta, alpha = point or (None, None)
    return np.array([row[what] for row in rows if (row["beta"], row["alpha"]) == (beta, alpha)])


def _line(rows: list[Row], point: tuple[float, float] | None) -> Row:
    line: Row = {"beta": "first round", "alpha": None} if point is None else _named(point)
    beta, alpha = point or (None, None)
    line |= over_seeds([row for row in rows if (row["beta"], row["alpha"]) == (beta, alpha)])
    return {**line, BESIDE: percent(_at(rows, point, "rsum") - _at(rows, FINAL, "rsum"))}


def _named(point: tuple[float, float]) -> Row:
    return {"beta": f"{point[0]:g}", "alpha": f"{point[1]:g}"}


def _printed_beside(point: tuple[float, float]) -> str:
    return percent([sum(PUBLISHED[point]) - sum(PUBLISHED[FINAL])])


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
        style.band(panel, values, mean, spread, label=f"{shown_as(base)}, here", **styles["here"])
        printed = [sum(PUBLISHED[point]) - sum(PUBLISHED[FINAL]) for point in points]
        panel.plot(values, printed, label="VSRN on COCO 1K, published", **styles["printed"])
        panel.axhline(0, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        panel.set(title=title, xlabel=title[0], xticks=values)
        panel.margins(x=0.08, y=0.2)
    axes[0][0].set_ylabel("rsum (α = 0.3, β = 1.5: 0)")
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure
