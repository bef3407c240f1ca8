"""Figures over all relevant items of a query: AP, R-precision, mAP@R, IR recall, precision-recall curves, PMRP.

All are read from one thing: the positions at which a query's relevant items come (`found`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from matchlight.core import BadInput
from matchlight.metrics.blocks import BUDGET, as_scores, found
from matchlight.metrics.relevance import Array, Relevance

LEVELS = tuple(level / 20 for level in range(1, 21))
Positions = npt.NDArray[np.int64]


def _mean(values: Sequence[Any]) -> Any:
    if not len(values):
        raise BadInput("no query has a relevant item in the gallery, so there is nothing to measure")
    return np.mean(np.asarray(values, np.float64), axis=0)


def mean_average_precision(
    scores: Any,
    relevance: Relevance,
    *,
    at: int | None = None,
    empty: str = "zero",
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """mAP over the whole list or its first `at`, divided by the hits inside it.

    A query with no hit in the list counts as 0 (`empty="zero"`, single-label sets) or not at all ("skip", multi-label).
    """
    if empty not in ("zero", "skip"):
        raise BadInput(f"{empty!r} is no rule for queries without a hit; known: zero, skip")
    values = []
    for _, positions in found(scores, relevance, ties=ties, budget=budget):
        hits = positions if at is None else positions[positions <= at]
        if len(hits):
            values.append(float((np.arange(1, len(hits) + 1) / hits).mean()))
    if empty == "zero":
        values += [0.0] * (as_scores(scores).shape[0] - len(values))
    return float(_mean(values))


def _over_r(
    scores: Any, relevance: Relevance, value: Callable[[Positions, int], float], total: Any, ties: str, budget: int
) -> float:
    """The mean of `value(positions, R)`; `total` gives R where some relevant items are not in the gallery."""
    totals = None if total is None else np.asarray(total)
    pairs = found(scores, relevance, ties=ties, budget=budget)
    return float(_mean([value(p, len(p) if totals is None else int(totals[q])) for q, p in pairs]))


def r_precision(
    scores: Any, relevance: Relevance, *, total: Any = None, ties: str = "worst", budget: int = BUDGET
) -> float:
    """The share of relevant items among the first R, R = how many there are; mean over queries."""
    return _over_r(scores, relevance, lambda positions, r: float((positions <= r).sum() / r), total, ties, budget)


def map_at_r(
    scores: Any, relevance: Relevance, *, total: Any = None, ties: str = "worst", budget: int = BUDGET
) -> float:
    """mAP@R: precision at each hit among the first R, summed and divided by R; mean over queries."""
    return _over_r(scores, relevance, _ap_at_r, total, ties, budget)


def _ap_at_r(positions: Positions, r: int) -> float:
    hits = positions[positions <= r]
    return float((np.arange(1, len(hits) + 1) / hits).sum() / r)


def ir_recall(scores: Any, relevance: Relevance, *, at: int, ties: str = "worst", budget: int = BUDGET) -> float:
    """Recall as information retrieval means it: the *share* of relevant items found in the first `at`; mean."""
    return _over_r(scores, relevance, lambda positions, r: float((positions <= at).sum() / r), None, ties, budget)


def precision_recall(
    scores: Any,
    relevance: Relevance,
    *,
    levels: Sequence[float] = LEVELS,
    interpolated: bool = False,
    ties: str = "worst",
    budget: int = BUDGET,
) -> tuple[Array, Array]:
    """(levels, mean precision where recall first reaches each level); interpolated: the best from there on."""
    wanted = np.asarray(levels, np.float64)
    curves = []
    for _, positions in found(scores, relevance, ties=ties, budget=budget):
        precision = np.arange(1, len(positions) + 1) / positions
        if interpolated:
            precision = np.maximum.accumulate(precision[::-1])[::-1]
        hit = np.ceil(wanted * len(positions) - 1e-9).astype(np.int64)  # 0.55 * 100 must not round up to 56
        curves.append(precision[np.clip(hit, 1, len(positions)) - 1])
    return wanted, np.asarray(_mean(curves))


def pmrp(
    scores: Any,
    image: Any,
    text: Any,
    *,
    within: Sequence[int] = (0, 1, 2),
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """Plausible-match R-precision of row queries: items fit if their class codes differ in at most 0, 1, 2 places."""
    near = [Relevance.of_codes(image, text, within=distance) for distance in within]
    return float(np.mean([r_precision(scores, each, ties=ties, budget=budget) for each in near]))
