"""Losses as loops over pairs and candidates, written from the definitions and nothing else."""

from __future__ import annotations

import math

import numpy as np

from matchlight.core import IMAGE, TEXT, Batch


def _rivals(batch: Batch, pair: int, siblings: str) -> tuple[list[int], list[int]]:
    """Captions and pictures that may be negatives of one labelled pair."""
    image, text = batch.positive[pair].tolist()
    owner = batch.sides[TEXT].extra["picture"].tolist()
    pictures = batch.sides[IMAGE].id.tolist()
    texts = [t for t in range(len(owner)) if t != text]
    images = [i for i in range(len(pictures)) if i != image]
    if siblings == "masked":
        texts = [t for t in texts if owner[t] != pictures[image]]
        images = [i for i in images if pictures[i] != owner[text]]
    return texts, images


def naive_hinges(scores: np.ndarray, batch: Batch, margin: float, siblings: str) -> tuple[np.ndarray, np.ndarray]:
    """Per pair, both directions added: the hardest negative's cost, and the sum of all costs."""
    hard, every = [], []
    for pair in range(len(batch.positive)):
        image, text = batch.positive[pair].tolist()
        texts, images = _rivals(batch, pair, siblings)
        own = scores[image, text]
        rows = [max(0.0, margin + scores[image, t] - own) for t in texts]
        columns = [max(0.0, margin + scores[i, text] - own) for i in images]
        hard.append(max(rows, default=0.0) + max(columns, default=0.0))
        every.append(sum(rows) + sum(columns))
    return np.array(hard), np.array(every)


def naive_probabilities(scores: np.ndarray, batch: Batch, temperature: float, siblings: str) -> np.ndarray:
    """(2, P) log probability of each pair's own partner, picture to text and back."""
    out = np.zeros((2, len(batch.positive)))
    for pair in range(len(batch.positive)):
        image, text = batch.positive[pair].tolist()
        texts, images = _rivals(batch, pair, siblings)
        own = scores[image, text]
        rows = [math.exp((scores[image, t] - own) / temperature) for t in texts]
        columns = [math.exp((scores[i, text] - own) / temperature) for i in images]
        out[:, pair] = -math.log(1 + sum(rows)), -math.log(1 + sum(columns))
    return out
