"""Retrieval measured by labels: mAP and NDCG over shared labels, and PMRP over class codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from matchlight.console import track
from matchlight.measuring.metrics import Figures, Relevance, by_gains, mean, micro_f1, pmrps
from matchlight.measuring.metrics.arrays import Array, Numbers
from matchlight.measuring.metrics.blocks import Scores, Window
from matchlight.measuring.protocols.measured import Measured, Unfit
from matchlight.measuring.protocols.recall import folds
from matchlight.measuring.protocols.reports import BySide, LabelReport, PmrpReport
from matchlight.pairs import Labels, Pairs

NAMES: tuple[Literal["map", "ndcg"], ...] = ("map", "ndcg")


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
    predictions: Mapping[str, Numbers] | None = None,
    thresholds: BySide | None = None,
) -> Measured:
    """mAP and NDCG both ways, fractions; items fit if they share a label. `predictions` adds Micro-F1 at 0.5.

    `thresholds`, chosen on validation data, add it at these as `micro_f1_tuned`.

    A query without a hit counts as zero where every item has one class and is left out where items have several, as
    the papers of either kind do.
    """
    truth = _labels(pairs, "labels")
    shared = Relevance.of_labels(truth.image, truth.text)
    empty = "zero" if truth.single else "skip"
    sides = {"i2t": (scores, shared), "t2i": (scores.T, shared.T)}
    discounts = {"i2t": ("standard", None), "t2i": (discount, siblings(pairs.picture))}
    figures, units = Figures(len(pairs.names)), {"i2t": np.arange(len(pairs.names)), "t2i": pairs.picture}
    report: LabelReport = {"map": {}, "ndcg": {}}
    for side in track(sides, "ranking by labels"):
        rule, sibling = discounts[side]
        both = by_gains(*sides[side], at=cutoff, empty=empty, ties=ties, discount=rule, sibling=sibling)
        for name, each in zip(NAMES, both, strict=True):
            report[name][side] = mean(each)
            figures.add(each, units[side], {(name, side): 1.0, (name, "mean"): 0.5})
    for name in NAMES:
        report[name] = _with_mean(report[name])
    if predictions is not None:
        _add_micro_f1(report, predictions, {"image": truth.image, "text": truth.text}, thresholds)
    return Measured(report, figures)


def _add_micro_f1(
    report: LabelReport, predictions: Mapping[str, Numbers], real: dict[str, Array], thresholds: BySide | None
) -> None:
    """Micro-F1 by side at 0.5, and at thresholds that were chosen elsewhere."""
    report["micro_f1"] = {side: micro_f1(given, real[side]) for side, given in predictions.items()}
    if thresholds is not None:
        sides = predictions.items()
        report["micro_f1_tuned"] = {
            side: micro_f1(given, real[side], threshold=thresholds[side]) for side, given in sides
        }
        report["thresholds"] = thresholds


def _with_mean(sides: BySide) -> BySide:
    return {**sides, "mean": (sides["i2t"] + sides["t2i"]) / 2}


def siblings(owner: Array) -> Array:
    """The number of each caption among its picture's, from 0, in file order."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], owner[order], side="left")
    number = np.empty(len(owner), np.int64)
    number[order] = np.arange(len(owner)) - starts
    return number


def pmrp(scores: Scores, pairs: Pairs, *, ties: str, fold: int | None = None) -> Measured:
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
    report: PmrpReport = {"i2t": figures.value(("i2t",)), "t2i": figures.value(("t2i",))}
    return Measured(report, figures)


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
