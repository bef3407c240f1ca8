"""Signals by canonical correlation between fixed vectors of pictures and of captions.

It is fitted on all folds but one and scores that one, then once more with every pair weighing as far as it looked
right. A pair is scored by a cosine and by a likelihood, which make different mistakes. With vectors of several picture
networks and of the captions' meaning and words (cca_inputs.py) it separates wrong pairs better than small networks
trained from nothing, above all where data are few or mostly wrong: it has little capacity to memorise a pair.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.gallery import GALLERY, TEMPERATURE, GalleryQuery, gallery_of, real_and_wrong
from matchlight.auditing.neighbours import AuditedRows, Signals
from matchlight.console import say, track
from matchlight.parts.canonical_correlation import CanonicalMaps, Moments, scaled_components, sizes_for
from matchlight.training.division import clean_probability_given_share, share_of_wrong

PASSES = 3
LIKELY = "likely_"  # gallery losses by likelihood rather than by cosine
SOFTENED = 2.0  # what log likelihoods are divided by: pairs are not quite Gaussian, and never so surely told


Make = Callable[[int, Tensor], Tensor]  # vectors of pictures (0) or captions (1)


def likelihoods(fitted: CanonicalMaps, side: int, x: Tensor) -> Tensor:
    """Vectors whose product is a log likelihood at the scale of the gallery's cosines."""
    made = fitted.likelihoods(side, x)
    return made if side else made * (TEMPERATURE / SOFTENED)


class CrossValidated:
    """Fits on all folds but one; their sums are taken once a fold, and each fit is of all of them less its own."""

    def __init__(self, images: Tensor, texts: Tensor, audited: AuditedRows, fold: np.ndarray, *, seed: int):
        wide, self.kept = sizes_for(len(fold))
        self.images, self.texts = scaled_components(images, most=wide), scaled_components(texts, most=wide)
        self.single = self.images.float(), self.texts.float()  # what is compared needs no double precision
        self.audited, self.fold, self.seed = audited, fold, seed
        self.inside = [np.flatnonzero(fold == k) for k in range(int(fold.max()) + 1)]

    def signals(self, weight: np.ndarray, *, last: bool) -> Signals:
        """Signals of every row by fits in which every pair weighs so much; before the last, only what weighs them."""
        sums = [self._moments(rows, weight) for rows in self.inside]
        whole = reduce(operator.add, sums)
        parts = []
        for k in track(range(len(sums)), "comparing pairs"):
            parts.append(self._of_fold(k, (whole - sums[k]).fit(kept=self.kept), last=last))
        return _over_all_folds(parts, self.fold)

    def _moments(self, rows: np.ndarray, weight: np.ndarray) -> Moments:
        pictures, place = np.unique(self.audited.picture[rows], return_inverse=True)
        sides = self.images[torch.from_numpy(pictures)], self.texts[torch.from_numpy(rows)]
        return Moments.of(*sides, torch.from_numpy(place), torch.from_numpy(weight[rows]))

    def _of_fold(self, k: int, fitted: CanonicalMaps, *, last: bool) -> Signals:
        """The signals of fold k, by the fit on all other folds."""
        inside, audited = self.inside[k], self.audited
        others = np.flatnonzero(self.fold != k)
        gallery = gallery_of(audited.picture, inside, others, size=GALLERY, seed=self.seed)
        captions = np.concatenate([inside, audited.wrong[inside]])
        used = np.arange(len(self.fold)) if last else np.unique(np.concatenate([captions, gallery]))
        sides = self._both(fitted.vectors, used)
        query = GalleryQuery(np.tile(audited.picture[inside], 2), captions, gallery, audited.group)
        signals = real_and_wrong(sides, audited.picture, query, whole=last)
        if not last:
            return signals
        likely = self._both(partial(likelihoods, fitted), np.unique(np.concatenate([captions, gallery])))
        signals |= real_and_wrong(likely, audited.picture, query, whole=False, name=LIKELY)
        signals["tells"] = fitted.tells(self.single[1][torch.from_numpy(inside)]).numpy()
        return signals | better_partners(*sides, audited, inside)

    def _both(self, make: Make, used: np.ndarray) -> tuple[Tensor, Tensor]:
        """The vectors of captions that are used and of their pictures, zeros in the places of all others."""
        return self._vectors(make, 0, np.unique(self.audited.picture[used])), self._vectors(make, 1, used)

    def _vectors(self, make: Make, side: int, used: np.ndarray) -> Tensor:
        if len(used) == len(self.single[side]):
            return make(side, self.single[side])
        places = torch.from_numpy(used)
        made = make(side, self.single[side][places])
        out = torch.zeros(len(self.single[side]), made.shape[1])  # fewer than `kept` where vectors are short
        out[places] = made
        return out


def cross_validated_signals(
    images: Tensor, texts: Tensor, audited: AuditedRows, fold: np.ndarray, *, seed: int
) -> Signals:
    """Gallery scores of every row and of its manufactured pair, and better partners, by fits that did not see it."""
    fits, weight = CrossValidated(images, texts, audited, fold, seed=seed), np.ones(len(fold))
    for turn in range(PASSES - 1):
        signals = fits.signals(weight, last=False)
        loss, made = ((signals[f"i2t{end}"] + signals[f"t2i{end}"]) / 2 for end in ("", "_wrong"))
        share = share_of_wrong(loss, made)
        if turn == 0:
            say(f"at first sight about {share:.0%} of the pairs look wrong")
        weight = np.maximum(clean_probability_given_share(loss, share), 1e-3)
    return fits.signals(weight, last=True)


def _over_all_folds(parts: list[Signals], fold: np.ndarray) -> Signals:
    """The folds' signals as arrays over all rows."""
    signals = {name: np.empty((len(fold), *value.shape[1:]), value.dtype) for name, value in parts[0].items()}
    for k, part in enumerate(parts):
        for name, value in part.items():
            signals[name][fold == k] = value
    return signals
