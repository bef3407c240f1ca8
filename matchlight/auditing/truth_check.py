"""How well an audit did where the truth is known: truth.json of `matchlight data noise` against its scores."""

from __future__ import annotations

import numpy as np

from matchlight.auditing.label_errors import has_single_labels
from matchlight.auditing.reasons import Findings
from matchlight.core import BadInput
from matchlight.data.findings import TruthMetrics
from matchlight.data.noise import Truth
from matchlight.pairs import Pairs


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


def bad_rows(truth: Truth, findings: Findings, pairs: Pairs) -> np.ndarray:
    """(n,) True where the truth says a pair (or, under label noise, one of its labels) was made wrong."""
    if isinstance(truth.moved, dict):
        return ~truth.clean(findings.row, "text") | ~truth.clean(pairs.picture[findings.row], "image")
    return ~truth.clean(findings.row)


def against_truth(score: np.ndarray, suspect: np.ndarray, bad: np.ndarray) -> TruthMetrics:
    """AUROC and average precision of the scores (low = bad), precision and recall of the flagged."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    both = bool(bad.any() and not bad.all())
    hits = int((suspect & bad).sum())
    return {
        "auroc": float(roc_auc_score(bad, -score)) if both else None,
        "average_precision": float(average_precision_score(bad, -score)) if bad.any() else None,
        "precision": hits / int(suspect.sum()) if suspect.any() else None,
        "recall": hits / int(bad.sum()) if bad.any() else None,
        "flagged": int(suspect.sum()),
    }
