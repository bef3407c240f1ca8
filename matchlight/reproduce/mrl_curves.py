"""MRL's curves: precision against recall by method (its supplement's Figures 1-4), and how training goes (Figure 5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import Relevance
from matchlight.measuring.metrics import precision_recall as curve
from matchlight.measuring.protocols import evaluate_scores, figure
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Result, Work
from matchlight.reproduce.linear import LINEAR
from matchlight.reproduce.mrl_linear import Plain
from matchlight.reproduce.mrl_methods import CROSS_ENTROPY, MRL, methods, noisy
from matchlight.reproduce.numbers import Row, mean_and_spread, with_spread
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

WAYS = {"i2t": "picture to text", "t2i": "text to picture"}
MAPS = ("i2t", "t2i", "mean")
EPOCHS = 100  # what the paper's figure shows
LINEAR_FACT = "MCCA, PLS, GMA and MvDA are projections in closed form, as long as is best on val; they train no network"


# ---- precision and recall --------------------------------------------------------------------------------------------


def precision_recall(work: Work, *, noise: float = 0.8) -> Result:
    """Precision where recall first reaches 5%, 10%, ... 100%, the mean over queries, by method."""
    setups = methods(work)
    work.check(setups)
    rows: list[Row] = []
    maps: list[Row] = []
    plain = Plain.of(work.pairs, *known_splits(work), device=work.device)
    for seed in range(work.seeds):
        for name, scores in scored(work, setups, plain, noise=noise, seed=seed):
            points, means = curves_of(scores, work)
            rows += [{"method": name, "seed": seed, **point} for point in points]
            maps.append({"method": name, "seed": seed, **means})
    chance = _chance(work)
    names = list(dict.fromkeys(one["method"] for one in maps))
    return work.save(
        rows,
        lambda: _draw_precision(names, rows, maps, chance),
        table=_map_table(names, maps),
        facts=[LINEAR_FACT],
        noise=noise,
        chance=chance,
        map=maps,
    )


def known_splits(work: Work) -> list[str]:
    """What linear baselines read beside the training items: val, to choose their length by, and what is measured."""
    return [split for split in ("val", work.split) if split in work.pairs.split_names]


def scored(
    work: Work, setups: tuple[MethodSetup, ...], plain: Plain, *, noise: float, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """(name, scores of the split): of each method trained on wrong labels, then of the linear baselines."""
    broken = noisy(work.pairs, noise, seed=seed)
    for one in setups:
        yield one.shown, split_scores(work.train(one, pairs=broken, seed=seed), work.pairs, work.split)
    for name in LINEAR:
        yield name, plain.fitted(name, broken, work.split)[0]


def curves_of(scores: np.ndarray, work: Work) -> tuple[list[Row], Row]:
    """Points of both curves on the split that is measured, and MAP both ways: the mean over its galleries."""
    points: dict[tuple[str, float], list[float]] = {}
    maps: dict[str, list[float]] = {}
    whole = work.pairs.subset(work.split)
    for gallery in work.galleries():
        part, some = whole.select(gallery.pictures, gallery.rows), scores[np.ix_(gallery.pictures, gallery.rows)]
        assert part.labels is not None
        shared = Relevance.of_labels(part.labels.image, part.labels.text)
        for way, asked in {"i2t": (some, shared), "t2i": (some.T, shared.T)}.items():
            for recall, precision in zip(*curve(*asked), strict=True):
                points.setdefault((way, float(recall)), []).append(float(precision))
        report = evaluate_scores(some, part, protocol="labels")
        for way in MAPS:
            maps.setdefault(way, []).append(figure(report, "map", way))
    rows = [{"way": way, "recall": at, "precision": float(np.mean(values))} for (way, at), values in points.items()]
    return rows, {way: float(np.mean(values)) for way, values in maps.items()}


def _chance(work: Work) -> float:
    """The share of relevant items: the precision of any order that knows nothing."""
    part = work.pairs.subset(work.split).labels
    assert part is not None
    shared = Relevance.of_labels(part.image, part.text)
    return float(shared[:, :].mean())


def _map_table(names: list[str], maps: list[Row]) -> list[Row]:
    seeds = len({one["seed"] for one in maps})
    out = []
    for name in names:
        row: Row = {"method": name}
        for way in MAPS:
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
    """Training loss, and validation loss on clean labels with MAP, after every epoch: cross-entropy beside MRL."""
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
    """What a run's log says of each epoch: its loss, and loss and MAP on val."""
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    if any(line["val"] is None for line in lines):
        raise BadInput(f"{run.folder}: some epochs were not validated; validate_every=1 is needed")
    return [{"epoch": line["epoch"] + 1, "loss": line["loss"], **_val(line["val"])} for line in lines]


