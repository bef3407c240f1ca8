"""How many candidates are enough: measured on questions from the index itself, against scoring everything.

For some captions (and some pictures) of the index everything is scored, which gives the true best ten. Then the engine
proposes more and more candidates until they hold the wanted share of those ten.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from matchlight.console import track
from matchlight.core import Embeddings
from matchlight.evaluation import products_in
from matchlight.indexing.coarse import MERGES, Proposer, proposal_scores
from matchlight.indexing.searching import BLOCK, Searcher, chosen, other
from matchlight.similarity import score_all

TOP = 10
PAIRS = 2_000_000  # pairs scored to measure one side
FEWEST, MOST = 24, 256  # questions
CUTS = 3  # a doubling that was enough is halved so often, in search of less
SPARE = 1.1  # more than what was found to be enough: other questions are others


@dataclass
class Truth:
    """Questions of the side `given` and the places of their true best ten among the other side."""

    given: str
    queries: Embeddings
    best: np.ndarray  # (Q, TOP)

    @property
    def wanted(self) -> str:
        """The side that is searched."""
        return other(self.given)


@dataclass
class Measured:
    """What one side was measured to need."""

    candidates: int
    merge: str
    recall: float
    questions: int
    target: float

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@torch.inference_mode()
def true_best(searcher: Searcher, given: str, *, seed: int, quiet: bool = False) -> Truth:
    """Score everything for a sample of questions."""
    sets, asked = searcher.sides[other(given)].sets, searcher.sides[given].sets
    count = min(len(asked), MOST, max(FEWEST, PAIRS // len(sets)))
    some = np.sort(np.random.default_rng(seed).choice(len(asked), count, replace=False))
    queries = asked.take(some).to(searcher.device)
    scores = np.empty((count, len(sets)), dtype=np.float32)
    starts = range(0, len(sets), BLOCK)
    with products_in("fp32", searcher.device):
        for start in starts if quiet else track(starts, "measuring"):
            part = sets.take(np.arange(start, min(start + BLOCK, len(sets)))).to(searcher.device)
            sides = (queries, part) if given == "image" else (part, queries)
            block = score_all(searcher.matcher, *sides, device=searcher.device)
            scores[:, start : start + BLOCK] = block if given == "image" else block.T
    top = min(TOP, len(sets))
    return Truth(given, queries.to("cpu"), np.argpartition(-scores, top - 1, axis=1)[:, :top])


def needed(truth: Truth, proposer: Proposer, rows: np.ndarray, target: float) -> int:
    """How many candidates an engine that misses nothing would have to propose."""
    queries = proposer.rows(truth.queries, truth.given)
    found = []
    for merge in MERGES if queries.shape[1] > 1 else MERGES[:1]:
        scores = proposal_scores(queries, rows, merge)
        order = np.argsort(-scores, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(rows))[None].repeat(len(order), 0), 1)
        ranks = np.sort(np.take_along_axis(rank, truth.best, 1).ravel())
        found.append(int(ranks[min(len(ranks) - 1, int(np.ceil(target * len(ranks))) - 1)]) + 1)
    return min(found)


def measure(searcher: Searcher, truth: Truth, target: float, candidates: int | None = None) -> Measured:
    """The number of candidates that reaches the target and a little more; or the recall of a number that was given."""
    rows = searcher.proposer.rows(truth.queries, truth.given)
    total = len(searcher.sides[truth.wanted].sets)

    def tried(count: int) -> Measured:
        lists = searcher.listed(rows, truth.wanted, count)
        ways = MERGES if rows.shape[1] > 1 else MERGES[:1]
        found = {merge: _recall(searcher, truth, lists, count, merge) for merge in ways}
        best = max(found, key=lambda merge: found[merge])
        return Measured(count, best, found[best], len(truth.best), target)

    if candidates is not None:
        return tried(candidates)
    low = high = min(TOP, total)
    while high < total and tried(high).recall < target:
        low, high = high, min(total, 2 * high)
    for _ in range(CUTS if high > low else 0):
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if tried(middle).recall >= target else (middle, high)
    return tried(min(total, int(np.ceil(SPARE * high))))


def _recall(searcher: Searcher, truth: Truth, lists: tuple[np.ndarray, np.ndarray], count: int, merge: str) -> float:
    """The share of the true best that these lists, merged to `count` candidates, hold."""
    side = searcher.sides[truth.wanted]
    found = [side.places(chosen(*pair, count, merge)) for pair in zip(*lists, strict=True)]
    return float(np.mean([np.isin(best, some).mean() for best, some in zip(truth.best, found, strict=True)]))
