"""How a wrong pair differs from a right one, learned without knowing which pairs are wrong.

Manufactured pairs are known to be wrong; real pairs are a mixture of right ones and an unknown share of wrong ones that
look like the manufactured. A logistic regression separates real from manufactured; the share follows from how many real
pairs lie where a part of the manufactured ones do; each real pair then counts as right only as far as it looks right,
and the regression is fitted again, until nothing moves (positive-unlabelled learning). No column may count against a
pair for looking right, so more evidence never makes a score worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchlight.training import division

ROUNDS = 40
SETTLED = 1e-3  # mean change of the probabilities at which fitting stops
MOST = 40_000  # pairs of each kind a regression is fitted on
RIDGE = 3e-4
PRIOR = 0.5  # precision that weights have beforehand; it counts where pairs are few
STEPS = 100  # of Newton's method at most; five are usual
FLAT = 1e-6  # slope at which a regression counts as fitted
HALVES = 0.5 ** np.arange(20)  # parts of a step that are tried
SAME = 1e-9  # evidence that differs by less does not differ
FEW = 2000  # pairs up to which each is scored by regressions that did not see it
ALARMS = 0.07  # expected share of false alarms among the flagged


@dataclass(frozen=True)
class Mixture:
    """A fitted separation; `evidence` is the log of how much likelier a right pair looks like this than a wrong."""

    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    weight: np.ndarray  # (d,), none below 0
    offset: float
    noise: float  # estimated share of wrong pairs among the real ones

    def evidence(self, x: np.ndarray) -> np.ndarray:
        """(n,) log odds of right against wrong before the share of wrong pairs is considered."""
        return ((x - self.centre) / self.scale) @ self.weight + self.offset

    def wrong(self, x: np.ndarray) -> np.ndarray:
        """(n,) probability that each pair is wrong."""
        return posterior(self.evidence(x), self.noise)


def posterior(evidence: np.ndarray, noise: float) -> np.ndarray:
    """Probability of being wrong, given the evidence and the share of wrong pairs."""
    share = float(np.clip(noise, 1e-4, 1 - 1e-4))
    return 1 / (1 + np.exp(np.clip(evidence + np.log((1 - share) / share), -60, 60)))


def share_of_wrong(real: np.ndarray, manufactured: np.ndarray) -> float:
    """The share of real pairs whose evidence is like that of manufactured ones, chance reckoned in."""
    both = np.concatenate([real, manufactured])
    if not len(real) or not len(manufactured) or np.ptp(both) < SAME:
        return 1.0  # nothing differs
    return division.share_of_wrong(-real, -manufactured, errors=1.0)


def fit(real: np.ndarray, manufactured: np.ndarray, *, rounds: int = ROUNDS) -> Mixture:
    """Tell apart (n, d) real and (m, d) manufactured pairs; every column is high for pairs that look right."""
    both = np.concatenate([real, manufactured])
    centre, scale = both.mean(0), both.std(0) + 1e-9
    x, y = (real - centre) / scale, (manufactured - centre) / scale
    thin = slice(None, None, -(-len(x) // MOST)), slice(None, None, -(-len(y) // MOST))
    right = np.ones(len(x))
    share, answer = 0.0, np.zeros(x.shape[1] + 1)
    for _ in range(rounds):
        answer = regression(x[thin[0]], right[thin[0]], y[thin[1]], start=answer)
        evidence, made = (part @ answer[:-1] + answer[-1] for part in (x, y))
        share = share_of_wrong(evidence, made)
        before, right = right, 1 - posterior(evidence, share)
        if np.abs(right - before).mean() < SETTLED:
            break
    return Mixture(centre, scale, answer[:-1], float(answer[-1]), share)


def separated(
    real: np.ndarray, manufactured: np.ndarray, part: np.ndarray, judged: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """(n,) evidence of (n, d) real and manufactured pairs, and the share of wrong ones; only `judged` rows are learned.

    A regression on few pairs separates even what does not differ. So each `part` of them gets the evidence of one that
    was fitted to the other parts, and a last one, on that evidence alone, finds out how much it is worth.
    """
    if judged.sum() > FEW:
        fitted = fit(real[judged], manufactured[judged])
        return fitted.evidence(real), fitted.evidence(manufactured), fitted.noise
    one, two = np.zeros((len(real), 1)), np.zeros((len(real), 1))
    for k in np.unique(part):
        inside, others = part == k, judged & (part != k)
        if others.any():
            fitted = fit(real[others], manufactured[others])
            one[inside, 0], two[inside, 0] = fitted.evidence(real[inside]), fitted.evidence(manufactured[inside])
    if not judged.any():
        return one[:, 0], two[:, 0], 1.0
    worth = fit(one[judged], two[judged])
    return worth.evidence(one), worth.evidence(two), worth.noise


def regression(
    x: np.ndarray, right: np.ndarray, y: np.ndarray, wrong: np.ndarray | None = None, *, start: np.ndarray
) -> np.ndarray:
    """(d + 1,) weights, none below 0, and offset of a logistic regression of `x`, weighed by `right`, against `y`.

    The two sides weigh the same in all, so that the answer is a ratio of densities and not of numbers.
    """
    wrong = np.ones(len(y)) if wrong is None else wrong
    ridge = max(RIDGE, 2 * PRIOR / max(1.0, right.sum() + wrong.sum()))
    mass = np.concatenate([right / max(right.sum(), 1e-9), wrong / max(wrong.sum(), 1e-9)])
    rows = np.concatenate([np.column_stack([x, np.ones(len(x))]), -np.column_stack([y, np.ones(len(y))])])
    return _least_loss(rows, mass, np.append(np.full(x.shape[1], ridge), 0.0), start)


def _least_loss(rows: np.ndarray, mass: np.ndarray, ridge: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The answer (d,) of least mean log(1 + exp(-rows @ answer)) with all but the last not below 0.

    Newton steps among the coordinates that may move, cut back to the bound and halved until the loss falls: a handful
    of steps from a near start, where first-order methods take dozens.
    """
    from scipy.special import expit

    lowest = np.append(np.zeros(len(start) - 1), -np.inf)
    answer = np.maximum(start, lowest)
    loss = _loss(answer, rows, mass, ridge)
    for _ in range(STEPS):
        miss = expit(-(rows @ answer))
        slope = ridge * answer - (mass * miss) @ rows
        free = (answer > lowest) | (slope < 0)
        if np.abs(slope[free]).max(initial=0.0) < FLAT:
            break
        inside = rows[:, free]
        curve = inside.T @ (inside * (mass * miss * (1 - miss))[:, None]) + np.diag(ridge[free] + SAME)
        step = np.zeros(len(answer))
        step[free] = np.linalg.solve(curve, -slope[free])
        for part in HALVES:
            tried = np.maximum(answer + part * step, lowest)
            lower = _loss(tried, rows, mass, ridge)
            if lower < loss:
                break
        else:
            break  # as low as numbers of this precision go
        answer, loss = tried, lower
    return answer


