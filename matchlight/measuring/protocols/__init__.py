"""Protocols: the ways the field turns one score matrix into a table, by name; the same code for every method and tool.

`evaluate_scores` takes the scores of one split, pictures x captions in file order, and that split as `Pairs`. A picture
without captions asks nothing but stays in the gallery. A picture's captions are looked up, however many it has.
`measure_scores` gives the values of each query behind the report too, for intervals and paired tests.

In reading order:

    reports.py        the keys of each protocol's report
    measured.py       `Measured`: a report with the values of each query behind it
    recall.py         recall, five-fold, cross-rank
    summaries.py      what released code would print for the same folds
    by_labels.py      labels, pmrp
    eccv_and_cxc.py   eccv, cxc
    report_tables.py  a report as a table for the terminal
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, Unpack

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Numbers
from matchlight.measuring.metrics.blocks import Scores, ScoresLike, as_scores, check_ties
from matchlight.measuring.protocols import by_labels, eccv_and_cxc, recall
from matchlight.measuring.protocols.measured import Measured, Unfit
from matchlight.measuring.protocols.report_tables import table, tables
from matchlight.measuring.protocols.reports import BySide, Report, figure
from matchlight.pairs import Pairs

__all__ = [
    "ALL",
    "PROTOCOLS",
    "Measured",
    "Options",
    "Report",
    "evaluate_scores",
    "figure",
    "measure_scores",
    "table",
    "tables",
]

PROTOCOLS = ("recall", "five-fold", "labels", "cross-rank", "pmrp", "eccv", "cxc")
ALL = "all"


class Options(TypedDict, total=False):
    """The options of protocols, by name; `Settings` says what each means and what it is where it is not given."""

    ties: str
    relevance: str
    fold: int | None
    cutoff: int
    discount: str
    predictions: Mapping[str, Numbers] | None
    thresholds: BySide | None


@dataclass(frozen=True)
class Settings:
    """What protocols can be asked; each reads what concerns it."""

    ties: str = "worst"  # "worst" | "official": which of two equal scores comes first
    relevance: str = "pairs"  # recall, five-fold: "file" counts whatever the data's relevance file calls a fit as a hit
    fold: int | None = None  # pictures a fold holds (five-fold: 1000; pmrp: no folds)
    cutoff: int = 500  # labels: how much of a list NDCG reads
    discount: str = "standard"  # labels: the discount of NDCG
    predictions: Mapping[str, Numbers] | None = None  # labels: class probabilities of "image" and "text", for Micro-F1
    thresholds: BySide | None = None  # labels: by side, chosen on other data


def evaluate_scores(
    scores: ScoresLike, pairs: Pairs, *, protocol: str = "auto", ci: bool = False, **options: Unpack[Options]
) -> Report:
    """The report of one protocol on `scores` (pictures x captions, file order) for a split's `pairs`.

    `ci` adds 95% intervals. "all" is every protocol that the data allows, by name, with the reasons why others are
    left out.
    """
    if protocol == ALL:
        return _every(scores, pairs, ci=ci, **options)
    measured = measure_scores(scores, pairs, protocol=protocol, **options)
    return measured.with_intervals() if ci else measured.report


def measure_scores(scores: ScoresLike, pairs: Pairs, *, protocol: str = "auto", **options: Unpack[Options]) -> Measured:
    """A report with the values of each query behind it."""
    asked = Settings(**options)
    ways: dict[str, Callable[..., Measured]] = {
        "recall": partial(recall.recall, relevance=asked.relevance),
        "five-fold": partial(recall.five_fold, relevance=asked.relevance, fold=asked.fold),
        "labels": partial(
            by_labels.labels,
            cutoff=asked.cutoff,
            discount=asked.discount,
            predictions=asked.predictions,
            thresholds=asked.thresholds,
        ),
        "cross-rank": recall.cross_rank,
        "pmrp": partial(by_labels.pmrp, fold=asked.fold),
        "eccv": eccv_and_cxc.eccv,
        "cxc": eccv_and_cxc.cxc,
    }
    name = _auto(pairs) if protocol == "auto" else protocol
    if name not in ways:
        raise BadInput(f"{protocol!r} is no protocol; known: auto, {', '.join((*PROTOCOLS, ALL))}")
    check_ties(asked.ties)
    return ways[name](_checked(scores, pairs), pairs, ties=asked.ties)


def _every(scores: ScoresLike, pairs: Pairs, *, ci: bool, **options: Unpack[Options]) -> Report:
    """Reports by protocol, and why some are left out."""
    check_ties(Settings(**options).ties)
    matrix = _checked(scores, pairs)  # what is wrong with the scores themselves is an error, not a reason
    reports: dict[str, Report] = {}
    left: dict[str, str] = {}
    for name in PROTOCOLS:
        try:
            reports[name] = evaluate_scores(matrix, pairs, protocol=name, ci=ci, **options)
        except Unfit as why:
            left[name] = str(why)
    return {**reports, "left_out": left}


def _auto(pairs: Pairs) -> str:
    """A set of labels without words can only be measured by labels."""
    words = any(caption.strip() for caption in pairs.captions)
    return "labels" if pairs.labels is not None and not words else "recall"


def _checked(scores: ScoresLike, pairs: Pairs) -> Scores:
    matrix = as_scores(scores)
    wanted = (len(pairs.names), len(pairs))
    if tuple(matrix.shape) != wanted:
        turned = "; they look transposed: pictures are rows" if tuple(matrix.shape) == wanted[::-1] else ""
        got = " x ".join(map(str, matrix.shape))
        raise BadInput(f"scores are {got} but the data has {wanted[0]} pictures x {wanted[1]} captions{turned}")
    if not len(pairs):
        raise BadInput(f"{pairs.root}: no captions in this split, so there is nothing to evaluate")
    return matrix
