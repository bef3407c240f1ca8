"""What each protocol reports: the keys of its JSON object, and reading one number of any report by its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

Report = Mapping[str, object]  # the report of any protocol; `figure` reads a number of it
BySide = dict[str, float]  # one figure by side: "i2t" and "t2i", or "image" and "text"


class SideRecall(TypedDict):
    """Percentages of queries with a hit, and ranks counted from 1."""

    r1: float
    r5: float
    r10: float
    medr: float
    meanr: float


class RecallReport(TypedDict):
    """Protocol recall; "many" holds the figures of a relevance file, where the data has one."""

    i2t: SideRecall
    t2i: SideRecall
    rsum: float
    pictures: int
    captions: int
    many: NotRequired[dict[str, dict[str, float]]]


class FiveFoldReport(RecallReport):
    """Protocol five-fold: means of the folds, the folds themselves, and the lines that released code would print."""

    folds: list[RecallReport]
    left_out: NotRequired[int]  # pictures that fill no fold
    summaries: dict[str, dict[str, float]]


class CrossRankReport(TypedDict):
    """Protocol cross-rank: how many pairs have which rank, the worse of both directions."""

    bins: dict[str, int]
    first: float
    above_200: float
    median: float
    mean: float
    pairs: int


class LabelReport(TypedDict):
    """Protocol labels, fractions; Micro-F1 where a method predicts labels."""

    map: BySide
    ndcg: BySide
    micro_f1: NotRequired[BySide]
    micro_f1_tuned: NotRequired[BySide]
    thresholds: NotRequired[BySide]


class PmrpReport(TypedDict):
    """Protocol pmrp, percentages."""

    i2t: float
    t2i: float


CocoReport = dict[str, BySide]  # protocols eccv and cxc: the keys of the eccv-caption package, fractions


def figure(report: Report, *path: str) -> float:
    """The number at a path of a report: `figure(report, "i2t", "r1")`."""
    value: object = report
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            raise KeyError(".".join(path))
        value = value[name]
    if not isinstance(value, int | float):
        raise KeyError(f"{'.'.join(path)} is no number")
    return value
