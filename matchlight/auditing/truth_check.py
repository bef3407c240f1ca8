"""How well an audit did where the truth is known: truth.json of `matchlight data noise` against its scores."""

from __future__ import annotations

import numpy as np

from matchlight.auditing.label_errors import has_single_labels
from matchlight.auditing.reasons import Findings
from matchlight.core import BadInput
from matchlight.data.findings import SAYS_NOTHING, KindMetrics, TruthMetrics
from matchlight.data.noise import Truth
from matchlight.data.noise.truth import NOTHING, RIGHT, WEB, WRONG
from matchlight.pairs import Pairs

BINS = 10
UNCHANGED = "unchanged"  # pairs that web noise left alone


def check_truth(truth: Truth, pairs: Pairs) -> None:
    """Refuse the truth about other data: rows or pictures that are not there, or labels nobody can judge here."""
    if isinstance(truth.moved, dict):
        if not has_single_labels(pairs):
            raise BadInput("--truth: it is about labels, and this data set has no single label an item to audit")
        sides = [("picture", truth.moved["image"], len(pairs.names)), ("row", truth.moved["text"], len(pairs))]
    else:
        sides = [("row", truth.moved, len(pairs))]
    for what, places, count in sides:
        if max(places, default=0) >= count:
            raise BadInput(f"--truth: it names {what} {max(places)}, and {pairs.root} has {count}; it is of other data")


def measured(truth: Truth, findings: Findings, pairs: Pairs) -> TruthMetrics:
    """Findings against the truth; labels by their own scores, as a pair's score knows only the suspects among them.

    A caption that says nothing is neither right nor wrong, and calling it wrong is no false alarm: such rows are left
    out of all figures but those of their kind.
    """
    row, score = findings.row, findings.score
    if isinstance(truth.moved, dict):
        bad = ~truth.clean(row, "text") | ~truth.clean(pairs.picture[row], "image")
        score = score if findings.labels is None else findings.labels.score
        return against_truth(score, findings.suspect, bad)
    bad, nothing = (np.isin(row, truth.rows_that_are(meaning)) for meaning in (WRONG, NOTHING))
    result = against_truth(score[~nothing], findings.suspect[~nothing], bad[~nothing])
    result["flagged"] = int(findings.suspect.sum())
    return result if truth.like != WEB else {**result, "kinds": by_kind(truth, findings)}


def against_truth(score: np.ndarray, suspect: np.ndarray, bad: np.ndarray) -> TruthMetrics:
    """Figures of the scores (low = bad), and precision and recall of the flagged."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    both = bool(bad.any() and not bad.all())
    hits = int((suspect & bad).sum())
    return {
        "auroc": float(roc_auc_score(bad, -score)) if both else None,
        "average_precision": float(average_precision_score(bad, -score)) if bad.any() else None,
        "precision": hits / int(suspect.sum()) if suspect.any() else None,
        "recall": hits / int(bad.sum()) if bad.any() else None,
        "recall_at_precision_95": recall_at(score, bad, precision=0.95) if bad.any() else None,
        "calibration_error": calibration_error(score, ~bad) if len(score) else None,
        "flagged": int(suspect.sum()),
    }


def recall_at(score: np.ndarray, bad: np.ndarray, *, precision: float) -> float:
    """The largest share of the bad pairs below a threshold of the score at which so many of those below are bad."""
    order = np.argsort(score, kind="stable")
    last = np.append(np.diff(score[order]) > 0, True)  # pairs of equal score are below a threshold together
    hits = np.cumsum(bad[order])
    enough = last & (hits >= precision * np.arange(1, len(bad) + 1))
    return float(hits[enough].max(initial=0) / bad.sum())


def calibration_error(score: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error: how far the scores of a bin are from its share of right pairs, over BINS bins."""
    place = np.minimum((score * BINS).astype(np.int64), BINS - 1)
    count, scores, rights = (np.bincount(place, weight, BINS) for weight in (None, score, right.astype(np.float64)))
    return float(np.abs(scores - rights).sum() / count.sum())


def by_kind(truth: Truth, findings: Findings) -> dict[str, KindMetrics]:
    """What was said of each kind of changed caption, and of the captions that were left alone."""
    kind = np.array([truth.kinds.get(row, UNCHANGED) for row in findings.row.tolist()], dtype=object)
    told_nothing = np.isin(findings.reason, SAYS_NOTHING)
    out: dict[str, KindMetrics] = {}
    for name, means in (truth.means | {UNCHANGED: RIGHT}).items():
        some = kind == name
        told = {WRONG: findings.suspect, NOTHING: told_nothing, RIGHT: ~findings.suspect & ~told_nothing}[means]
        if some.any():
            shares = float(findings.suspect[some].mean()), float(told[some].mean())
            out[name] = {"means": means, "pairs": int(some.sum()), "flagged": shares[0], "told": shares[1]}
    return out
