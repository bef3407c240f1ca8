"""Figures of ranked lists: our recalls and ranks, and the figures that information retrieval reports.

A query that was judged but not answered counts as a miss, and one that nobody judged is left out. What stands in no
list has no rank: the median and mean rank are None where they would depend on it. Ties are those of our metrics: under
"worst" every wrong item of the same score comes first, under "official" the file's own order decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np
from rich.table import Table

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Values
from matchlight.measuring.metrics.blocks import check_ties
from matchlight.measuring.rankings.ranked_lists import SIDES, Judgements, RankedLists, Ranking

TITLES = {
    "r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "median", "meanr": "mean rank",
    "mrr": "MRR", "map": "MAP", "ndcg_at_10": "NDCG@10", "recall_at_10": "recall@10", "precision_at_10": "P@10",
}  # fmt: skip
NAMES = {"i2t": "image to text", "t2i": "text to image"}


class RankedReport(TypedDict):
    """Hits in percent as in every report, ranks from 1, and fractions."""

    r1: float
    r5: float
    r10: float
    medr: float | None  # None: too many queries found nothing relevant
    meanr: float | None  # None: some did
    mrr: float
    map: float  # divided by all relevant items, found or not
    ndcg_at_10: float  # linear gains
    recall_at_10: float  # the share of the relevant items that was found
    precision_at_10: float
    queries: int  # judged ones with anything relevant
    unanswered: int  # of these, those that the run has no list for


class BothReport(TypedDict):
    """Both directions, with the keys of the recall protocol."""

    i2t: RankedReport
    t2i: RankedReport
    rsum: float
    pictures: int
    captions: int


class QueryFigures:
    """The gains of one query's list, the best score first, and what could have been found."""

    def __init__(self, ranking: Ranking | None, judged: Mapping[str, float], ties: str):
        wanted = np.array([gain for gain in judged.values() if gain > 0])
        self.best = np.sort(wanted)[::-1]
        self.gains = np.zeros(0) if ranking is None else _gains(ranking, judged, ties)
        self.hits = np.flatnonzero(self.gains > 0) + 1  # positions from 1

    @property
    def first(self) -> float:
        """The position of the first relevant item; infinite where none is listed."""
        return float(self.hits[0]) if len(self.hits) else np.inf

    def average_precision(self, at: int | None = None) -> float:
        """Precision at each hit, summed and divided by all relevant items."""
        hits = self.hits if at is None else self.hits[self.hits <= at]
        return float((np.arange(1, len(hits) + 1) / hits).sum() / len(self.best))

    def found(self, at: int) -> int:
        """Relevant items among the first `at`."""
        return int((self.hits <= at).sum())

    def reciprocal(self, at: float = np.inf) -> float:
        """1 / the position of the first hit; 0 beyond `at`."""
        return 1 / self.first if self.first <= at else 0.0

    def ndcg(self, at: int) -> float:
        """Gains / log2(position + 1), over those of the best order."""
        return _discounted(self.gains[:at]) / _discounted(self.best[:at])


def _gains(ranking: Ranking, judged: Mapping[str, float], ties: str) -> Values:
    gains = np.array([max(0.0, judged.get(item, 0.0)) for item in ranking.items])
    last = gains if ties == "worst" else ranking.order
    return np.asarray(gains[np.lexsort((last, -ranking.scores))])


def _discounted(gains: Array) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def query_figures(run: RankedLists, qrels: Judgements, *, ties: str = "worst") -> dict[str, QueryFigures]:
    """By query, for every query with anything relevant."""
    check_ties(ties)
    asked = {query: judged for query, judged in qrels.items() if any(gain > 0 for gain in judged.values())}
    if not asked:
        raise BadInput("the qrels call nothing relevant, so there is nothing to measure")
    if not asked.keys() & run.keys():
        names = f"the run's are like {next(iter(run), 'none')!r}, the qrels' like {next(iter(asked))!r}"
        raise BadInput(f"the run and the qrels have no query in common: {names}")
    return {query: QueryFigures(run.get(query), judged, ties) for query, judged in asked.items()}


def evaluate_rankings(run: RankedLists, qrels: Judgements, *, ties: str = "worst") -> RankedReport:
    """The report on one direction: a run against its qrels."""
    each = query_figures(run, qrels, ties=ties)
    figures = list(each.values())
    first = np.array([one.first for one in figures])
    return {
        "r1": float(100 * (first <= 1).mean()),
        "r5": float(100 * (first <= 5).mean()),
        "r10": float(100 * (first <= 10).mean()),
        "medr": _finite(np.floor(np.median(first))),
        "meanr": _finite(first.mean()),
        "mrr": float(np.mean([one.reciprocal() for one in figures])),
        "map": float(np.mean([one.average_precision() for one in figures])),
        "ndcg_at_10": float(np.mean([one.ndcg(10) for one in figures])),
        "recall_at_10": float(np.mean([one.found(10) / len(one.best) for one in figures])),
        "precision_at_10": float(np.mean([one.found(10) / 10 for one in figures])),
        "queries": len(figures),
        "unanswered": sum(query not in run for query in each),
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def evaluate_both(
    runs: tuple[RankedLists, RankedLists], qrels: tuple[Judgements, Judgements], *, ties: str = "worst"
) -> BothReport:
    """Pictures asking first, captions second."""
    i2t, t2i = (evaluate_rankings(run, judged, ties=ties) for run, judged in zip(runs, qrels, strict=True))
    rsum = sum(side["r1"] + side["r5"] + side["r10"] for side in (i2t, t2i))
    return {"i2t": i2t, "t2i": t2i, "rsum": rsum, "pictures": i2t["queries"], "captions": t2i["queries"]}


def ranked_table(report: Mapping[str, object]) -> Table:
    """A report of one direction or of both, ready to print: figures down."""
    sides = {side: value for side in SIDES if isinstance(value := report.get(side), Mapping)} or {"": report}
    shown = Table(title_justify="left", caption_justify="left", caption=_caption(report, sides))
    shown.add_column("")
    for side in sides:
        shown.add_column(NAMES.get(side, "value"), justify="right")
    for name, title in TITLES.items():
        shown.add_row(title, *(_shown(name, values[name]) for values in sides.values()))
    return shown


def _shown(name: str, value: object) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:.1f}" if name in ("r1", "r5", "r10", "medr", "meanr") else f"{value:.4f}"


def _caption(report: Mapping[str, object], sides: Mapping[str, Mapping[str, object]]) -> str:
    counts = ", ".join(f"{side['queries']} queries" for side in sides.values())
    missing = sum(count for side in sides.values() if isinstance(count := side["unanswered"], int))
    lost = f"; {missing} of them without a list, counted as misses" if missing else ""
    return (f"rsum {report['rsum']:.1f}; " if "rsum" in report else "") + counts + lost
