"""Semantic sharing's controls: how much guessing hidden words helps, F1 by side, and what a consistency loss does.

Yang et al., IJCAI 2021, supplement: Figure 3 (lambda), Table 1 (Micro-F1), Figure 1 (consistency).
"""

from __future__ import annotations

import json

import numpy as np

from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.measuring.protocols import Report, figure
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread
from matchlight.runs.folder import Run

PAPER = "Rethinking Label-Wise Cross-Modal Retrieval from A Semantic Sharing Perspective (IJCAI 2021)"
QUICK = {"epochs": 3}
SHARING = MethodSetup("sharing", "semantic_sharing", quick=QUICK)
CONSISTENT = MethodSetup("sharing + consistency", "semantic_sharing", {"variant": "consistent"}, QUICK)
INDEPENDENT = MethodSetup("independent", "semantic_sharing", {"variant": "independent"}, QUICK)
DSCMR = MethodSetup("DSCMR", "dscmr", quick=QUICK)
CLASSIFIERS = (INDEPENDENT, DSCMR, CONSISTENT, SHARING)
LAMBDAS, FEW_LAMBDAS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0), (0.0, 0.1, 10.0)
WAYS = {"t2i": "text to picture", "i2t": "picture to text"}
SIDES = {IMAGE: "pictures", TEXT: "texts"}
PUBLISHED = {  # Micro-F1 of pictures and texts, by data set, in the order of CLASSIFIERS
    "FLICKR25K": ((0.672, 0.53), (0.634, 0.536), (0.686, 0.549), (0.690, 0.556)),
    "NUS-WIDE": ((0.644, 0.529), (0.611, 0.570), (0.651, 0.596), (0.651, 0.597)),
    "COCO1K": ((0.628, 0.623), (0.627, 0.614), (0.683, 0.632), (0.692, 0.635)),
    "COCO5K": ((0.624, 0.617), (0.538, 0.538), (0.685, 0.63), (0.689, 0.633)),
}


# ---- lambda ----------------------------------------------------------------------------------------------------------


def sensitivity(work: Work) -> Result:
    """NDCG@500 both ways against the weight of the guesses at hidden words and regions."""
    values = FEW_LAMBDAS if work.quick else LAMBDAS
    setups = [MethodSetup(f"{value:g}", "semantic_sharing", {"mask_weight": value}, QUICK) for value in values]
    work.check(setups)
    if work.pairs.text_features is not None and len(getattr(work.pairs.features, "shape", ())) == 2:
        raise BadInput(f"{work.pairs.root}: one vector an item has nothing to hide; words or regions are needed")
    rows: list[Row] = []
    for seed in range(work.seeds):
        for one in setups:
            report = work.measured(work.train(one, seed=seed), protocol="labels")
            figures = {f"{what}_{way}": figure(report, what, way) for what in ("ndcg", "map") for way in WAYS}
            rows.append({"lambda": one.arguments["mask_weight"], "seed": seed, **figures})
    return work.save(rows, lambda: _draw_sensitivity(list(values), rows), table=_by_lambda(list(values), rows))


def _by_lambda(values: list[float], rows: list[Row]) -> list[Row]:
    seeds = len({row["seed"] for row in rows})
    out = []
    for value in values:
        line: Row = {"lambda": f"{value:g}"}
        for way in WAYS:
            mean, spread = _at(rows, value, way)
            line[f"NDCG {way}"] = with_spread(mean, spread, seeds=seeds)
        out.append(line)
    return out


def _at(rows: list[Row], value: float, way: str) -> tuple[float, float]:
    mean, spread = mean_and_spread([row[f"ndcg_{way}"] for row in rows if row["lambda"] == value])
    return float(mean), float(spread)


def _draw_sensitivity(values: list[float], rows: list[Row]) -> style.Figure:
    figure, axes = style.panels(1, 1, width=style.SINGLE, height=2.6)
    panel, places = axes[0][0], np.arange(len(values))
    for (way, title), dashes in zip(WAYS.items(), ("-", (0, (1.5, 1.5))), strict=True):  # solid, dotted: as printed
        mean, spread = np.array([_at(rows, value, way) for value in values]).T
        line = {**style.lines_of(list(WAYS))[way], "linestyle": dashes}
        style.band(panel, places, 100 * mean, 100 * spread, label=title, **line)
    panel.set_xticks(places, [f"{value:g}" for value in values])
    panel.set(xlabel="weight of the guesses (λ)", ylabel="NDCG@500 (%)")
    panel.margins(y=0.2)
    panel.legend(loc="best")
    return figure


# ---- Micro-F1 --------------------------------------------------------------------------------------------------------


def classification(work: Work) -> Result:
    """Micro-F1 of pictures and texts by method: at a threshold of 0.5, and at the one that is best on val."""
    work.check(CLASSIFIERS)
    rows: list[Row] = []
    for seed in range(work.seeds):
        for one in CLASSIFIERS:
            report = work.measured(work.train(one, seed=seed), protocol="labels")
            rows += [{"method": one.shown, "seed": seed, **f1} for f1 in f1_of(report)]
    printed = [
        {"data": data, "method": one.shown, "pictures": both[0], "texts": both[1]}
        for data, by_method in PUBLISHED.items()
        for one, both in zip(CLASSIFIERS, by_method, strict=True)
    ]
    return work.save(rows, lambda: _draw_f1(rows), table=_f1_table(rows), published=printed)


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


