"""Figures over all relevant items of a query: AP, R-precision, mAP@R, IR recall, precision-recall curves, PMRP.

Most are read from the positions at which a query's relevant items come. The plural functions give a value a query, NaN
for a query that is left out; the others are their means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Bools, Numbers, Values, as_array
from matchlight.measuring.metrics.blocks import BUDGET, ScoresLike, as_scores, check_size, check_ties, over
from matchlight.measuring.metrics.positions import Positions, per_query
from matchlight.measuring.metrics.relevance import Relevance

LEVELS = tuple(level / 20 for level in range(1, 21))


def mean(values: Numbers) -> float:
    """The mean over the queries that were asked."""
    kept = as_array(values).astype(np.float64, copy=False)
    kept = kept[~np.isnan(kept)]
    if not kept.size:
        raise BadInput("no query has a relevant item in the gallery, so there is nothing to measure")
    return float(kept.mean())


def _values(scores: ScoresLike, answers: list[tuple[int, float]]) -> Values:
    out = np.full(as_scores(scores).shape[0], np.nan)
    for query, value in answers:
        out[query] = value
    return out


# ---- average precision -----------------------------------------------------------------------------------------------


def average_precisions(
    scores: ScoresLike,
    relevance: Relevance,
    *,
    at: int | None = None,
    empty: str = "zero",
    ties: str = "worst",
    budget: int = BUDGET,
) -> Values:
    """AP of each query over the whole list or its first `at`, divided by the hits inside it.

    A query with no hit in the list counts as 0 (`empty="zero"`, single-label sets) or not at all ("skip", multi-label).
    """
    check_empty(empty)

    def value(query: int, positions: Positions) -> float:
        return average_precision_of(positions if at is None else positions[positions <= at])

    return no_hit(_values(scores, per_query(scores, relevance, value, ties=ties, budget=budget)), empty)


def check_empty(empty: str) -> None:
    """Refuse a rule for queries without a hit that does not exist."""
    if empty not in ("zero", "skip"):
        raise BadInput(f"{empty!r} is no rule for queries without a hit; known: zero, skip")


def no_hit(values: Values, empty: str) -> Values:
    """AP by query, with those that have none counted as 0 or left out."""
    return np.where(np.isnan(values), 0.0, values) if empty == "zero" else values


def average_precision_of(positions: Positions) -> float:
    """AP of a list with hits at these positions (from 1); NaN where there are none."""
    return float((np.arange(1, len(positions) + 1) / positions).mean()) if len(positions) else np.nan


def mean_average_precision(
    scores: ScoresLike,
    relevance: Relevance,
    *,
    at: int | None = None,
    empty: str = "zero",
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """mAP: the mean of `average_precisions`."""
    return mean(average_precisions(scores, relevance, at=at, empty=empty, ties=ties, budget=budget))


# ---- the first R -----------------------------------------------------------------------------------------------------


def _over_r(
    scores: ScoresLike,
    relevance: Relevance,
    value: Callable[[Positions, int], float],
    total: Numbers | None,
    ties: str,
    budget: int,
) -> Values:
    """`value(positions, R)` of each query; `total` gives R where some relevant items are not in the gallery."""
    totals = None if total is None else as_array(total)

    def of(query: int, positions: Positions) -> float:
        return value(positions, len(positions) if totals is None else int(totals[query]))

    return _values(scores, per_query(scores, relevance, of, ties=ties, budget=budget))


def r_precisions(
    scores: ScoresLike, relevance: Relevance, *, total: Numbers | None = None, ties: str = "worst", budget: int = BUDGET
) -> Values:
    """The share of relevant items among the first R of each query, R = how many there are."""
    if total is None and relevance.links is None:
        return _graded_r_precisions(scores, relevance, (1,), ties, budget)
    return _over_r(scores, relevance, lambda positions, r: float((positions <= r).sum() / r), total, ties, budget)


def r_precision(
    scores: ScoresLike, relevance: Relevance, *, total: Numbers | None = None, ties: str = "worst", budget: int = BUDGET
) -> float:
    """The mean of `r_precisions`."""
    return mean(r_precisions(scores, relevance, total=total, ties=ties, budget=budget))


def maps_at_r(
    scores: ScoresLike, relevance: Relevance, *, total: Numbers | None = None, ties: str = "worst", budget: int = BUDGET
) -> Values:
    """AP@R of each query: precision at each hit among the first R, summed and divided by R."""
    return _over_r(scores, relevance, _ap_at_r, total, ties, budget)


def map_at_r(
    scores: ScoresLike, relevance: Relevance, *, total: Numbers | None = None, ties: str = "worst", budget: int = BUDGET
) -> float:
    """mAP@R: the mean of `maps_at_r`."""
    return mean(maps_at_r(scores, relevance, total=total, ties=ties, budget=budget))


def _ap_at_r(positions: Positions, r: int) -> float:
    hits = positions[positions <= r]
    return float((np.arange(1, len(hits) + 1) / hits).sum() / r)


def ir_recall(scores: ScoresLike, relevance: Relevance, *, at: int, ties: str = "worst", budget: int = BUDGET) -> float:
    """Recall as information retrieval means it: the *share* of relevant items among the first `at`; mean."""
    return mean(_over_r(scores, relevance, lambda places, r: float((places <= at).sum() / r), None, ties, budget))


def precision_recall(
    scores: ScoresLike,
    relevance: Relevance,
    *,
    levels: Sequence[float] = LEVELS,
    interpolated: bool = False,
    ties: str = "worst",
    budget: int = BUDGET,
) -> tuple[Array, Array]:
    """(levels, mean precision where recall first reaches each level); interpolated: the best from there on."""
    wanted = np.asarray(levels, np.float64)

    def curve(query: int, positions: Positions) -> Array:
        precision = np.arange(1, len(positions) + 1) / positions
        if interpolated:
            precision = np.maximum.accumulate(precision[::-1])[::-1]
        hit = np.ceil(wanted * len(positions) - 1e-9).astype(np.int64)  # 0.55 * 100 must not round up to 56
        return np.asarray(precision[np.clip(hit, 1, len(positions)) - 1])

    curves = [each for _, each in per_query(scores, relevance, curve, ties=ties, budget=budget)]
    if not curves:
        raise BadInput("no query has a relevant item in the gallery, so there is nothing to measure")
    return wanted, np.mean(curves, axis=0)


# ---- many relevant items: no sort, one threshold ---------------------------------------------------------------------


def pmrps(
    scores: ScoresLike,
    image: Numbers,
    text: Numbers,
    *,
    within: Sequence[int] = (0, 1, 2),
    ties: str = "worst",
    budget: int = BUDGET,
) -> Values:
    """R-precision of each row query, an item fitting if its class code differs in at most 0, 1, 2 places; their mean.

    A query without a match at the smallest distance, which its own pair would be, is left out.
    """
    near = Relevance.of_codes(image, text, within=max(within))
    return _graded_r_precisions(scores, near, [max(within) + 1 - distance for distance in within], ties, budget)


def pmrp(
    scores: ScoresLike,
    image: Numbers,
    text: Numbers,
    *,
    within: Sequence[int] = (0, 1, 2),
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """Plausible-match R-precision: the mean of `pmrps`."""
    return mean(pmrps(scores, image, text, within=within, ties=ties, budget=budget))


def _graded_r_precisions(
    scores: ScoresLike, relevance: Relevance, grades: Sequence[int], ties: str, budget: int
) -> Values:
    """The mean over grades of R-precision, an item being relevant at a grade if its gain is at least that."""
    check_ties(ties)
    matrix = as_scores(scores)
    check_size(matrix, relevance)

    def work(q0: int, q1: int, block: Array) -> Values:
        gains = relevance.gains(q0, q1, 0, matrix.shape[1])
        fits = [gains >= grade if grade > 1 else gains > 0 for grade in grades]
        counts = np.stack([np.count_nonzero(fit, axis=1) for fit in fits])
        levels = _levels(block, counts)
        each = [_share(block, fit, r, level, ties) for fit, r, level in zip(fits, counts, levels, strict=True)]
        return np.asarray(np.mean(each, axis=0), np.float64)

    parts = over(matrix, budget, work)
    return np.concatenate(parts) if parts else np.zeros(0)


def _levels(block: Array, counts: Array) -> Array:
    """(grades, queries): the score of each query's R-th item; where R is 0, its best score."""
    out = np.empty(counts.shape, block.dtype)
    for query, line in enumerate(block):
        places = len(line) - np.maximum(1, counts[:, query])
        first = int(places.min())
        out[:, query] = np.sort(np.partition(line, first)[first:])[places - first]  # only the largest R is put in order
    return out


def _share(block: Array, fits: Bools, r: Array, level: Array, ties: str) -> Values:
    """Relevant items among the first R, as a share of R; NaN where R is 0. The R-th item has the score `level`."""
    inside = block >= level[:, None]
    hits = np.count_nonzero(inside & fits, axis=1).astype(np.float64)
    for query in np.flatnonzero(np.count_nonzero(inside, axis=1) > r):  # equals of the R-th are not all inside
        hits[query] = _tied_hits(block[query], fits[query], int(r[query]), level[query], ties)
    return np.asarray(np.divide(hits, r, out=np.full(len(r), np.nan), where=r > 0))


def _tied_hits(line: Array, fits: Bools, r: int, level: float, ties: str) -> int:
    above, level_fits = line > level, fits[line == level]
    room, wrong = r - int(np.count_nonzero(above)), int(np.count_nonzero(~level_fits))
    level_hits = max(0, room - wrong) if ties == "worst" else int(np.count_nonzero(level_fits[::-1][:room]))
    return int(np.count_nonzero(above & fits)) + level_hits
