"""How likely a hit is right: hits of questions whose answers are known, right ones told from wrong ones.

Every known question is asked twice: as it is, and with its right answers taken out, when all that is found is wrong. A
hit is described by its height (its score in standard deviations above what the same question scores with a fixed sample
of items, as questions differ in how well they fit anything, less what the best of so many wrong items would reach by
luck), by its lead over the best other hit, by the number of words in the question and, where hits have captions, by how
well the nearest of those agrees with it. A logistic curve over these says how likely the hit is right, where every
second question has an answer.

The cut-off of "nothing fits" is the chance that the best hit of nine in ten answerable questions reaches. What is
reported is measured on questions that had no part in the fit: each half of them is judged by the curve and the cut-off
of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from matchlight.files import Json

FILE = "chance.json"  # of a run, and of an index
HITS = 10  # of each question
FEWEST = 40  # questions: from fewer nothing is learnt
TRIMMED = 0.05  # of a sample's scores, the best: they may be right answers
FALSE_ALARMS = 0.1  # answerable questions that may be told that nothing fits
FURTHEST = 4.0  # standard deviations of lead that still say more
BINS = 10
LONG = 20  # words of a question that count
STRENGTH = 10.0  # the inverse of the curve's regularisation
Weights = tuple[float, ...]  # of height, lead, words, agreement of captions (where there are some), 1


@dataclass(frozen=True)
class Hits:
    """The hits of one question."""

    heights: np.ndarray  # (k,)
    words: int  # of the question; 0: it is a picture
    agreement: np.ndarray | None = None  # (k,) of their captions; None: there are none, or none to compare with

    def described(self) -> np.ndarray:
        """(k, 3 or 4) height, lead over the best other hit, how long the question is, agreement."""
        above = self.heights
        if not len(above):
            return np.zeros((0, 3 if self.agreement is None else 4))
        best, others = int(above.argmax()), np.full(len(above), above.max())
        others[best] = np.delete(above, best).max(initial=-np.inf) if len(above) > 1 else above[best]
        lead = np.clip(above - others, -FURTHEST, FURTHEST)
        length = np.full(len(above), np.log1p(min(self.words, LONG)))
        return np.stack([above, lead, length, *([] if self.agreement is None else [self.agreement])], 1)

    def take(self, places: np.ndarray) -> Hits:
        """Some of them."""
        return Hits(self.heights[places], self.words, None if self.agreement is None else self.agreement[places])


@dataclass(frozen=True)
class Known:
    """A question whose right answers are known: its best hits, and its best without the right ones."""

    there: Hits
    right: np.ndarray  # (k,) bool, of those that are there
    gone: Hits


@dataclass(frozen=True)
class Measured:
    """How good the chances and "nothing fits" were for questions that had no part in the fit."""

    questions: int
    error: float  # between chances and the share that is right, the mean over ten groups of hits
    precision: float  # of "nothing fits": the share of such answers where the right items had been taken out
    recall: float  # share of the questions without an answer that are told so
    false_alarms: float  # share of answerable questions that are told that nothing fits


@dataclass(frozen=True)
class Chance:
    """A fitted curve, and the chance of the best hit below which nothing fits."""

    weights: Weights
    cut: float
    measured: Measured

    @property
    def reads_captions(self) -> bool:
        """Whether it looks at how well captions agree."""
        return len(self.weights) == 5

    def of(self, hits: Hits) -> np.ndarray:
        """(k,) how likely each hit of one question is right, 0 to 1."""
        return _likely(self.weights, hits)

    def nothing_fits(self, hits: Hits) -> bool:
        """Whether even the likeliest of the best hits is too unlikely."""
        return bool(_best(self.weights, hits) < self.cut)

    def plain(self) -> dict[str, Json]:
        """As JSON."""
        return {"weights": list(self.weights), "cut": self.cut, "measured": asdict(self.measured)}

    @staticmethod
    def from_plain(plain: dict[str, Json]) -> Chance:
        """From what `plain` gave; anything else is a ValueError, a TypeError or a KeyError."""
        weights, cut, measured = plain["weights"], plain["cut"], plain["measured"]
        if not isinstance(weights, list) or not isinstance(measured, dict) or not isinstance(cut, float | int):
            raise TypeError("no fitted chance")
        numbers = {name: float(str(value)) for name, value in measured.items() if name != "questions"}
        found = tuple(float(str(weight)) for weight in weights)
        if len(found) not in (4, 5):
            raise ValueError(f"{len(found)} weights of a chance")
        return Chance(found, float(cut), Measured(int(str(measured["questions"])), **numbers))


# ---- one question ----------------------------------------------------------------------------------------------------


def standardised(scores: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Scores in standard deviations above what the same question scores with a sample of items, most of them wrong."""
    usual = np.sort(sample)[: max(1, len(sample) - round(TRIMMED * len(sample)))]
    spread = max(float(usual.std()), 1e-6 * max(1.0, float(np.abs(scores).max(initial=0.0))))
    return np.asarray((scores - usual.mean()) / spread)


