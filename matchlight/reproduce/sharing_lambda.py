"""How much guessing what is hidden helps (supplement, Figure 3): NDCG against lambda, data set by data set."""

from __future__ import annotations

import numpy as np

from matchlight.measuring.protocols import figure
from matchlight.measuring.protocols.measured import Unfit
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread
from matchlight.reproduce.sharing import PLAIN, QUICK, WAYS, columns

LAMBDAS, FEW_LAMBDAS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0), (0.0, 0.1, 10.0)
SOURCE = "the figure prints no numbers; lambda was chosen from it, 0.01 for COCO and 0.1 for the other two"


def sensitivity(work: Work) -> Result:
    """NDCG@500 both ways against the weight of the guesses at hidden words and regions."""
    values = FEW_LAMBDAS if work.quick else LAMBDAS
    setups = [MethodSetup(f"{v:g}", "semantic_sharing", {**PLAIN, "mask_weight": v}, QUICK) for v in values]
    shown = columns(work)
    for column in shown:
        column.work.check(setups)
        _check_hides(column.work)
    rows: list[Row] = []
    for column in shown:
        for seed in range(work.seeds):
            for one in setups:
                run = column.work.train(one, seed=seed)
                report = column.work.measured(run, protocol="labels", fold=column.fold)
                figures = {f"{what}_{way}": figure(report, what, way) for what in ("ndcg", "map") for way in WAYS}
                rows.append({"data": column.name, "lambda": one.arguments["mask_weight"], "seed": seed, **figures})
    names = [column.name for column in shown]
    return work.save(
        rows,
        lambda: _draw(names, list(values), rows),
        table=[_line(names, value, rows) for value in values],
        facts=["lambda weighs the plain cross-entropy of the guesses (mask_cost=plain)", SOURCE],
    )


def _check_hides(work: Work) -> None:
    pairs = work.pairs
    if pairs.text_features is not None and len(getattr(pairs.features, "shape", ())) == 2:
        raise Unfit(f"{pairs.root}: one vector an item has nothing to hide; words or regions are needed")


def _line(names: list[str], value: float, rows: list[Row]) -> Row:
    line: Row = {"lambda": f"{value:g}"}
    for name in names:
        for way in WAYS:
            mean, spread = _at(rows, name, value, way)
            title = f"NDCG {way}" if len(names) == 1 else f"{name}, NDCG {way}"
            line[title] = with_spread(mean, spread, seeds=len({row["seed"] for row in rows}))
    return line


def _at(rows: list[Row], name: str, value: float, way: str) -> tuple[float, float]:
    own = [row[f"ndcg_{way}"] for row in rows if (row["data"], row["lambda"]) == (name, value)]
    mean, spread = mean_and_spread(own)
    return float(mean), float(spread)


def _draw(names: list[str], values: list[float], rows: list[Row]) -> style.Figure:
    """A colour a data set; as printed, solid from text to picture, dotted from picture to text."""
    figure, axes = style.panels(1, 1, width=style.SINGLE + 0.4, height=2.5 + 0.2 * len(names))
    panel, places = axes[0][0], np.arange(len(values))
    looks = style.lines_of(names)
    for name in names:
        for (way, title), dashes in zip(WAYS.items(), ("-", (0, (1.5, 1.5))), strict=True):
            mean, spread = np.array([_at(rows, name, value, way) for value in values]).T
            line = {**looks[name], "linestyle": dashes}
            style.band(panel, places, 100 * mean, 100 * spread, label=f"{name}, {title}", **line)
    panel.set_xticks(places, [f"{value:g}" for value in values])
    panel.set(xlabel="weight of the guesses (λ)", ylabel="NDCG@500 (%)")
    panel.margins(y=0.2)
    style.legend_below(figure, panel, ncols=2)
    return figure
