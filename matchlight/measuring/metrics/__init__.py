"""Metrics: pure functions from scores and relevance to numbers.

Scores are (queries, gallery) arrays or tensors, higher = better, any sign; hand over `scores.T` and `relevance.T` to
ask the other way round. What is relevant is a `Relevance`, asked for in blocks, and scores are read in blocks too, so a
memory-mapped matrix stays on disk. Results never depend on the block size. All figures are fractions in 0..1 except
`rsum`, which adds six percentages; ranks start at 0, as the field counts them.

Ties: "worst" (the default) lets every tied wrong item come first, so a model that gives one score to everything earns
nothing; "official" puts the larger index first, as a reversed ascending sort does.

In reading order:

    arrays.py      the types of arrays, and what is taken for one
    links.py       the relevant places of each query as lists
    relevance.py   `Relevance`: which pictures fit which captions, computed block by block
    blocks.py      scores read a few queries at a time, over several threads
    on_device.py   places in lists counted where the scores are
    ranks.py       ranks by counting; R@K, median and mean rank, rsum, cross rank
    gain_lists.py  each query's whole list as gains, best score first
    positions.py   the positions of all relevant items of a query
    precision.py   AP, R-precision, mAP@R, precision-recall curves, PMRP
    ndcg.py        NDCG and AP from one ranking
    unranked.py    Micro-F1, AUROC, circular variance: figures that need no ranking
    sampling.py    `Figures`: confidence intervals and paired tests over pictures
"""

from matchlight.measuring.metrics.blocks import Window, as_scores
from matchlight.measuring.metrics.ndcg import by_gains, ndcg
from matchlight.measuring.metrics.positions import relevant_positions
from matchlight.measuring.metrics.precision import (
    average_precisions,
    ir_recall,
    map_at_r,
    maps_at_r,
    mean,
    mean_average_precision,
    pmrp,
    pmrps,
    precision_recall,
    r_precision,
    r_precisions,
)
from matchlight.measuring.metrics.ranks import (
    NOTHING,
    cross_ranks,
    hit_rate,
    mean_rank,
    median_rank,
    rank_histogram,
    ranks,
    rsum,
)
from matchlight.measuring.metrics.relevance import Relevance
from matchlight.measuring.metrics.sampling import Figures, Intervals, PairedTest, holm, interval, intervals, paired
from matchlight.measuring.metrics.unranked import auroc, average_precision, best_threshold, circular_variance, micro_f1

__all__ = [
    "NOTHING",
    "Figures",
    "Intervals",
    "PairedTest",
    "Relevance",
    "Window",
    "as_scores",
    "auroc",
    "average_precision",
    "average_precisions",
    "by_gains",
    "best_threshold",
    "circular_variance",
    "cross_ranks",
    "hit_rate",
    "holm",
    "interval",
    "intervals",
    "ir_recall",
    "map_at_r",
    "maps_at_r",
    "mean",
    "mean_average_precision",
    "mean_rank",
    "median_rank",
    "micro_f1",
    "ndcg",
    "paired",
    "pmrp",
    "pmrps",
    "precision_recall",
    "r_precision",
    "r_precisions",
    "rank_histogram",
    "ranks",
    "relevant_positions",
    "rsum",
]