def _f1_table(rows: list[Row]) -> list[Row]:
    seeds = len({row["seed"] for row in rows})
    out = []
    for one in CLASSIFIERS:
        line: Row = {"method": one.shown}
        for what, title in (("f1", "F1 at 0.5"), ("f1_tuned", "F1 tuned")):
            for side, name in SIDES.items():
                mean, spread = _f1(rows, one.shown, side, what)
                line[f"{title}, {name}"] = with_spread(mean, spread, seeds=seeds)
        out.append(line)
    return out


def _f1(rows: list[Row], name: str, side: str, what: str) -> tuple[float, float]:
    values = [row[what] for row in rows if row["method"] == name and row["side"] == side]
    mean, spread = mean_and_spread([np.nan if value is None else value for value in values])
    return float(mean), float(spread)


def _draw_f1(rows: list[Row]) -> style.Figure:
    figure, axes = style.panels(1, 2, height=2.1, sharex=True, sharey=True)
    places = np.arange(len(CLASSIFIERS))[::-1]
    looks = (("f1", "threshold 0.5", 0.13, "none"), ("f1_tuned", "threshold tuned on val", -0.13, None))
    for panel, (side, title) in zip(axes[0], SIDES.items(), strict=True):
        for (what, name, shift, face), colour, marker in zip(looks, style.COLOURS, style.MARKERS, strict=False):
            mean, spread = np.array([_f1(rows, one.shown, side, what) for one in CLASSIFIERS]).T
            dot = {"color": colour, "mfc": face or colour, "fmt": marker, "elinewidth": 0.9, "label": name}
            panel.errorbar(mean, places + shift, xerr=spread, **dot)
        panel.set_yticks(places, [one.shown for one in CLASSIFIERS])
        panel.set(title=title, xlabel="Micro-F1", ylim=(-0.5, len(places) - 0.5))
        panel.grid(axis="y", visible=False)
        style.few_ticks(panel.xaxis)
    axes[0][0].set_xlim(left=-0.02 * axes[0][0].get_xlim()[1])  # a marker at 0 is seen whole
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0])
    return figure


# ---- consistency -----------------------------------------------------------------------------------------------------


def consistency(work: Work) -> Result:
    """Micro-F1 and NDCG on val after every epoch, with and without a loss that pulls a pair's two sides together."""
    setups = (SHARING, CONSISTENT)
    work.check(setups, splits=("train", "val"))
    rows: list[Row] = []
    for seed in range(work.seeds):
        for one in setups:
            run = work.train(one, seed=seed)
            rows += [{"method": one.shown, "seed": seed, **line} for line in epochs_of(run)]
    names = [one.shown for one in setups]
    return work.save(rows, lambda: _draw_consistency(names, rows), table=_last(names, rows))


CURVES = {
    "f1_image": "pictures: Micro-F1",
    "f1_text": "texts: Micro-F1",
    "ndcg_i2t": "picture to text: NDCG@500",
    "ndcg_t2i": "text to picture: NDCG@500",
}


def epochs_of(run: Run) -> list[Row]:
    """What a run's log says of each epoch."""
    out = []
    for line in (run.folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        epoch = json.loads(line)
        values = {f"f1_{side}": epoch["val"]["micro_f1"][side] for side in SIDES}
        values |= {f"ndcg_{way}": epoch["val"]["ndcg"][way] for way in WAYS}
        out.append({"epoch": epoch["epoch"] + 1, **{name: values[name] for name in CURVES}})
    return out


def _last(names: list[str], rows: list[Row]) -> list[Row]:
    """The last epoch, the mean over seeds."""
    end = max(row["epoch"] for row in rows)
    out = []
    for name in names:
        own = [row for row in rows if row["method"] == name and row["epoch"] == end]
        out.append({"method": name, "epoch": end, **{title: _mean(own, what) for what, title in CURVES.items()}})
    return out


def _mean(rows: list[Row], what: str) -> float:
    return float(np.mean([row[what] for row in rows]))


def _draw_consistency(names: list[str], rows: list[Row]) -> style.Figure:
    figure, axes = style.panels(2, 2, sharex=True, height=4.3)
    styles = style.lines_of(names)
    for panel, (what, title) in zip(axes.flat, CURVES.items(), strict=True):
        for name in names:
            own = [row for row in rows if row["method"] == name]
            epochs = sorted({row["epoch"] for row in own})
            seeds = sorted({row["seed"] for row in own})
            mean, spread = mean_and_spread([[row[what] for row in own if row["seed"] == seed] for seed in seeds])
            line = {**styles[name], "markevery": max(1, len(epochs) // 12)}
            style.band(panel, epochs, 100 * mean, 100 * spread, label=name, **line)
        panel.set_title(title)
    for panel in axes[1]:
        panel.set_xlabel("epoch")
        style.whole_numbers(panel.xaxis)
    for panel in axes[:, 0]:
        panel.set_ylabel("validation split (%)")
    style.letter(axes.flat)
    style.legend_below(figure, axes[0][0])
    return figure
