"""What a run adds about the pairs it was trained on: it has seen them, so a wrong one may look right to it.

NCR+ and Lantern measure manufactured wrong pairs beside the real ones while they train. For other runs it is learned
from the pairs that all other signals find wrong.
"""

from __future__ import annotations

import numpy as np

from matchlight.auditing.mixture import fit, posterior, weight_of_evidence

EARLY, LATE = 2, 12  # epochs whose training losses count: first, and first that does not
AGAIN = 3  # rounds of learning from a run where no quick models were trained
REPEATS = 0.7, 0.5  # how much a run counts alone, and beside quick models or measures
FEW = 20  # right-looking pairs that a run must have measured to be used

Signals = dict[str, np.ndarray]
Columns = dict[str, np.ndarray]


def early_loss(history: np.ndarray) -> np.ndarray:
    """(n,) mean loss over the early epochs, the very first left out; nan where no epoch has one.

    NCR trains on the pairs it doubts in some epochs only: in the others these have no loss.
    """
    start = min(EARLY, len(history) - 1)
    losses = history[start : max(LATE, start + 1)].astype(np.float64)
    known = np.isfinite(losses)
    total, times = np.where(known, losses, 0.0).sum(0), known.sum(0)
    return np.divide(total, times, out=np.full(len(total), np.nan), where=times > 0)


def trained_here(signals: Signals) -> np.ndarray:
    """(n,) bool: the pairs that the run was trained on; older files hold one answer for all."""
    return np.broadcast_to(signals.get("run_trained_here", np.array(False)), len(signals["rows"]))


def run_losses(signals: Signals) -> Columns:
    """Losses of a run for the pairs it was trained on, high = looks right; nan for the others."""
    out: Columns = {}
    if "run_history" in signals:
        out["run_training"] = -early_loss(signals["run_history"])
    if "run_i2t" in signals:
        loss = (signals["run_i2t"] + signals["run_t2i"]).astype(np.float64) / 2
        out["run_loss"] = np.where(trained_here(signals), -loss, np.nan)
    return {name: value for name, value in out.items() if np.isfinite(value).any()}


def with_measured_losses(signals: Signals, models: np.ndarray, made: np.ndarray, noise: float) -> np.ndarray:
    """The evidence of models joined with the losses of a run that measured manufactured wrong pairs as well.

    A run sees much of what the models see, and its wrong pairs are others than theirs. So the two are coupled with the
    rank correlation that losses and evidence have among the real pairs that look right.
    """
    from scipy.stats import spearmanr

    loss, null = signals["run_measured"].astype(np.float64), signals["run_measured_wrong"].astype(np.float64)
    seen = np.isfinite(loss) & np.isfinite(null)
    right = seen & (posterior(models, noise) < 0.5)
    if right.sum() < FEW:
        return models
    correlation = spearmanr(models[right], -loss[right]).statistic
    x = np.column_stack([models, -loss])
    y = np.column_stack([made, coupled_sample(made, -null[seen], max(0.0, float(np.nan_to_num(correlation))))])
    out = models.copy()
    out[seen] = fit(x[seen], y).evidence(x[seen])
    return out


def coupled_sample(made: np.ndarray, others: np.ndarray, correlation: float) -> np.ndarray:
    """(n,) values drawn from `others`, in an order that follows `made` as closely as `correlation` says (0 to 1)."""
    from scipy.stats import norm, rankdata

    rng = np.random.default_rng(0)
    order = norm.ppf(rankdata(made) / (len(made) + 1))
    order = correlation * order + np.sqrt(1 - correlation**2) * rng.normal(size=len(made))
    out = np.empty(len(made))
    out[np.argsort(order)] = np.sort(rng.choice(others, len(made), replace=len(others) < len(made)))
    return out


def final_loss_evidence(signals: Signals, evidence: np.ndarray, noise: float) -> np.ndarray:
    """What the losses of the final model add: it was not trained on pairs it distrusted, only on the rest.

    They repeat much of the measured losses, so they count by half; beside siblings they would outweigh a better signal.
    Losses of its early epochs, before anything was distrusted, do not help.
    """
    last = run_losses(signals).get("run_loss")
    if last is None:
        return np.zeros(len(evidence))
    return evidence_of_columns(last[:, None], posterior(evidence, noise)) * REPEATS[1]


def loss_evidence(signals: Signals, evidence: np.ndarray, noise: float) -> np.ndarray:
    """The evidence of a run's losses; how it treats wrong pairs is learned from the pairs found wrong so far.

    It repeats some of what is known already, beside quick models more, and counts less for that. Without quick models
    it is the best signal there is, and what is learned from it is used to learn again.
    """
    columns, evidence_added = run_losses(signals), np.zeros(len(evidence))
    if not columns:
        return evidence_added
    x = np.stack(list(columns.values()), 1)
    alone = "i2t" not in signals
    for _ in range(AGAIN if alone else 1):
        evidence_added = evidence_of_columns(x, posterior(evidence + evidence_added, noise))
    return evidence_added * REPEATS[0 if alone else 1]


def evidence_of_columns(x: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """(n,) log odds of right over wrong by (n, d) columns with gaps; 0 for pairs of which nothing is known.

    Each pair is weighed by the columns it has; what these are worth is learned from all pairs that have them.
    """
    known, evidence_added = np.isfinite(x), np.zeros(len(x))
    for kind in np.unique(known, axis=0):
        if kind.any():
            have, same = known[:, kind].all(1), (known == kind).all(1)
            evidence_added[same] = weight_of_evidence(x[np.ix_(have, kind)], wrong[have])[same[have]]
    return evidence_added
