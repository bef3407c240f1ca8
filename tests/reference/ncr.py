"""NCR's losses as loops over pairs, from the formulas: costs, predictions, rectified margins."""

from __future__ import annotations

import math

import numpy as np


def costs(scores: np.ndarray, margin: float) -> np.ndarray:
    """Per pair, both directions: hinge costs of all negatives over the size of the batch."""
    size = len(scores)
    out = np.zeros(size)
    for i in range(size):
        for j in range(size):
            if i != j:
                out[i] += max(0.0, margin + scores[i, j] - scores[i, i]) / size
                out[i] += max(0.0, margin + scores[j, i] - scores[i, i]) / size
    return out


def predicted(scores: np.ndarray, margin: float) -> np.ndarray:
    """What the costs leave of the margin, divided by the mean of the best tenth."""
    left = [min(max(margin - cost / 2, 0.0), margin) for cost in costs(scores, margin)]
    best = sorted(left, reverse=True)[: len(left) // 10 + 1]
    q = sum(best) / len(best)
    return np.array([min(max(p / q, 0.0), 1.0) if q else 0.0 for p in left])


def margin_of(label: float, margin: float, kind: str) -> float:
    """The margin of one label."""
    if kind == "linear":
        return margin * label
    if kind == "sin":
        return margin * (math.sin(math.pi * label - math.pi / 2) / 2 + 0.5)
    return margin * (10**label - 1) / 9


def soft_loss(scores: np.ndarray, labels: np.ndarray, margin: float, kind: str) -> float:
    """Hardest negatives, each pair against its own margin; a (B, B) label belongs to the place in the matrix."""
    size, total = len(scores), 0.0
    label = labels if labels.ndim == 2 else np.repeat(labels[:, None], size, 1)
    for i in range(size):
        row, column = [0.0], [0.0]
        for j in range(size):
            if i != j:
                row.append(margin_of(label[i, j], margin, kind) + scores[i, j] - scores[i, i])
                own = label[j, i] if labels.ndim == 2 else label[i, i]
                column.append(margin_of(own, margin, kind) + scores[j, i] - scores[i, i])
        total += max(row) + max(column)
    return total
