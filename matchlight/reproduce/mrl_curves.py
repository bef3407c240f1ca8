"""MRL's curves: precision against recall by method (its supplement's Figures 1-4), and how training goes (Figure 5)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import Relevance
from matchlight.measuring.metrics import precision_recall as curve
from matchlight.measuring.protocols import evaluate_scores, figure
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.mrl_methods import CROSS_ENTROPY, MRL, methods, noisy
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

WAYS = {"i2t": "picture to text", "t2i": "text to picture"}
EPOCHS = 100  # what the paper's figure shows


# ---- precision and recall --------------------------------------------------------------------------------------------


def precision_recall(work: Work, *, noise: float = 0.8) -> Result:
    """Precision where recall first reaches 5%, 10%, ... 100%, the mean over queries, by method."""
    setups = methods(work)
    work.check(setups)
    rows: list[Row] = []
    maps: list[Row] = []
    for seed in range(work.seeds):
        broken = noisy(work.pairs, noise, seed=seed)
        for one in setups:
            run = work.train(one, pairs=broken, seed=seed)
            points, means = curves_of(run, work.pairs)
            rows += [{"method": one.shown, "seed": seed, **point} for point in points]
            maps.append({"method": one.shown, "seed": seed, **means})
    chance = _chance(work.pairs)
    names = [one.shown for one in setups]
    return work.save(
        rows,
        lambda: _draw_precision(names, rows, maps, chance),
        table=_map_table(names, maps),
        noise=noise,
        chance=chance,
        map=maps,
    )


def curves_of(run: Run, pairs: Pairs, *, split: str = "test") -> tuple[list[Row], Row]:
    """Points of both curves of a run on a split, and its MAP both ways."""
    part = pairs.subset(split)
    assert part.labels is not None
    scores = split_scores(run, pairs, split)
    shared = Relevance.of_labels(part.labels.image, part.labels.text)
    rows: list[Row] = []
    for way, asked in {"i2t": (scores, shared), "t2i": (scores.T, shared.T)}.items():
        for recall, precision in zip(*curve(*asked), strict=True):
            rows.append({"way": way, "recall": float(recall), "precision": float(precision)})
    report = evaluate_scores(scores, part, protocol="labels")
    return rows, {way: figure(report, "map", way) for way in ("i2t", "t2i", "mean")}


def _chance(pairs: Pairs) -> float:
    """The share of relevant items: the precision of any order that knows nothing."""
    part = pairs.subset("test").labels
    assert part is not None
    shared = Relevance.of_labels(part.image, part.text)
    return float(shared[:, :].mean())


def _map_table(names: list[str], maps: list[Row]) -> list[Row]:
    seeds = len({one["seed"] for one in maps})
    out = []
    for name in names:
        row: Row = {"method": name}
        for way in ("i2t", "t2i", "mean"):
            mean, spread = mean_and_spread([one[way] for one in maps if one["method"] == name])
            row[f"MAP {way}"] = with_spread(float(mean), float(spread), seeds=seeds)
        out.append(row)
    return out


def _draw_precision(names: list[str], rows: list[Row], maps: list[Row], chance: float) -> style.Figure:
    figure, axes = style.panels(1, 2, height=3.1, sharey=True, sharex=True)
    styles = style.lines_of(names)
    for panel, (way, title) in zip(axes[0], WAYS.items(), strict=True):
        for name in names:
            points = [row for row in rows if row["method"] == name and row["way"] == way]
            recall = sorted({row["recall"] for row in points})
            mean, spread = mean_and_spread([[r["precision"] for r in points if r["seed"] == s] for s in _seeds(points)])
            style.band(panel, recall, mean, spread, label=_named(name, maps), markevery=2, **styles[name])
        panel.axhline(chance, color=style.GREY, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1, label="chance")
        panel.set(title=title, xlabel="recall", xlim=(0, 1.02))
    axes[0][0].set(ylabel="precision", ylim=(0, 1.04 * max(row["precision"] for row in rows)))
    style.letter(axes[0])
    style.legend_below(figure, axes[0][0], title="method (MAP picture to text / text to picture)")
    return figure


def _named(name: str, maps: list[Row]) -> str:
    ways = [float(np.mean([one[way] for one in maps if one["method"] == name])) for way in WAYS]
    return f"{name} ({ways[0]:.3f} / {ways[1]:.3f})"


def _seeds(rows: list[Row]) -> list[int]:
    return sorted({row["seed"] for row in rows})


# ---- convergence -----------------------------------------------------------------------------------------------------


def convergence(work: Work, *, noise: float = 0.8) -> Result:
    """Training loss and validation MAP after every epoch, cross-entropy beside MRL."""
    setups = tuple(replace(one, usual={"epochs": EPOCHS}) for one in (CROSS_ENTROPY, MRL))
    work.check(setups, splits=("train", "val"))
    rows: list[Row] = []
    for seed in range(work.seeds):
        broken = noisy(work.pairs, noise, seed=seed)
        for one in setups:
            run = work.train(one, pairs=broken, seed=seed)
            rows += [{"method": one.shown, "seed": seed, **line} for line in epochs_of(run)]
    return work.save(rows, lambda: _draw_convergence(setups, rows), table=_peaks(setups, rows), noise=noise)


def epochs_of(run: Run) -> list[Row]:
    """What a run's log says of each epoch: its loss, and MAP on val."""
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    if any(line["val"] is None for line in lines):
        raise BadInput(f"{run.folder}: some epochs were not validated; validate_every=1 is needed")
    return [{"epoch": line["epoch"] + 1, "loss": line["loss"], **_val(line["val"]["map"])} for line in lines]


