"""Metrics: pure functions from scores and relevance to numbers.

Scores are (queries, gallery) arrays or tensors, higher = better, any sign; hand over `scores.T` and `relevance.T` to
ask the other way round. What is relevant is a `Relevance`, asked for in blocks, and scores are read in blocks too, so a
memory-mapped matrix stays on disk. Results never depend on the block size. All figures are fractions in 0..1 except
`rsum`, which adds six percentages; ranks start at 0, as the field counts them.

Ties: "worst" (the default) lets every tied wrong item come first, so a model that gives one score to everything earns
nothing; "official" puts the larger index first, as a reversed ascending sort does.
"""

from matchlight.measuring.metrics.blocks import Window, as_scores
from matchlight.measuring.metrics.ndcg import by_gains, ndcg
from matchlight.measuring.metrics.plain import auroc, average_precision, best_threshold, circular_variance, micro_f1
from matchlight.measuring.metrics.positions import found
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
from matchlight.measuring.metrics.sampling import Figures, holm, interval, intervals, paired

__all__ = [
    "NOTHING",
    "Figures",
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
    "found",
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
    "rsum",
]
