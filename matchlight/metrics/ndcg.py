"""NDCG with linear gain: an item is worth the number of labels it shares with the query, less the later it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from matchlight.core import BadInput
from matchlight.metrics.blocks import BUDGET, blocks, check_ties
from matchlight.metrics.relevance import Array, Relevance

DISCOUNTS = ("standard", "coco_t2i")


def ndcg(
    scores: Any,
    relevance: Relevance,
    *,
    at: int = 500,
    discount: str = "standard",
    sibling: Any = None,
    ties: str = "worst",
    budget: int = BUDGET,
) -> float:
    """Mean NDCG of the first `at`; a query with nothing found scores 0 and stays in the mean.

    "standard" divides position r by log2(r + 1). "coco_t2i" divides by log2(5 (r - 1) + i + 2), i = the number of the
    query caption among its picture's (`sibling`): what the published COCO text-to-image figures were computed with.
    """
    check_ties(ties)
    if discount not in DISCOUNTS or (discount == "coco_t2i" and sibling is None):
        raise BadInput(f"discount {discount!r}: known are standard, and coco_t2i with `sibling`")
    shift = None if discount == "standard" else np.asarray(sibling)
    values = [
        _block_ndcg(
            block, np.asarray(gains, np.float64), at, None if shift is None else shift[q : q + len(block)], ties
        )
        for q, block, gains in blocks(scores, relevance, budget)
    ]
    if not values:
        raise BadInput("there are no queries, so there is nothing to measure")
    return float(np.concatenate(values).mean())


def _block_ndcg(block: Array, gains: Array, at: int, shift: Array | None, ties: str) -> npt.NDArray[np.float64]:
    if ties == "worst":
        order = np.lexsort((gains, -block), axis=-1)  # the poorer first among equals
    else:
        order = np.argsort(block, axis=1, kind="stable")[:, ::-1]
    cut = min(at, block.shape[1])
    position = np.arange(cut)[None]
    weight = 1 / np.log2(position + 2 if shift is None else 5 * position + shift[:, None] + 2)
    got = (np.take_along_axis(gains, order[:, :cut], axis=1) * weight).sum(1)
    best = (-np.sort(-gains, axis=1)[:, :cut] * weight).sum(1)
    return np.asarray(np.divide(got, best, out=np.zeros(len(got)), where=best > 0))
