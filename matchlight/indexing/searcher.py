"""Propose, then decide: an engine names candidates by single vectors, the model's own similarity scores just those.

Every vector of a query asks the engine for its nearest rows. An item counts as near as the best row found for each of
the query's vectors, averaged (or the best of all); where none of its rows was found for a vector it counts as near as
the last row that was. The best candidates are then read from the stored sets and scored exactly, in batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchlight.console import BadInput
from matchlight.indexing.candidate_vectors import merged
from matchlight.indexing.engines import NONE, Engine
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.scorers import Proposer, Scorer, as_float32
from matchlight.indexing.stored_sets import Sets
from matchlight.pairs import IMAGE, TEXT

BLOCK = 1024  # items read at once when everything is scored
SPARE = 2  # rows asked for, as a multiple of the candidates wanted
TOP = 10  # results for which the number of candidates is measured
MORE = 4  # candidates more for each result beyond them


@dataclass
class Side:
    """One side of an index: what is stored, and what searches it."""

    sets: Sets
    numbers: np.ndarray  # (N,) ascending: ids of pictures, rows of captions
    engine: Engine | None
    candidates: int
    merge: str = "mean"
    alive: np.ndarray | None = None  # (N,) False: removed, which the engine knows too; None: all are there

    def count(self) -> int:
        """How many items were not removed."""
        return len(self.numbers) if self.alive is None else int(np.count_nonzero(self.alive))

    def remaining(self) -> np.ndarray:
        """Places of all items that were not removed."""
        return np.arange(len(self.numbers)) if self.alive is None else np.flatnonzero(self.alive)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Places of items by number; numbers that are not there are left out."""
        spot = np.searchsorted(self.numbers, numbers).clip(max=len(self.numbers) - 1)
        return np.asarray(spot[self.numbers[spot] == numbers])


@dataclass(frozen=True)
class SearchDepth:
    """How far a search looks: results wanted, candidates scored for them (None: as measured), or all there is."""

    top: int
    candidates: int | None = None
    exact: bool = False


class Searcher:
    """Both sides, what compares them and what proposes."""

    def __init__(self, scorer: Scorer, proposer: Proposer, sides: dict[str, Side]):
        self.scorer, self.proposer, self.sides = scorer, proposer, sides

    def top(
        self,
        query: ItemSets,
        given: str,
        wanted: str,
        *,
        top: int,
        candidates: int | None = None,
        passing: np.ndarray | None = None,
        exact: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Places and scores of the best items of the side `wanted` for one query of the side `given`.

        Last comes how many items were scored. `passing` (N,) says which may be found.
        """
        depth = SearchDepth(top, candidates, exact)
        places = self.places_to_score([(query, given)], wanted, depth, passing)
        scores = self.scored(query, given, wanted, places)
        best = np.argsort(-scores, kind="stable")[:top]
        return places[best], scores[best], len(scores)

    def places_to_score(
        self, queries: list[tuple[ItemSets, str]], wanted: str, depth: SearchDepth, passing: np.ndarray | None = None
    ) -> np.ndarray:
        """Ascending places of the items to score: all that may be found, or the candidates of any of the queries."""
        side = self.sides[wanted]
        count = max(depth.top, depth.candidates or side.candidates + MORE * max(0, depth.top - TOP))
        keep = _both(passing, side.alive)
        there = len(side.numbers) if keep is None else int(np.count_nonzero(keep))
        if depth.exact or side.engine is None or there <= count:
            return np.arange(there) if keep is None else np.flatnonzero(keep)
        among = None if passing is None or keep is None else np.flatnonzero(keep)
        named = [self.propose(self.proposer.rows(query, given), wanted, count, among) for query, given in queries]
        places = named[0] if len(named) == 1 else np.unique(np.concatenate(named))
        return places if keep is None else places[keep[places]]

    def propose(self, rows: np.ndarray, wanted: str, count: int, among: np.ndarray | None = None) -> np.ndarray:
        """Ascending places of `count` candidates (or fewer) for one query's vectors (1, q, d)."""
        side = self.sides[wanted]
        scores, items = self.listed(rows, wanted, count, among)
        return side.places(chosen(scores[0], items[0], count, side.merge))

    def listed(
        self, rows: np.ndarray, wanted: str, count: int, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The engine's lists for queries (Q, q, d): scores and numbers of items (Q, q, rows)."""
        side = self.sides[wanted]
        assert side.engine is not None
        allowed = None if among is None else side.numbers[among]
        wanted_rows = count * min(side.engine.each, SPARE)
        scores, items = side.engine.search(as_float32(rows).reshape(-1, rows.shape[2]), wanted_rows, allowed)
        shape = (len(rows), rows.shape[1], -1)
        return scores.reshape(shape), items.reshape(shape)

    def scored(self, query: ItemSets, given: str, wanted: str, places: np.ndarray | None) -> np.ndarray:
        """(n,) true scores of a query with the items at these places (None: all of them)."""
        sets = self.sides[wanted].sets
        places = np.arange(len(sets)) if places is None else places
        if not len(places):
            return np.zeros(0, np.float32)
        blocks = np.split(places, range(BLOCK, len(places), BLOCK))
        scores = np.concatenate([self._block(query, given, wanted, sets.take(part)) for part in blocks])
        if np.isnan(scores).any():
            raise BadInput("scores that are no numbers: the vectors of this index are damaged; build it again")
        return scores

    def _block(self, query: ItemSets, given: str, wanted: str, block: ItemSets) -> np.ndarray:
        if given == wanted:
            return chamfer_similarity(self.proposer.rows(query, given), self.proposer.rows(block, wanted))
        return self.scorer.scores(*((query, block) if given == IMAGE else (block, query))).ravel()


def _both(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """What passes both; None passes all."""
    if one is None or other is None:
        return one if other is None else other
    return np.asarray(one & other)


def chosen(scores: np.ndarray, items: np.ndarray, count: int, merge: str) -> np.ndarray:
    """The ascending `count` best items of one query's lists (q, rows), by their merged scores."""
    real = items != NONE
    if not real.any():
        return items[:0, 0]
    kinds, which = np.unique(items[real], return_inverse=True)
    last = np.where(real, scores, np.inf).min(1)
    best = np.repeat(np.where(np.isfinite(last), last, 0.0)[:, None], len(kinds), 1).astype(np.float32)
    np.maximum.at(best, (np.nonzero(real)[0], which), scores[real])
    total = merged(best, merge)
    if len(kinds) > count:
        kinds = np.sort(kinds[np.argpartition(-total, count)[:count]])
    return kinds


def chamfer_similarity(queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    """(N,) how near items (N, k, d) are to one query (1, q, d) of their side: nearest vectors, averaged both ways."""
    seen = as_float32(items) @ as_float32(queries[0]).T  # (N, k, q)
    return np.asarray((seen.max(1).mean(1) + seen.max(2).mean(1)) / 2)


def other(side: str) -> str:
    """The other side."""
    return TEXT if side == IMAGE else IMAGE
