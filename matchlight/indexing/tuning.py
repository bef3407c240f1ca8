"""How many candidates are enough: measured on questions from the index itself, against scoring everything.

For some captions (and some pictures) of the index everything is scored, which gives the true best ten. Then the engine
proposes more and more candidates until they hold the wanted share of those ten, less the standard error of so few
questions. A number is chosen on one half of the questions and its recall measured on the other half, both ways round:
the recall that is reported is that of questions which had no part in the choice. What is learned from the index
(`distil.py`) does not see these questions either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from matchlight.console import track
from matchlight.indexing.candidate_vectors import MERGES, proposal_scores
from matchlight.indexing.index_json import SideInfo
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.scorers import Proposer
from matchlight.indexing.searcher import BLOCK, TOP, Searcher, Side, chosen, other
from matchlight.pairs import IMAGE

PAIRS = 2_000_000  # pairs scored to measure one side
FEWEST, MOST = 64, 256  # questions
SHARE = 1 / 8  # of a side are questions at most (but for the fewest), since they are kept from what is learned
UNASKED = 1000  # candidates where there are no captions to measure with
CUTS = 3  # a doubling that was enough is halved so often, in search of less


@dataclass
class Truth:
    """Questions of the side `given` and the places of their true best ten among the other side."""

    given: str
    places: np.ndarray  # (Q,) of the questions among their own side
    queries: ItemSets
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
    recall: float | None  # of questions that had no say in the number; None: there were no questions
    questions: int
    target: float
    items: int  # that were there when it was measured

    def info(self, *, each: int, dim: int) -> SideInfo:
        """As `index.json` says it; `each` and `dim` are rows an item and their length."""
        return {
            "candidates": self.candidates,
            "merge": self.merge,
            "recall": self.recall,
            "questions": self.questions,
            "target": self.target,
            "items": self.items,
            "each": each,
            "dim": dim,
        }


def questions_for(items: int, available: int) -> int:
    """How many of the `available` items are used as queries against so many items."""
    return min(available, MOST, max(FEWEST, min(PAIRS // items, round(SHARE * available))))


def score_all_for(
    searcher: Searcher, given: str, queries: ItemSets, there: np.ndarray, *, quiet: bool = False
) -> np.ndarray:
    """(Q, n) true scores of questions of the side `given` with items of the other side."""
    scores, start = np.empty((len(queries), len(there)), dtype=np.float32), 0
    for block in _score_blocks(searcher, given, queries, there, quiet=quiet):
        scores[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    return scores


def _score_blocks(
    searcher: Searcher, given: str, queries: ItemSets, there: np.ndarray, *, quiet: bool
) -> Iterator[np.ndarray]:
    """The same for some of the items at a time, in their order."""
    sets, starts = searcher.sides[other(given)].sets, range(0, len(there), BLOCK)
    for start in starts if quiet else track(starts, "measuring"):
        part = sets.take(there[start : start + BLOCK])
        scores = searcher.scorer.scores(*((queries, part) if given == IMAGE else (part, queries)))
        yield scores if given == IMAGE else scores.T


def true_best(searcher: Searcher, given: str, *, seed: int, questions: int | None = None, quiet: bool = False) -> Truth:
    """Score everything for a sample of questions."""
    there, among = (searcher.sides[side].remaining() for side in (other(given), given))
    count = questions_for(len(there), len(among)) if questions is None else min(questions, len(among))
    some = np.sort(np.random.default_rng(seed).choice(among, count, replace=False))
    queries = searcher.sides[given].sets.take(some)
    return Truth(given, some, queries, best_of_all(searcher, given, queries, there, quiet=quiet))


def best_of_all(
    searcher: Searcher, given: str, queries: ItemSets, there: np.ndarray, *, quiet: bool = False
) -> np.ndarray:
    """(Q, TOP) the places, in any order, of the items among `there` that score highest."""
    top, start, count = min(TOP, len(there)), 0, len(queries)
    scores, best = np.zeros((count, 0), np.float32), np.zeros((count, 0), np.int64)
    for block in _score_blocks(searcher, given, queries, there, quiet=quiet):  # the best so far
        scores = np.concatenate([scores, block], 1)
        best = np.concatenate([best, np.broadcast_to(there[start : start + block.shape[1]], block.shape)], 1)
        kept = np.argpartition(-scores, min(top, scores.shape[1]) - 1, axis=1)[:, :top]
        scores, best = np.take_along_axis(scores, kept, 1), np.take_along_axis(best, kept, 1)
        start += block.shape[1]
    return best


def needed(truth: Truth, proposer: Proposer, rows: np.ndarray, target: float) -> int:
    """How many candidates an engine that misses nothing would have to propose."""
    queries = proposer.rows(truth.queries, truth.given)
    counts = []
    for merge in MERGES if queries.shape[1] > 1 else MERGES[:1]:
        own, above = np.zeros_like(truth.best, dtype=np.float32), np.zeros_like(truth.best)
        for start, scores in proposal_scores(queries, rows, merge):
            inside = (truth.best >= start) & (truth.best < start + scores.shape[1])
            question, place = np.argwhere(inside).T
            own[question, place] = scores[question, truth.best[question, place] - start]
        for _, scores in proposal_scores(queries, rows, merge):
            above += np.stack([(scores >= own[:, k, None]).sum(1) for k in range(own.shape[1])], 1)
        ranks = np.sort(above, axis=None)
        counts.append(int(ranks[min(len(ranks) - 1, int(np.ceil(target * len(ranks))) - 1)]))
    return min(counts)


def measure(searcher: Searcher, truth: Truth, target: float, candidates: int | None = None) -> Measured:
    """The number of candidates that reaches the target; or the recall of a number that was given."""
    trial, count = Trial(searcher, truth), len(truth.best)
    first = np.arange(count) % 2 == 0
    halves = [(first, ~first), (~first, first)] if count > 1 else [(first, first)]
    numbers = [candidates or trial.enough(half, target) for half, _ in halves]
    ways = [trial.way(number, half) for number, (half, _) in zip(numbers, halves, strict=True)]
    held = [trial.kept(n)[way][rest] for n, way, (_, rest) in zip(numbers, ways, halves, strict=True)]
    most = int(np.argmax(numbers))
    recall = float(np.concatenate(held).mean())
    return Measured(numbers[most], ways[most], recall, count, target, trial.total)


def unmeasured(side: Side, target: float, candidates: int | None = None) -> Measured:
    """A safe number of candidates for pictures without captions: there is nothing to ask questions with."""
    total = len(side.remaining())
    return Measured(min(total, candidates or UNASKED), MERGES[0], None, 0, target, total)


@dataclass
class Trial:
    """What candidates of an engine hold of the true best, question by question."""

    searcher: Searcher
    truth: Truth
    known: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = self.searcher.proposer.rows(self.truth.queries, self.truth.given)
        self.total = len(self.searcher.sides[self.truth.wanted].remaining())

    def kept(self, count: int) -> dict[str, np.ndarray]:
        """For every way to merge: (Q,) the share of the true best among `count` candidates."""
        if count not in self.known:
            lists = self.searcher.listed(self.rows, self.truth.wanted, count)
            ways = MERGES if self.rows.shape[1] > 1 else MERGES[:1]
            self.known[count] = {merge: self._kept(lists, count, merge) for merge in ways}
        return self.known[count]

    def _kept(self, lists: tuple[np.ndarray, np.ndarray], count: int, merge: str) -> np.ndarray:
        side = self.searcher.sides[self.truth.wanted]
        candidates = [side.places(chosen(*pair, count, merge)) for pair in zip(*lists, strict=True)]
        return np.array([np.isin(best, some).mean() for best, some in zip(self.truth.best, candidates, strict=True)])

    def way(self, count: int, half: np.ndarray) -> str:
        """How to merge for these questions."""
        shares = self.kept(count)
        return max(shares, key=lambda merge: float(shares[merge][half].mean()))

    def enough(self, half: np.ndarray, target: float) -> int:
        """The fewest candidates that hold the target for these questions, and likely for others."""

        def holds(count: int) -> bool:
            kept = self.kept(count)[self.way(count, half)][half]
            return bool(kept.mean() - kept.std() / len(kept) ** 0.5 >= target)

        low = high = min(TOP, self.total)
        while high < self.total and not holds(high):
            low, high = high, min(self.total, 2 * high)
        for _ in range(CUTS if high > low else 0):
            middle = round((low * high) ** 0.5)
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high
