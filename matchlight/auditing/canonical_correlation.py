"""Canonical correlation with a ridge on either side, between fixed vectors of pictures and of captions.

It has a closed form and takes seconds. It is fitted on all folds but one and scores that one, then once more with every
pair weighing as far as it looked right. With vectors of several picture networks and of the captions' meaning and words
(cca_inputs.py) it separates wrong pairs better than small networks trained from nothing, above all where data are few
or mostly wrong: it has little capacity to memorise a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.gallery import GALLERY, MEASURES, GalleryQuery, gallery_of, vectors_against_gallery
from matchlight.auditing.neighbours import AuditedRows, Signals
from matchlight.training.division import share_of_wrong, weighed

WIDE = 320  # principal components of either side that are used
KEPT = 80  # canonical directions
MANY, WIDE_OF_MANY, KEPT_OF_MANY = 10_000, 768, 128  # pairs that are enough to fit more of both
RIDGE = 1.0, 1.0  # of pictures and of captions, in mean variances of a direction
POWER = 1.5  # how much more a direction counts where both sides agree on it
PASSES = 3


@dataclass(frozen=True)
class CanonicalMaps:
    """The fit: centres to subtract, and maps onto the canonical directions."""

    centres: tuple[Tensor, Tensor]
    maps: tuple[Tensor, Tensor]

    def vectors(self, side: int, x: Tensor) -> Tensor:
        """(N, directions) unit vectors of pictures (side 0) or captions (side 1)."""
        return torch.nn.functional.normalize((x - self.centres[side]) @ self.maps[side], dim=1).float()


def sizes_for(pairs: int) -> tuple[int, int]:
    """How many principal components and canonical directions so many pairs can be fitted with."""
    return (WIDE_OF_MANY, KEPT_OF_MANY) if pairs >= MANY else (WIDE, KEPT)


def fit_canonical_correlation(images: Tensor, texts: Tensor, weight: Tensor, *, kept: int = KEPT) -> CanonicalMaps:
    """The canonical directions of paired (N, D) pictures and (N, E) captions, each pair with its weight."""
    share = (weight / weight.sum())[:, None]
    centres = (images * share).sum(0), (texts * share).sum(0)
    x, y = images - centres[0], texts - centres[1]
    roots = [_cholesky(side.T @ (side * share), ridge) for side, ridge in ((x, RIDGE[0]), (y, RIDGE[1]))]
    across = torch.linalg.solve_triangular(roots[0], x.T @ (y * share), upper=False)
    across = torch.linalg.solve_triangular(roots[1], across.T, upper=False).T
    u, strength, v = torch.linalg.svd(across, full_matrices=False)
    count = min(kept, len(strength))
    ends = u[:, :count] * strength[:count] ** POWER, v[:count].T
    maps = [torch.linalg.solve_triangular(root.T, end, upper=True) for root, end in zip(roots, ends, strict=True)]
    return CanonicalMaps(centres, (maps[0], maps[1]))


def _cholesky(spread: Tensor, ridge: float) -> Tensor:
    """The lower triangle L with L L' = spread + ridge."""
    mean = spread.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.cholesky(spread + ridge * mean * torch.eye(len(spread), dtype=spread.dtype))


def scaled_components(vectors: Tensor, *, most: int = WIDE) -> Tensor:
    """(N, d) float64: the principal components, not rescaled one by one."""
    x = vectors.double().cpu()
    x = x - x.mean(0)
    if x.shape[1] > most:
        x = x @ torch.linalg.eigh(x.T @ x)[1][:, -most:]
    return x / x.std().clamp(min=1e-12)


def cross_validated_signals(
    images: Tensor, texts: Tensor, audited: AuditedRows, fold: np.ndarray, *, seed: int
) -> Signals:
    """Gallery scores of every row and of its manufactured pair, and better partners, by fits that did not see it."""
    wide, _ = sizes_for(len(fold))
    images, texts = scaled_components(images, most=wide), scaled_components(texts, most=wide)
    weight, signals = np.ones(len(fold)), {}
    for turn in range(PASSES):
        parts = [
            _fold_signals(images, texts, audited, fold, k, weight, seed=seed, last=turn == PASSES - 1)
            for k in _folds(fold)
        ]
        signals = _over_all_folds(parts, fold)
        loss, made = ((signals[f"i2t{end}"] + signals[f"t2i{end}"]) / 2 for end in ("", "_wrong"))
        weight = np.maximum(weighed(loss, share_of_wrong(loss, made)), 1e-3)
    return signals


def _folds(fold: np.ndarray) -> range:
    return range(int(fold.max()) + 1)


def _fold_signals(
    images: Tensor,
    texts: Tensor,
    audited: AuditedRows,
    fold: np.ndarray,
    k: int,
    weight: np.ndarray,
    *,
    seed: int,
    last: bool,
) -> Signals:
    """The signals of fold k, by the fit on all other folds."""
    others, inside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
    pairs = images[torch.from_numpy(audited.picture[others])], texts[torch.from_numpy(others)]
    _, kept = sizes_for(len(fold))
    fitted = fit_canonical_correlation(*pairs, torch.from_numpy(weight[others]), kept=kept)
    sides = fitted.vectors(0, images), fitted.vectors(1, texts)
    gallery = gallery_of(audited.picture, inside, others, size=GALLERY, seed=seed)
    captions = np.concatenate([inside, audited.wrong[inside]])
    query = GalleryQuery(np.tile(audited.picture[inside], 2), captions, gallery, audited.group)
    scores = vectors_against_gallery(*sides, audited.picture, query)
    signals: Signals = {}
    for name in MEASURES:
        signals[name], signals[f"{name}_wrong"] = np.split(scores[name], 2)
    return signals | (better_partners(*sides, audited, inside) if last else {})


def _over_all_folds(parts: list[Signals], fold: np.ndarray) -> Signals:
    """The folds' signals as arrays over all rows."""
    signals = {name: np.empty((len(fold), *value.shape[1:]), value.dtype) for name, value in parts[0].items()}
    for k, part in enumerate(parts):
        for name, value in part.items():
            signals[name][fold == k] = value
    return signals
