"""Recall at 1, 5 and 10 both ways, whole or in folds, and the cross-retrieval rank of each pair."""

from __future__ import annotations

from typing import Literal

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
from matchlight.measuring.metrics.arrays import Array
from matchlight.measuring.metrics.blocks import Scores, Window
from matchlight.measuring.protocols.measured import SIDES, Measured, Unfit, hits
from matchlight.measuring.protocols.reports import CrossRankReport, FiveFoldReport, RecallReport, SideRecall
from matchlight.measuring.protocols.summaries import summaries
from matchlight.pairs import Pairs

AT = (1, 5, 10)
RECALLS: tuple[Literal["r1", "r5", "r10"], ...] = ("r1", "r5", "r10")
RANKS: tuple[Literal["medr", "meanr"], ...] = ("medr", "meanr")


def recall(scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs") -> Measured:
    """R@1, R@5, R@10, median and mean rank both ways; a relevance file adds its many-to-many figures as "many"."""
    everything = np.arange(len(pairs.names)), np.arange(len(pairs))
    both = _both_ranks(scores, relevant(pairs, *everything, relevance), ties)
    figures = Figures(len(pairs.names))
    _add_ranks(figures, both, everything[0], pairs.picture)
    report = _recall_of(both)
    if pairs.relevance is not None:
        report["many"] = _many(scores, relevant(pairs, *everything, "file"), ties, figures, pairs.picture)
    return Measured(report, figures)


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


def _recall_of(both: dict[str, Array]) -> RecallReport:
    i2t, t2i = (_side(both[side]) for side in SIDES)
    return {
        "i2t": i2t,
        "t2i": t2i,
        "rsum": sum(side[k] for side in (i2t, t2i) for k in RECALLS),
        "pictures": len(both["i2t"]),
        "captions": len(both["t2i"]),
    }


def _side(side: Array) -> SideRecall:
    r1, r5, r10 = (100 * hit_rate(side, at=k) for k in AT)
    return {"r1": r1, "r5": r5, "r10": r10, "medr": median_rank(side), "meanr": mean_rank(side)}


def _add_ranks(figures: Figures, both: dict[str, Array], pictures: Array, owner: Array, *, folds: int = 1) -> None:
    """Recalls and mean ranks as means over queries; medians are none."""
    for side, unit in zip(SIDES, (pictures, owner), strict=True):
        for k in AT:
            into = {(side, f"r{k}"): 1 / folds, ("rsum",): 1 / folds}
            figures.add(100 * hits(both[side], k), unit, into)
        from_one = np.where(both[side] == NOTHING, np.nan, both[side] + 1.0)
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


def five_fold(
    scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs", fold: int | None = None
) -> Measured:
    """The mean of each fold's true figures (COCO 1K: five folds of 1,000 of the 5,000 test pictures)."""
    figures, reports, parts = Figures(len(pairs.names)), [], folds(pairs, 1000 if fold is None else fold)
    for pictures, rows in track(parts, "ranking folds"):
        window = Window.on(scores, pictures, rows)
        both = _both_ranks(window, relevant(pairs, pictures, rows, relevance), ties)
        _add_ranks(figures, both, pictures, pairs.picture[rows], folds=len(parts))
        reports.append(_recall_of(both))
    report: FiveFoldReport = {
        "i2t": _averages([report["i2t"] for report in reports]),
        "t2i": _averages([report["t2i"] for report in reports]),
        "rsum": float(np.mean([report["rsum"] for report in reports])),
        "pictures": sum(report["pictures"] for report in reports),
        "captions": sum(report["captions"] for report in reports),
        "folds": reports,
        "summaries": summaries(reports),
    }
    left = len(pairs.names) - report["pictures"]
    return Measured({**report, "left_out": left} if left else report, figures)


def _averages(sides: list[SideRecall]) -> SideRecall:
    r1, r5, r10 = (float(np.mean([side[k] for side in sides])) for k in RECALLS)
    medr, meanr = (float(np.mean([side[k] for side in sides])) for k in RANKS)
    return {"r1": r1, "r5": r5, "r10": r10, "medr": medr, "meanr": meanr}


# ---- both ways at once -----------------------------------------------------------------------------------------------


def cross_rank(scores: Scores, pairs: Pairs, *, ties: str) -> Measured:
    """How many pairs rank first both ways, how many are far down one way or the other, and all between."""
    worse = cross_ranks(scores, pairs.picture, ties=ties)
    figures = Figures(len(pairs.names))
    for name, values in (("first", 100 * (worse <= 1)), ("above_200", 100 * (np.ceil(worse) > 200)), ("mean", worse)):
        figures.add(values, pairs.picture, {(name,): 1.0})
    report: CrossRankReport = {
        "bins": rank_histogram(worse),
        "first": figures.value(("first",)),
        "above_200": figures.value(("above_200",)),
        "median": float(np.median(worse)),
        "mean": float(worse.mean()),
        "pairs": len(worse),
    }
    return Measured(report, figures)