def _loss(answer: np.ndarray, rows: np.ndarray, mass: np.ndarray, ridge: np.ndarray) -> float:
    return float(mass @ np.logaddexp(0, -(rows @ answer)) + (ridge * answer) @ answer / 2)


def weight_of_evidence(x: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """(n,) how much (n, d) columns speak for right over wrong, learned from probabilities of being wrong.

    The columns are taken to err independently of whatever those probabilities were made from.
    """
    x = (x - x.mean(0)) / (x.std(0) + 1e-9)
    if min(wrong.sum(), (1 - wrong).sum()) < 10:  # too few of a kind to learn what it looks like
        return np.zeros(len(x))
    answer = regression(x, 1 - wrong, x, wrong, start=np.zeros(x.shape[1] + 1))
    return x @ answer[:-1] + answer[-1]


def flagged(wrong: np.ndarray) -> np.ndarray:
    """The most suspicious, as many as keep the expected false alarms below a share, and none under a half."""
    order = np.argsort(-wrong, kind="stable")
    alarms = np.cumsum(1 - wrong[order]) / np.arange(1, len(wrong) + 1)
    suspect = np.zeros(len(wrong), dtype=bool)
    suspect[order[: int((alarms <= ALARMS).sum())]] = True
    return suspect & (wrong > 0.5)