def _val(val: dict[str, float]) -> dict[str, float]:
    return {f"map_{way}": val[way] for way in ("i2t", "t2i", "mean")}


def _peaks(setups: tuple[MethodSetup, ...], rows: list[Row]) -> list[Row]:
    """Where MAP is best and what is left of it at the end, the mean over seeds."""
    out = []
    for one in setups:
        _, curves = _over_seeds(rows, one.shown, "map_mean")
        mean = np.mean(curves, axis=0)
        best = int(mean.argmax())
        out.append({"method": one.shown, "best MAP": float(mean[best]), "at epoch": best + 1, "last": float(mean[-1])})
    return out


def _over_seeds(rows: list[Row], name: str, what: str) -> tuple[list[int], list[list[float]]]:
    own = [row for row in rows if row["method"] == name]
    epochs = sorted({row["epoch"] for row in own})
    return epochs, [[row[what] for row in own if row["seed"] == seed] for seed in _seeds(own)]


def _draw_convergence(setups: tuple[MethodSetup, ...], rows: list[Row]) -> style.Figure:
    figure, axes = style.panels(2, 2, sharex=True, height=4.2)
    colours = style.lines_of(["i2t", "t2i"])
    top = max(max(row["map_i2t"], row["map_t2i"]) for row in rows)
    for column, one in zip(axes.T, setups, strict=True):
        epochs, losses = _over_seeds(rows, one.shown, "loss")
        style.band(column[0], epochs, *mean_and_spread(losses), color="black")
        column[0].set_title(f"{one.shown}: training loss")
        for way, title in WAYS.items():
            epochs, curves = _over_seeds(rows, one.shown, f"map_{way}")
            line = {**colours[way], "markevery": max(1, len(epochs) // 12)}
            style.band(column[1], epochs, *mean_and_spread(curves), label=title, **line)
        column[1].set(title=f"{one.shown}: validation MAP", xlabel="epoch", ylim=(0, 1.08 * top))
        column[1].legend(loc="lower right")
        style.whole_numbers(column[1].xaxis)
    axes[0][0].set_ylabel("loss (mean of the epoch)")
    axes[1][0].set_ylabel("MAP")
    style.letter(axes.flat)
    return figure
