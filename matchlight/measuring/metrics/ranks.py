"""Ranks by counting, never by sorting, and the figures read from them: R@K, median and mean rank, rsum, cross rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Numbers, Places, Values, as_array
from matchlight.measuring.metrics.blocks import (
    BUDGET,
    Scores,
    ScoresLike,
    as_scores,
    check_size,
    check_ties,
    on_device,
    over,
)
from matchlight.measuring.metrics.links import Links
from matchlight.measuring.metrics.on_device import all_ahead, best_ranks
from matchlight.measuring.metrics.relevance import Relevance

NOTHING = -1  # the rank of a query that has nothing relevant: left out of every figure

Ranks = Places
CROSS_BINS = ((1, 1), (2, 5), (6, 10), (11, 20), (21, 50), (51, 100), (101, 200))  # then everything above


def ranks(scores: ScoresLike, relevance: Relevance, *, ties: str = "worst", budget: int = BUDGET) -> Ranks:
    """The rank (from 0) of each query's best relevant item; `NOTHING` where a query has none."""
    check_ties(ties)
    matrix = as_scores(scores)
    check_size(matrix, relevance)
    links = relevance.links
    if links is not None and on_device(matrix):
        return best_ranks(matrix, links, ties=ties, budget=budget, nothing=NOTHING)

    def work(q0: int, q1: int, block: Array) -> Ranks:
        if links is None:
            return _block_ranks(block, relevance.block(q0, q1, 0, matrix.shape[1]), ties)
        return _linked_ranks(block, *links.between(q0, q1), ties)

    parts = over(matrix, budget, work)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _block_ranks(block: Array, relevant: Array, ties: str) -> Ranks:
    best = np.where(relevant, block, -np.inf).max(1, keepdims=True, initial=-np.inf)
    above = (block > best).sum(1)
    level = block == best
    ahead = level & ~relevant if ties == "worst" else level & _after_last(level & relevant)
    return np.asarray(np.where(relevant.any(1), above + ahead.sum(1), NOTHING), np.int64)


def _linked_ranks(block: Array, row: Array, place: Array, ties: str) -> Ranks:
    """The same where the relevant places are known: one comparison a score, and nothing looked up."""
    own = block[row, place]
    best = np.full(len(block), -np.inf, block.dtype)
    np.maximum.at(best, row, own)
    asked, as_high = np.bincount(row, minlength=len(block)) > 0, _count(block >= best[:, None])
    tied = np.bincount(row[own >= best[row]], minlength=len(block))
    rank = as_high - tied
    if ties == "official":  # only where a wrong item is level with the best one does the order matter
        rank = _count(block > best[:, None])
        for query in np.flatnonzero(asked & (as_high - rank > 1)):
            level = block[query] == best[query]
            last = place[(row == query) & (own == best[query])].max()
            rank[query] += np.count_nonzero(level[last + 1 :])
    return np.asarray(np.where(asked, rank, NOTHING), np.int64)


def _count(chosen: Array) -> Ranks:
    return np.asarray(np.count_nonzero(chosen, axis=1), np.int64)


def _after_last(chosen: Array) -> Array:
    """True behind the last True of each row: what a larger-index-first order puts ahead of the best item."""
    last = chosen.shape[1] - 1 - np.argmax(chosen[:, ::-1], axis=1)
    return np.asarray(np.arange(chosen.shape[1])[None] > last[:, None])


def _answered(ranks: Numbers) -> Ranks:
    all_ranks = as_array(ranks).astype(np.int64, copy=False)
    kept: Ranks = all_ranks[all_ranks != NOTHING]
    if not kept.size:
        raise BadInput("no query has a relevant item in the gallery, so there is nothing to measure")
    return kept


def hit_rate(ranks: Numbers, *, at: int) -> float:
    """The field's R@K: the share of queries with *any* relevant item among the first `at`."""
    return float((_answered(ranks) < at).mean())


def median_rank(ranks: Numbers) -> float:
    """floor(median) + 1, so a median of 4.5 (counted from 0) is 5."""
    return float(np.floor(np.median(_answered(ranks))) + 1)


def mean_rank(ranks: Numbers) -> float:
    """The mean rank, counted from 1."""
    return float(_answered(ranks).mean() + 1)


def rsum(i2t: Numbers, t2i: Numbers) -> float:
    """R@1 + R@5 + R@10 both ways, in percentages: 600 is perfect."""
    return 100 * sum(hit_rate(side, at=k) for side in (i2t, t2i) for k in (1, 5, 10))


