"""Signals by canonical correlation between fixed vectors of pictures and of captions.

It is fitted on all folds but one and scores that one, then once more with every pair weighing as far as it looked
right. With vectors of several picture networks and of the captions' meaning and words (cca_inputs.py) it separates
wrong pairs better than small networks trained from nothing, above all where data are few or mostly wrong: it has little
capacity to memorise a pair.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.gallery import GALLERY, MEASURES, GalleryQuery, gallery_of, vectors_against_gallery
from matchlight.auditing.neighbours import AuditedRows, Signals
from matchlight.parts.canonical_correlation import fit_canonical_correlation, scaled_components, sizes_for
from matchlight.training.division import clean_probability_given_share, share_of_wrong

PASSES = 3


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
        weight = np.maximum(clean_probability_given_share(loss, share_of_wrong(loss, made)), 1e-3)
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
