"""What a run says of the pairs it was trained on: it has seen them, so a wrong one may look right to it.

NCR+ and Lantern measure wrong pairs of their own making beside the real ones while they train. Of other runs it is
learned from the pairs that everything else finds wrong.
"""

from __future__ import annotations

import numpy as np

from matchlight.auditing.mixture import fit, posterior, weight_of_evidence

EARLY, LATE = 2, 12  # epochs whose training losses count: first, and first that does not
AGAIN = 3  # times that a run is read where no quick models were trained
REPEATS = 0.7, 0.5  # how much a run counts alone, and beside quick models or measures
FEW = 20  # right-looking pairs that a run must have measured to be heard

Signals = dict[str, np.ndarray]
Columns = dict[str, np.ndarray]


def early(history: np.ndarray) -> np.ndarray:
    """(n,) mean loss over the early epochs, the very first left out; nan where no epoch has one.

    NCR trains on the pairs it doubts in some epochs only: the others say nothing of them.
    """
    start = min(EARLY, len(history) - 1)
    losses = history[start : max(LATE, start + 1)].astype(np.float64)
    known = np.isfinite(losses)
    total, times = np.where(known, losses, 0.0).sum(0), known.sum(0)
    return np.divide(total, times, out=np.full(len(total), np.nan), where=times > 0)


def trained_here(found: Signals) -> np.ndarray:
    """(n,) bool: the pairs that the run was trained on; files of old hold one answer for all."""
    return np.broadcast_to(found.get("run_trained_here", np.array(False)), len(found["rows"]))


def run_columns(found: Signals) -> Columns:
    """What a run remembers of the pairs it was trained on, high = looks right; nan of the others."""
    out: Columns = {}
    if "run_history" in found:
        out["run_training"] = -early(found["run_history"])
    if "run_i2t" in found:
        loss = (found["run_i2t"] + found["run_t2i"]).astype(np.float64) / 2
        out["run_loss"] = np.where(trained_here(found), -loss, np.nan)
    return {name: value for name, value in out.items() if np.isfinite(value).any()}


def by_measures(found: Signals, models: np.ndarray, made: np.ndarray, noise: float) -> np.ndarray:
    """The evidence of models and of a run that measured wrong pairs too, as one.

    A run sees much of what the models see. Its wrong pairs are others than theirs, so the two are put side by side
    as alike as losses and evidence are among the real pairs that look right.
    """
    from scipy.stats import spearmanr

    loss, null = found["run_measured"].astype(np.float64), found["run_measured_wrong"].astype(np.float64)
    seen = np.isfinite(loss) & np.isfinite(null)
    right = seen & (posterior(models, noise) < 0.5)
    if right.sum() < FEW:
        return models
    alike = spearmanr(models[right], -loss[right]).statistic
    x = np.column_stack([models, -loss])
    y = np.column_stack([made, side_by_side(made, -null[seen], max(0.0, float(np.nan_to_num(alike))))])
    out = models.copy()
    out[seen] = fit(x[seen], y).evidence(x[seen])
    return out


def side_by_side(made: np.ndarray, others: np.ndarray, alike: float) -> np.ndarray:
    """(n,) values drawn from `others`, in an order that follows `made` as closely as `alike` says (0 to 1)."""
    from scipy.stats import norm, rankdata

    rng = np.random.default_rng(0)
    order = norm.ppf(rankdata(made) / (len(made) + 1))
    order = alike * order + np.sqrt(1 - alike**2) * rng.normal(size=len(made))
    out = np.empty(len(made))
    out[np.argsort(order)] = np.sort(rng.choice(others, len(made), replace=len(others) < len(made)))
    return out


def by_result(found: Signals, evidence: np.ndarray, noise: float) -> np.ndarray:
    """What the model that came of such measures adds: it was kept from pairs it distrusted, and learnt from the rest.

    Its losses repeat much of the measures, so they count by half; beside siblings they would drown a better witness.
    Those of its training are of early epochs, before anything was distrusted, and do not help.
    """
    last = run_columns(found).get("run_loss")
    return np.zeros(len(evidence)) if last is None else heard(last[:, None], posterior(evidence, noise)) * REPEATS[1]


def by_memory(found: Signals, evidence: np.ndarray, noise: float) -> np.ndarray:
    """What a run's losses say; how it treats wrong pairs is learned from the pairs found wrong so far.

    It repeats some of what is known already, beside quick models more, and counts less for that. Without quick models
    it is the best witness there is, and what is learned from it is used to learn again.
    """
    columns, more = run_columns(found), np.zeros(len(evidence))
    if not columns:
        return more
    x = np.stack(list(columns.values()), 1)
    alone = "i2t" not in found
    for _ in range(AGAIN if alone else 1):
        more = heard(x, posterior(evidence + more, noise))
    return more * REPEATS[0 if alone else 1]


def heard(x: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """(n,) what (n, d) columns with gaps say for right over wrong; 0 for pairs of which nothing is known.

    Each pair is weighed by the columns it has; what these are worth is learned from all pairs that have them.
    """
    known, more = np.isfinite(x), np.zeros(len(x))
    for kind in np.unique(known, axis=0):
        if kind.any():
            have, same = known[:, kind].all(1), (known == kind).all(1)
            more[same] = weight_of_evidence(x[np.ix_(have, kind)], wrong[have])[same[have]]
    return more
