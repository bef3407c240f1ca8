"""NDCG with linear gain: an item is worth the number of labels it shares with the query, less the later it comes."""

from __future__ import annotations

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Numbers, Values, as_array
from matchlight.measuring.metrics.blocks import BUDGET, ScoresLike, as_scores, check_size, check_ties, over
from matchlight.measuring.metrics.gain_lists import listed
from matchlight.measuring.metrics.precision import average_precision_of, check_empty, no_hit
from matchlight.measuring.metrics.relevance import Relevance

DISCOUNTS = ("standard", "coco_t2i")


def by_gains(
    scores: ScoresLike,
    relevance: Relevance,
    *,
    at: int = 500,
    empty: str = "zero",
    discount: str = "standard",
    sibling: Numbers | None = None,
    ties: str = "worst",
    budget: int = BUDGET,
) -> tuple[Values, Values]:
    """(AP of the whole list, NDCG of its first `at`) of each query, from one ranking.

    AP is that of `average_precisions`; NDCG is 0 for a query without a hit.

    "standard" divides position r by log2(r + 1). "coco_t2i" divides by log2(5 (r - 1) + i + 2), i = the number of the
    query caption among its picture's (`sibling`): what the published COCO text-to-image figures were computed with.
    """
    check_ties(ties)
    check_empty(empty)
    if discount not in DISCOUNTS or (discount == "coco_t2i" and sibling is None):
        raise BadInput(f"discount {discount!r}: known are standard, and coco_t2i with `sibling`")
    matrix = as_scores(scores)
    check_size(matrix, relevance)
    shift = np.zeros(matrix.shape[0]) if discount == "standard" or sibling is None else as_array(sibling)
    place = np.arange(min(at, matrix.shape[1]))[None] * (1 if discount == "standard" else 5)

    def work(q0: int, q1: int, block: Array) -> tuple[Values, Values]:
        gains = relevance.gains(q0, q1, 0, matrix.shape[1])
        lists = listed(block, gains, ties)
        weight = 1 / np.log2(place + shift[q0:q1, None] + 2)
        got, best = (lists[:, : weight.shape[1]] * weight).sum(1), _best(gains, weight)
        aps = np.array([average_precision_of(np.flatnonzero(line) + 1) for line in lists])
        return aps, np.asarray(np.divide(got, best, out=np.zeros(len(got)), where=best > 0))

    parts = over(matrix, budget, work)
    if not parts:
        raise BadInput("there are no queries, so there is nothing to measure")
    aps, gained = (np.concatenate(values) for values in zip(*parts, strict=True))
    return no_hit(aps, empty), gained


def ndcg(
    scores: ScoresLike,
    relevance: Relevance,
    *,
    at: int = 500,
    discount: str = "standard",
    sibling: Numbers | None = None,
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """Mean NDCG; a query without a hit stays in the mean."""
    _, each = by_gains(scores, relevance, at=at, discount=discount, sibling=sibling, ties=ties, budget=budget)
    return float(each.mean())


def _best(gains: Array, weight: Array) -> Values:
    """DCG of the best order: all items of the highest gain, then those of the next, as far as the list goes."""
    room = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(weight, axis=1)], axis=1)
    whole, best, before = weight.shape[1], np.zeros(len(gains)), np.zeros(len(gains), np.int64)
    rows = np.arange(len(gains))
    for gain in _grades(gains):
        after = np.minimum(whole, before + np.count_nonzero(gains == gain, axis=1))
        best += float(gain) * (room[rows, after] - room[rows, before])
        before = after
    return best


def _grades(gains: Array) -> list[float]:
    """The gains that may occur, the highest first."""
    if gains.dtype.kind == "u":  # counts of shared labels: a few small numbers, quicker tried than looked for
        return list(range(int(gains.max(initial=0)), 0, -1))
    return [float(gain) for gain in np.unique(gains)[::-1]]
