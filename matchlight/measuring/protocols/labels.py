"""Retrieval judged by labels: mAP and NDCG over shared labels, and PMRP over class codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from matchlight.console import track
from matchlight.measuring.metrics import Figures, Relevance, by_gains, mean, micro_f1, pmrps
from matchlight.measuring.metrics.blocks import Scores, Window
from matchlight.measuring.metrics.relevance import Array
from matchlight.measuring.protocols.judged import SIDES, Judged, Unfit
from matchlight.measuring.protocols.recall import folds
from matchlight.pairs import Labels, Pairs


def _labels(pairs: Pairs, protocol: str) -> Labels:
    if pairs.labels is None:
        raise Unfit(f"{pairs.root}: protocol {protocol} needs labels and this data has none; use protocol recall")
    return pairs.labels


def labels(
    scores: Scores,
    pairs: Pairs,
    *,
    ties: str,
    cutoff: int = 500,
    discount: str = "standard",
    predictions: dict[str, Any] | None = None,
    thresholds: dict[str, float] | None = None,
) -> Judged:
    """mAP and NDCG both ways, fractions; items fit if they share a label. `predictions` adds Micro-F1 at 0.5.

    `thresholds`, chosen on validation data, add it at these as `micro_f1_tuned`.

    A query without a hit counts as zero where every item has one class and is left out where items have several, as
    the papers of either kind do.
    """
    truth = _labels(pairs, "labels")
    shared = Relevance.of_labels(truth.image, truth.text)
    empty = "zero" if truth.single else "skip"
    sides = {"i2t": (scores, shared), "t2i": (scores.T, shared.T)}
    discounts: dict[str, dict[str, Any]] = {
        "i2t": {},
        "t2i": {"discount": discount, "sibling": siblings(pairs.picture)},
    }
    figures, units = Figures(len(pairs.names)), {"i2t": np.arange(len(pairs.names)), "t2i": pairs.picture}
    report: dict[str, Any] = {"map": {}, "ndcg": {}}
    for side in track(sides, "ranking by labels"):
        found = by_gains(*sides[side], at=cutoff, empty=empty, ties=ties, **discounts[side])
        for name, each in zip(("map", "ndcg"), found, strict=True):
            report[name][side] = mean(each)
            figures.add(each, units[side], {(name, side): 1.0, (name, "mean"): 0.5})
    report = {name: _with_mean(both) for name, both in report.items()}
    if predictions is not None:
        report |= _classified(predictions, {"image": truth.image, "text": truth.text}, thresholds)
    return Judged(report, figures)


def _classified(predictions: dict[str, Any], real: dict[str, Array], thresholds: dict[str, float] | None) -> Any:
    """Micro-F1 by side at 0.5, and at thresholds that were chosen elsewhere."""
    report: dict[str, Any] = {"micro_f1": {side: micro_f1(given, real[side]) for side, given in predictions.items()}}
    if thresholds is not None:
        sides = predictions.items()
        tuned = {side: micro_f1(given, real[side], threshold=thresholds[side]) for side, given in sides}
        report |= {"micro_f1_tuned": tuned, "thresholds": thresholds}
    return report


def _with_mean(sides: dict[str, float]) -> dict[str, float]:
    return {**sides, "mean": (sides["i2t"] + sides["t2i"]) / 2}


def siblings(owner: Array) -> Array:
    """The number of each caption among its picture's, from 0, in file order."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], owner[order], side="left")
    number = np.empty(len(owner), np.int64)
    number[order] = np.arange(len(owner)) - starts
    return number


def pmrp(scores: Scores, pairs: Pairs, *, ties: str, fold: int | None = None) -> Judged:
    """Plausible-match R-precision both ways, percentages; with `fold`, the mean over folds of so many pictures.

    A caption takes the class code of its picture; pictures without any class leave queries and gallery.
    """
    codes = _labels(pairs, "pmrp").image
    whole = [(np.arange(len(pairs.names)), np.arange(len(pairs)))]
    parts = whole if fold is None else folds(pairs, fold)
    figures = Figures(len(pairs.names))
    for part in track(parts, "plausible matches"):
        for side, (values, unit) in _pmrp_of(scores, *part, codes, pairs.picture, ties).items():
            figures.add(values, unit, {(side,): 1 / len(parts), ("mean",): 0.5 / len(parts)})
    return Judged({side: figures.value((side,)) for side in SIDES}, figures)


def _pmrp_of(
    scores: Scores, pictures: Array, rows: Array, codes: Array, owner: Array, ties: str
) -> dict[str, tuple[Array, Array]]:
    """By side: the value of each query, and its picture."""
    pictures, rows = pictures[codes[pictures].any(1)], rows[codes[owner[rows]].any(1)]
    if not len(rows):
        raise Unfit("protocol pmrp: no picture with a caption has a class")
    window, image, text = Window.on(scores, pictures, rows), codes[pictures], codes[owner[rows]]
    return {
        "i2t": (100 * pmrps(window, image, text, ties=ties), pictures),
        "t2i": (100 * pmrps(window.T, text, image, ties=ties), owner[rows]),
    }
