"""A map of the collection: pictures as points, those that look alike near each other.

t-SNE (van der Maaten & Hinton, JMLR 2008, by scikit-learn) places some pictures; the others stand among their nearest
placed ones. So the map of a large collection takes no longer than that of a small one, and pictures can be added.
"""

from __future__ import annotations

import numpy as np

PLACED, NEAR = 1500, 4
FEWEST = 5


def points(rows: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """(N, k, d) k vectors an item, or (N, d) -> (N, 2) float32 within [-1, 1]."""
    if len(rows) < FEWEST:
        return _few(len(rows))
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(len(rows), min(PLACED, len(rows)), replace=False))
    known = _mean(rows[some])
    placed = _placed(_unit(known), seed)
    out = beside(rows, known, placed, seed=seed)
    out[some] = placed
    return out


def _few(count: int) -> np.ndarray:
    turn = 2 * np.pi * np.arange(count) / max(1, count)
    return 0.5 * np.stack([np.cos(turn), np.sin(turn)], 1).astype(np.float32)


def _placed(rows: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    short = PCA(min(32, *rows.shape), random_state=seed).fit_transform(rows)
    perplexity = min(30.0, (len(rows) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, max_iter=500).fit_transform(short)
    layout = layout - (layout.max(0) + layout.min(0)) / 2
    return np.asarray(layout / max(1e-6, np.abs(layout).max()), dtype=np.float32)


def beside(rows: np.ndarray, known: np.ndarray, places: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """(N, 2): each of `rows`, (N, d) or (N, k, d), near its nearest of `known` (M, d), that are at `places` (M, 2)."""
    out = np.empty((len(rows), 2), dtype=np.float32)
    wanted, near = _unit(known), min(NEAR, len(known))
    jitter = np.random.default_rng(seed).normal(0, 0.004, (len(rows), 2))
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        seen = _unit(_mean(rows[part])) @ wanted.T
        best = np.argpartition(-seen, near - 1, axis=1)[:, :near]
        weight = np.exp(20 * (np.take_along_axis(seen, best, 1) - seen.max(1, keepdims=True)))
        weight /= weight.sum(1, keepdims=True)
        out[part] = (weight[..., None] * places[best]).sum(1) + jitter[part]
    return out.clip(-1, 1)


def _mean(rows: np.ndarray) -> np.ndarray:
    """(n, d) one vector an item."""
    rows = rows.astype(np.float32)
    return rows if rows.ndim == 2 else np.asarray(rows.mean(1))


def _unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-8))
