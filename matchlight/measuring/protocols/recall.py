"""Recall at 1, 5 and 10 both ways, whole or in folds, and the cross-retrieval rank of each pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from matchlight.console import track
from matchlight.core import BadInput
from matchlight.measuring.metrics import (
    NOTHING,
    Figures,
    Relevance,
    cross_ranks,
    hit_rate,
    maps_at_r,
    mean,
    mean_rank,
    median_rank,
    r_precisions,
    rank_histogram,
    ranks,
)
from matchlight.measuring.metrics.blocks import Scores, Window
from matchlight.measuring.metrics.relevance import Array
from matchlight.measuring.protocols.judged import SIDES, Judged, Unfit, hits
from matchlight.measuring.protocols.summaries import summaries
from matchlight.pairs import Pairs

AT = (1, 5, 10)


def recall(scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs") -> Judged:
    """R@1, R@5, R@10, median and mean rank both ways; a relevance file adds its many-to-many figures as "many"."""
    everything = np.arange(len(pairs.names)), np.arange(len(pairs))
    found = _both_ranks(scores, relevant(pairs, *everything, relevance), ties)
    figures = Figures(len(pairs.names))
    _add_ranks(figures, found, everything[0], pairs.picture)
    report = _recall_of(found)
    if pairs.relevance is not None:
        report["many"] = _many(scores, relevant(pairs, *everything, "file"), ties, figures, pairs.picture)
    return Judged(report, figures)


def relevant(pairs: Pairs, pictures: Array, rows: Array, kind: str) -> Relevance:
    """Who fits whom among these pictures and rows: by ownership ("pairs") or by the data's relevance file ("file")."""
    if kind == "pairs":
        place = np.full(len(pairs.names), -1, np.int64)
        place[pictures] = np.arange(len(pictures))
        return Relevance.of_owner(place[pairs.picture[rows]], pictures=len(pictures))
    if kind != "file":
        raise BadInput(f"{kind!r} is no kind of relevance; known: pairs, file")
    if pairs.relevance is None:
        raise BadInput(f"{pairs.root}: no relevance file beside this data; use relevance 'pairs'")
    return Relevance.of_sparse(pairs.relevance[rows][:, pictures].T)


def _both_ranks(scores: Scores, relevance: Relevance, ties: str) -> dict[str, Array]:
    return {"i2t": ranks(scores, relevance, ties=ties), "t2i": ranks(scores.T, relevance.T, ties=ties)}


def _recall_of(found: dict[str, Array]) -> dict[str, Any]:
    report: dict[str, Any] = {side: _direction(found[side]) for side in SIDES}
    report["rsum"] = sum(report[side][f"r{k}"] for side in SIDES for k in AT)
    return {**report, "pictures": len(found["i2t"]), "captions": len(found["t2i"])}


def _direction(found: Array) -> dict[str, float]:
    rates = {f"r{k}": 100 * hit_rate(found, at=k) for k in AT}
    return {**rates, "medr": median_rank(found), "meanr": mean_rank(found)}


def _add_ranks(figures: Figures, found: dict[str, Array], pictures: Array, owner: Array, *, folds: int = 1) -> None:
    """Recalls and mean ranks as means over queries; medians are none."""
    for side, unit in zip(SIDES, (pictures, owner), strict=True):
        for k in AT:
            both = {(side, f"r{k}"): 1 / folds, ("rsum",): 1 / folds}
            figures.add(100 * hits(found[side], k), unit, both)
        from_one = np.where(found[side] == NOTHING, np.nan, found[side] + 1.0)
        figures.add(from_one, unit, {(side, "meanr"): 1 / folds})


def _many(scores: Scores, fits: Relevance, ties: str, figures: Figures, owner: Array) -> dict[str, dict[str, float]]:
    """Percentages, like the report they stand in."""
    asked = {"i2t": (scores, fits, np.arange(fits.shape[0])), "t2i": (scores.T, fits.T, owner)}
    report: dict[str, dict[str, float]] = {}
    for side, (matrix, truth, unit) in asked.items():
        values = {
            "r1": 100 * hits(ranks(matrix, truth, ties=ties), 1),
            "map_at_r": 100 * maps_at_r(matrix, truth, ties=ties),
            "r_precision": 100 * r_precisions(matrix, truth, ties=ties),
        }
        report[side] = {name: mean(each) for name, each in values.items()}
        for name, each in values.items():
            figures.add(each, unit, {("many", side, name): 1.0})
    return report


# ---- folds -----------------------------------------------------------------------------------------------------------


def folds(pairs: Pairs, size: int) -> list[tuple[Array, Array]]:
    """(pictures, rows) of each fold: `size` pictures in file order with their captions; a rest is left out."""
    count = len(pairs.names) // size if size > 0 else 0
    if count < 2:
        have = f"{len(pairs.names)} pictures"
        raise Unfit(f"{pairs.root}: {have} do not make two folds of {size}; use protocol recall or a smaller fold")
    number = pairs.picture // size
    return [(np.arange(fold * size, (fold + 1) * size), np.flatnonzero(number == fold)) for fold in range(count)]


def five_fold(scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs", fold: int = 1000) -> Judged:
    """The mean of each fold's true figures (COCO 1K: five folds of 1,000 of the 5,000 test pictures)."""
    figures, reports, parts = Figures(len(pairs.names)), [], folds(pairs, fold)
    for pictures, rows in track(parts, "ranking folds"):
        window = Window.on(scores, pictures, rows)
        found = _both_ranks(window, relevant(pairs, pictures, rows, relevance), ties)
        _add_ranks(figures, found, pictures, pairs.picture[rows], folds=len(parts))
        reports.append(_recall_of(found))
    sides = {side: _averages([report[side] for report in reports]) for side in SIDES}
    totals = {name: sum(report[name] for report in reports) for name in ("pictures", "captions")}
    rsum = float(np.mean([report["rsum"] for report in reports]))
    left = len(pairs.names) - totals["pictures"]
    report = {**sides, "rsum": rsum, **totals, "folds": reports, **({"left_out": left} if left else {})}
    return Judged({**report, "summaries": summaries(reports)}, figures)


def _averages(sides: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([side[name] for side in sides])) for name in sides[0]}


# ---- both ways at once -----------------------------------------------------------------------------------------------


def cross_rank(scores: Scores, pairs: Pairs, *, ties: str) -> Judged:
    """How many pairs are found first both ways, how many are far down one way or the other, and all between."""
    found = cross_ranks(scores, pairs.picture, ties=ties)
    figures = Figures(len(pairs.names))
    for name, values in (("first", 100 * (found <= 1)), ("above_200", 100 * (np.ceil(found) > 200)), ("mean", found)):
        figures.add(values, pairs.picture, {(name,): 1.0})
    shares = {name: figures.value((name,)) for name in ("first", "above_200")}
    middle = {"median": float(np.median(found)), "mean": float(found.mean())}
    return Judged({"bins": rank_histogram(found), **shares, **middle, "pairs": len(found)}, figures)
