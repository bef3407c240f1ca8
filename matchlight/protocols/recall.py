"""Recall at 1, 5 and 10 both ways, whole or in folds, and the cross-retrieval rank of each pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from matchlight.console import track
from matchlight.core import BadInput
from matchlight.metrics import (
    Relevance,
    cross_ranks,
    hit_rate,
    map_at_r,
    mean_rank,
    median_rank,
    r_precision,
    rank_histogram,
    ranks,
)
from matchlight.metrics.blocks import Scores, Window
from matchlight.metrics.relevance import Array
from matchlight.pairs import Pairs


def recall(scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs") -> dict[str, Any]:
    """R@1, R@5, R@10, median and mean rank both ways; a relevance file adds its many-to-many figures as "many"."""
    everything = np.arange(len(pairs.names)), np.arange(len(pairs))
    report = _recall_of(scores, relevant(pairs, *everything, relevance), ties)
    if pairs.relevance is not None:
        report["many"] = _many(scores, relevant(pairs, *everything, "file"), ties)
    return report


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


def _recall_of(scores: Scores, relevance: Relevance, ties: str) -> dict[str, Any]:
    both = ranks(scores, relevance, ties=ties), ranks(scores.T, relevance.T, ties=ties)
    report: dict[str, Any] = {side: _direction(found) for side, found in zip(("i2t", "t2i"), both, strict=True)}
    report["rsum"] = sum(report[side][f"r{k}"] for side in ("i2t", "t2i") for k in (1, 5, 10))
    return {**report, "pictures": scores.shape[0], "captions": scores.shape[1]}


def _direction(found: Array) -> dict[str, float]:
    rates = {f"r{k}": 100 * hit_rate(found, at=k) for k in (1, 5, 10)}
    return {**rates, "medr": median_rank(found), "meanr": mean_rank(found)}


def _many(scores: Scores, relevance: Relevance, ties: str) -> dict[str, dict[str, float]]:
    """Percentages, like the report they stand in."""
    sides = {"i2t": (scores, relevance), "t2i": (scores.T, relevance.T)}
    return {
        side: {
            "r1": 100 * hit_rate(ranks(*asked, ties=ties), at=1),
            "map_at_r": 100 * map_at_r(*asked, ties=ties),
            "r_precision": 100 * r_precision(*asked, ties=ties),
        }
        for side, asked in sides.items()
    }


def folds(pairs: Pairs, size: int) -> list[tuple[Array, Array]]:
    """(pictures, rows) of each fold: `size` pictures in file order with their captions; a rest is left out."""
    count = len(pairs.names) // size if size > 0 else 0
    if count < 2:
        have = f"{len(pairs.names)} pictures"
        raise BadInput(f"{pairs.root}: {have} do not make two folds of {size}; use protocol recall or a smaller fold")
    number = pairs.picture // size
    return [(np.arange(fold * size, (fold + 1) * size), np.flatnonzero(number == fold)) for fold in range(count)]


def five_fold(scores: Scores, pairs: Pairs, *, ties: str, relevance: str = "pairs", fold: int = 1000) -> dict[str, Any]:
    """The mean of each fold's true figures (COCO 1K: five folds of 1,000 of the 5,000 test pictures)."""
    reports = [
        _recall_of(Window.on(scores, pictures, rows), relevant(pairs, pictures, rows, relevance), ties)
        for pictures, rows in track(folds(pairs, fold), "ranking folds")
    ]
    sides = {side: _averages([report[side] for report in reports]) for side in ("i2t", "t2i")}
    totals = {name: sum(report[name] for report in reports) for name in ("pictures", "captions")}
    rsum = float(np.mean([report["rsum"] for report in reports]))
    left = len(pairs.names) - totals["pictures"]
    return {**sides, "rsum": rsum, **totals, "folds": reports, **({"left_out": left} if left else {})}


def _averages(sides: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([side[name] for side in sides])) for name in sides[0]}


def cross_rank(scores: Scores, pairs: Pairs, *, ties: str) -> dict[str, Any]:
    """How many pairs are found first both ways, how many are far down one way or the other, and all between."""
    found = cross_ranks(scores, pairs.picture, ties=ties)
    counts = rank_histogram(found)
    first, far = counts["1"] / len(found), counts[">200"] / len(found)
    middle = {"median": float(np.median(found)), "mean": float(found.mean())}
    return {"bins": counts, "first": 100 * first, "above_200": 100 * far, **middle, "pairs": len(found)}