def _val(val: Row) -> dict[str, float]:
    """Loss and MAP of one epoch; runs of earlier versions logged no loss there."""
    return {"val_loss": val.get("loss", float("nan"))} | {f"map_{way}": val["map"][way] for way in MAPS}


def _peaks(setups: tuple[MethodSetup, ...], rows: list[Row]) -> list[Row]:
    """Where MAP is best and validation loss lowest, and what both are at the end; means over seeds."""
    out: list[Row] = []
    for one in setups:
        mean, loss = (np.mean(_over_seeds(rows, one.shown, what)[1], axis=0) for what in ("map_mean", "val_loss"))
        best, lowest = int(mean.argmax()), int(np.nan_to_num(loss, nan=np.inf).argmin())
        line: Row = {"method": one.shown, "best MAP": float(mean[best]), "at epoch": best + 1, "last": float(mean[-1])}
        line |= {"lowest loss on val": float(loss[lowest]), "at this epoch": lowest + 1, "last loss": float(loss[-1])}
        out.append(line)
    return out


def _over_seeds(rows: list[Row], name: str, what: str) -> tuple[list[int], list[list[float]]]:
    own = [row for row in rows if row["method"] == name]
    epochs = sorted({row["epoch"] for row in own})
    return epochs, [[row[what] for row in own if row["seed"] == seed] for seed in _seeds(own)]


def _draw_convergence(setups: tuple[MethodSetup, ...], rows: list[Row]) -> style.Figure:
    """As the paper has it: training loss above, loss and MAP on val below, a column a method."""
    figure, axes = style.panels(2, 2, sharex=True, height=4.4)
    for column, one in zip(axes.T, setups, strict=True):
        epochs, losses = _over_seeds(rows, one.shown, "loss")
        style.band(column[0], epochs, *mean_and_spread(losses), color="black", label="loss")
        column[0].set_title(f"{one.shown}: training")
        column[1].set(title=f"{one.shown}: validation, clean labels", xlabel="epoch")
        style.whole_numbers(column[1].xaxis)
    style.letter(axes.flat)
    for column, one in zip(axes.T, setups, strict=True):
        _draw_validation(column[1], rows, one.shown)
    axes[0][0].set_ylabel("loss (mean of the epoch)")
    axes[1][0].set_ylabel("loss")
    style.legend_below(figure, axes[1][0])
    return figure


def _draw_validation(panel: style.Axes, rows: list[Row], name: str) -> None:
    """Loss on the left axis, MAP both ways on the right one, which all panels share."""
    epochs, losses = _over_seeds(rows, name, "val_loss")
    style.band(panel, epochs, *mean_and_spread(losses), color="black", label="loss")
    right, looks = panel.twinx(), style.lines_of(["i2t", "t2i"])
    for way, title in WAYS.items():
        _, curves = _over_seeds(rows, name, f"map_{way}")
        line = {**looks[way], "markevery": max(1, len(epochs) // 12)}
        style.band(right, epochs, *mean_and_spread(curves), label=f"MAP, {title}", **line)
        panel.plot([], [], label=f"MAP, {title}", **looks[way])  # for the legend
    right.set(ylabel="MAP", ylim=(0, 1.08 * max(max(row["map_i2t"], row["map_t2i"]) for row in rows)))
    right.grid(False)
    right.spines["right"].set_visible(True)
