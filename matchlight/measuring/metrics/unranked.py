"""Figures that need no ranking: classification (Micro-F1), detection for audits (AUROC, AP), spread of a set."""

from __future__ import annotations

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Array, Bools, Numbers, Values, as_array


def micro_f1(predicted: Numbers, truth: Numbers, *, threshold: float = 0.5) -> float:
    """2 TP / (2 TP + FP + FN) over all items and classes; predicted = at or above the threshold."""
    said, real = as_array(predicted) >= threshold, as_array(truth) != 0
    if said.shape != real.shape:
        raise BadInput(f"predictions are {said.shape} but labels are {real.shape}")
    right = int((said & real).sum())
    return 2 * right / max(1, int(said.sum()) + int(real.sum()))


def best_threshold(predicted: Numbers, truth: Numbers) -> float:
    """The threshold with the highest Micro-F1; choose it on validation data, use it on test data."""
    levels, real = as_array(predicted).ravel(), as_array(truth).ravel() != 0
    if not levels.size:
        raise BadInput("no predictions to choose a threshold from")
    order = np.argsort(-levels, kind="stable")
    right, said = np.cumsum(real[order]), np.arange(1, len(levels) + 1)
    ends = np.append(np.diff(levels[order]) != 0, True)  # equal predictions cross a threshold together
    f1 = np.where(ends, 2 * right / (said + real.sum()), -1.0)
    return float(levels[order][np.argmax(f1)])


def auroc(scores: Numbers, truth: Numbers) -> float:
    """The chance that a true item scores above a false one; a tie counts half."""
    values, real = _detection(scores, truth)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # mean rank of equals, from 1
    trues, falses = int(real.sum()), int((~real).sum())
    return float((rank[real].sum() - trues * (trues + 1) / 2) / (trues * falses))


def average_precision(scores: Numbers, truth: Numbers) -> float:
    """The area under the precision-recall steps; equal scores cross the threshold together, whatever their order."""
    values, real = _detection(scores, truth)
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    right = np.cumsum(real[order])[ends]
    return float((np.diff(right, prepend=0) * right / (ends + 1)).sum() / real.sum())


def _detection(scores: Numbers, truth: Numbers) -> tuple[Values, Bools]:
    values, real = as_array(scores).astype(np.float64).ravel(), as_array(truth).ravel() != 0
    if len(values) != len(real):
        raise BadInput(f"{len(values)} scores but {len(real)} truths")
    if np.isnan(values).any():
        raise BadInput(f"score {int(np.flatnonzero(np.isnan(values))[0])} is not a number (NaN)")
    if real.all() or not real.any():
        raise BadInput(
            "detection needs both true and false items; all of these are " + ("true" if real.any() else "false")
        )
    return values, real


def circular_variance(vectors: Numbers, mask: Numbers | None = None) -> Array:
    """1 - |mean unit vector| of each set (N, K, D): 0 where a set has collapsed to one direction."""
    sets = as_array(vectors).astype(np.float64)
    real = np.ones(sets.shape[:2], bool) if mask is None else as_array(mask).astype(bool)
    length = np.linalg.norm(sets, axis=2, keepdims=True)
    unit = np.divide(sets, length, out=np.zeros_like(sets), where=length > 0) * real[..., None]
    return np.asarray(1 - np.linalg.norm(unit.sum(1), axis=1) / np.maximum(1, real.sum(1)))