def heights(scores: np.ndarray, sample: np.ndarray, items: int) -> np.ndarray:
    """Scores of hits among so many items; the best of n normal numbers is about sqrt(2 ln n) above their mean."""
    return standardised(scores, sample) - np.sqrt(2 * np.log(max(2, items)))


def best_places(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Places of a question's best hits, and of its best that are not right, best first."""
    order = np.argsort(-scores, kind="stable")
    return order[(np.arange(len(order)) < HITS) | (np.cumsum(~right[order]) <= HITS) & ~right[order]]


def known_question(hits: Hits, right: np.ndarray) -> Known:
    """From hits, best first, that hold both the best and the best without the right ones."""
    without = np.flatnonzero(~right)[:HITS]
    return Known(hits.take(np.arange(min(HITS, len(right)))), right[:HITS], hits.take(without))


# ---- many questions --------------------------------------------------------------------------------------------------


def fit(questions: Sequence[Known]) -> Chance | None:
    """The curve of all questions, measured by halves; None where there are too few to learn from."""
    if len(questions) < FEWEST or not any(known.right.any() for known in questions):
        return None
    halves = [(questions[::2], questions[1::2]), (questions[1::2], questions[::2])]
    judged = [_judged(_curve(learnt), learnt, rest) for learnt, rest in halves]
    weights = _curve(questions)
    return Chance(weights, _cut(weights, questions), _measured(judged))


def _curve(questions: Sequence[Known]) -> Weights:
    """A logistic regression on the hits of all questions, asked with and without their answers."""
    from sklearn.linear_model import LogisticRegression

    hits = np.concatenate([one.described() for known in questions for one in (known.there, known.gone)])
    right = np.concatenate(
        [one for known in questions for one in (known.right, np.zeros(len(known.gone.heights), bool))]
    )
    if not right.any():
        return (*([0.0] * hits.shape[1]), -20.0)
    model = LogisticRegression(C=STRENGTH).fit(hits, right)
    return (*(float(weight) for weight in model.coef_[0]), float(model.intercept_[0]))


def _likely(weights: Weights, hits: Hits) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-(hits.described() @ np.array(weights[:-1]) + weights[-1]))))


def _best(weights: Weights, hits: Hits) -> float:
    """The chance of the likeliest of a question's best hits."""
    return float(_likely(weights, hits)[:HITS].max(initial=0.0))


def _cut(weights: Weights, questions: Sequence[Known]) -> float:
    return float(np.quantile([_best(weights, known.there) for known in questions], FALSE_ALARMS))


@dataclass(frozen=True)
class Judged:
    """Questions judged by the curve of others: chances of their hits, and who was told that nothing fits."""

    chance: np.ndarray
    right: np.ndarray
    told: np.ndarray  # (Q,) of questions with an answer
    told_without: np.ndarray  # (Q,) of the same, their answers taken out


def _judged(weights: Weights, learnt: Sequence[Known], rest: Sequence[Known]) -> Judged:
    cut = _cut(weights, learnt)
    there = np.concatenate([_likely(weights, known.there) for known in rest])
    gone = np.concatenate([_likely(weights, known.gone) for known in rest])
    right = np.concatenate([*(known.right for known in rest), np.zeros(len(gone), bool)])
    told = np.array([_best(weights, known.there) < cut for known in rest])
    return Judged(
        np.concatenate([there, gone]), right, told, np.array([_best(weights, known.gone) < cut for known in rest])
    )


def _measured(judged: Sequence[Judged]) -> Measured:
    chance, right = np.concatenate([one.chance for one in judged]), np.concatenate([one.right for one in judged])
    told, without = np.concatenate([one.told for one in judged]), np.concatenate([one.told_without for one in judged])
    said = int(told.sum() + without.sum())
    return Measured(
        questions=len(told),
        error=calibration_error(chance, right),
        precision=float(without.sum() / said) if said else 1.0,
        recall=float(without.mean()),
        false_alarms=float(told.mean()),
    )


def calibration_error(chance: np.ndarray, right: np.ndarray) -> float:
    """The mean distance between chance and share of right ones, over ten equally wide groups, large ones for more."""
    group = np.minimum((chance * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(group, minlength=BINS)
    there = counts > 0
    said, true = (np.bincount(group, values, BINS)[there] / counts[there] for values in (chance, right.astype(float)))
    return float((np.abs(said - true) * counts[there]).sum() / counts.sum())