def cross_ranks(scores: ScoresLike, owner: Numbers, *, ties: str = "worst", budget: int = BUDGET) -> Values:
    """Per pair, the worse of its two ranks (from 1): among all pictures (stretched) and among foreign captions.

    The picture rank is stretched so that its worst value equals the worst caption rank: 5 r - 4 with five captions a
    picture. Sibling captions neither count nor hurt. "official" counts strictly better items only, as the paper does.
    """
    check_ties(ties)
    matrix, owners = as_scores(scores), as_array(owner)
    if not len(owners) or len(owners) != matrix.shape[1]:
        raise BadInput(f"scores have {matrix.shape[1]} captions (columns) but {len(owners)} captions have an owner")
    pictures, captions = tuple(matrix.shape)
    siblings = np.bincount(owners, minlength=pictures)[owners]
    stretch = (captions - siblings) / max(1, pictures - 1)
    of_both = _both_on_device if on_device(matrix) else _both_on_host
    by_picture, by_caption = of_both(matrix, owners, ties, budget)
    return np.asarray(np.maximum(1 + by_picture * stretch, 1 + by_caption), np.float64)


def rank_histogram(ranks: Numbers, bins: tuple[tuple[int, int], ...] = CROSS_BINS) -> dict[str, int]:
    """How many ranks (from 1) fall between each two, ends included, and above the last: "1", "2-5", ..., ">200".

    Fractions, which unequal numbers of captions give, count as the next whole rank.
    """
    whole = np.ceil(as_array(ranks).astype(np.float64, copy=False))
    names = [str(low) if low == high else f"{low}-{high}" for low, high in bins]
    counts = [int(((whole >= low) & (whole <= high)).sum()) for low, high in bins]
    last = bins[-1][1]
    return dict(zip(names, counts, strict=True)) | {f">{last}": int((whole > last).sum())}


def _ahead(ties: str) -> Callable[[Array, Array | float], Array]:
    return np.greater if ties == "official" else np.greater_equal


def _both_on_host(matrix: Scores, owners: Array, ties: str, budget: int) -> tuple[Array, Array]:
    """Per pair: how many other pictures, and how many captions of other pictures, score ahead of it."""
    own, by_caption = _foreign_ahead(matrix, owners, ties, budget)
    return _others_ahead(matrix.T, own, ties, budget), by_caption


def _both_on_device(matrix: Scores, owners: Array, ties: str, budget: int) -> tuple[Array, Array]:
    """The same, counted where the scores are."""
    links, pictures = Links.of_owner(owners, pictures=matrix.shape[0]), Links.each_one(owners)
    how, itself = ("strict", 0) if ties == "official" else ("worst", 1)
    own, ahead = all_ahead(matrix, links, ties=how, budget=budget)
    by_caption = np.empty(len(owners))
    for picture in range(len(links.start) - 1):
        part = slice(links.start[picture], links.start[picture + 1])
        siblings = _ahead(ties)(own[part][None], own[part][:, None]).sum(1)
        by_caption[links.places[part]] = ahead[part] - siblings
    return all_ahead(matrix.T, pictures, ties=how, budget=budget)[1] - itself, by_caption


def _foreign_ahead(matrix: Scores, owners: Array, ties: str, budget: int) -> tuple[Array, Array]:
    """Per pair: its score, and how many captions of other pictures score ahead of it for its picture."""
    links, ahead = Links.of_owner(owners, pictures=matrix.shape[0]), _ahead(ties)
    own, count = np.empty(len(owners)), np.empty(len(owners))

    def work(i0: int, i1: int, block: Array) -> None:
        for picture in range(i0, i1):
            mine, line = links.of(picture), block[picture - i0]
            own[mine] = theirs = line[mine]
            all_ahead = np.array([np.count_nonzero(ahead(line, score)) for score in theirs], np.int64)
            count[mine] = all_ahead - ahead(theirs[None], theirs[:, None]).sum(1)

    over(matrix, budget, work)
    return own, count


def _others_ahead(turned: Scores, own: Array, ties: str, budget: int) -> Array:
    """Per caption, a row of `turned`: how many pictures score ahead of its own, which has the score `own`."""
    ahead, itself = _ahead(ties), 0 if ties == "official" else 1

    def work(c0: int, c1: int, block: Array) -> Ranks:
        return _count(ahead(block, own[c0:c1, None].astype(block.dtype))) - itself

    return np.concatenate(over(turned, budget, work))
