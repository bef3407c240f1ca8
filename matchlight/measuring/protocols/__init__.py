"""Protocols: the ways the field turns one score matrix into a table, by name; one referee for every method and tool.

`evaluate_scores` takes the scores of one split, pictures x captions in file order, and that split as `Pairs`. A picture
without captions asks nothing but stays in the gallery. Captions are found by their owner, however many a picture has.
`judge_scores` gives the values a query behind the report too, for intervals and paired tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from matchlight.core import BadInput
from matchlight.measuring.metrics.blocks import Scores, as_scores, check_ties
from matchlight.measuring.protocols import coco, labels, recall
from matchlight.measuring.protocols.judged import Judged, Unfit
from matchlight.measuring.protocols.table import table, tables
from matchlight.pairs import Pairs

__all__ = ["ALL", "PROTOCOLS", "Judged", "evaluate_scores", "judge_scores", "table", "tables"]

PROTOCOLS = ("recall", "five-fold", "labels", "cross-rank", "pmrp", "eccv", "cxc")
ALL = "all"


def evaluate_scores(
    scores: Any, pairs: Pairs, *, protocol: str = "auto", ties: str = "worst", ci: bool = False, **options: Any
) -> dict[str, Any]:
    """The report of one protocol on `scores` (pictures x captions, file order) for a split's `pairs`.

    `ci` adds 95% intervals. "all" is every protocol that the data allows, by name, with the reasons why others are
    left out. Options are those of `judge_scores`.
    """
    if protocol == ALL:
        return _every(scores, pairs, ties=ties, ci=ci, **options)
    judged = judge_scores(scores, pairs, protocol=protocol, ties=ties, **options)
    return judged.with_intervals() if ci else judged.report


def judge_scores(
    scores: Any,
    pairs: Pairs,
    *,
    protocol: str = "auto",
    ties: str = "worst",
    relevance: str = "pairs",
    fold: int | None = None,
    cutoff: int = 500,
    discount: str = "standard",
    predictions: dict[str, Any] | None = None,
    thresholds: dict[str, float] | None = None,
) -> Judged:
    """A report with the values a query behind it.

    `relevance="file"` counts whatever the data's relevance file calls a fit as a hit; `fold` is how many pictures a
    fold holds (five-fold: 1000; pmrp: no folds); `cutoff` and `discount` (of NDCG), `predictions` (class
    probabilities of "image" and "text", for Micro-F1) and `thresholds` (by side) belong to the labels protocol.
    """
    told: dict[str, Any] = {"predictions": predictions, "thresholds": thresholds}
    ways: dict[str, Callable[..., Judged]] = {
        "recall": partial(recall.recall, relevance=relevance),
        "five-fold": partial(recall.five_fold, relevance=relevance, fold=1000 if fold is None else fold),
        "labels": partial(labels.labels, cutoff=cutoff, discount=discount, **told),
        "cross-rank": recall.cross_rank,
        "pmrp": partial(labels.pmrp, fold=fold),
        "eccv": coco.eccv,
        "cxc": coco.cxc,
    }
    name = _auto(pairs) if protocol == "auto" else protocol
    if name not in ways:
        raise BadInput(f"{protocol!r} is no protocol; known: auto, {', '.join((*PROTOCOLS, ALL))}")
    check_ties(ties)
    return ways[name](_checked(scores, pairs), pairs, ties=ties)


def _every(scores: Any, pairs: Pairs, **options: Any) -> dict[str, Any]:
    """Reports by protocol, and why some are left out."""
    check_ties(options["ties"])
    matrix = _checked(scores, pairs)  # what is wrong with the scores themselves is an error, not a reason
    reports: dict[str, Any] = {}
    left: dict[str, str] = {}
    for name in PROTOCOLS:
        try:
            reports[name] = evaluate_scores(matrix, pairs, protocol=name, **options)
        except Unfit as why:
            left[name] = str(why)
    return {**reports, "left_out": left}


def _auto(pairs: Pairs) -> str:
    """A set of labels without words can only be judged by labels."""
    words = any(caption.strip() for caption in pairs.captions)
    return "labels" if pairs.labels is not None and not words else "recall"


def _checked(scores: Any, pairs: Pairs) -> Scores:
    matrix = as_scores(scores)
    wanted = (len(pairs.names), len(pairs))
    if tuple(matrix.shape) != wanted:
        turned = "; they look transposed: pictures are rows" if tuple(matrix.shape) == wanted[::-1] else ""
        got = " x ".join(map(str, matrix.shape))
        raise BadInput(f"scores are {got} but the data has {wanted[0]} pictures x {wanted[1]} captions{turned}")
    if not len(pairs):
        raise BadInput(f"{pairs.root}: no captions in this split, so there is nothing to evaluate")
    return matrix
