"""Signals by canonical correlation between fixed vectors of pictures and of captions.

No pair is scored by a fit that knows it (training/cross_fits.py). It is scored by a cosine and by a likelihood, which
make different mistakes. With vectors of several picture networks and of the captions' meaning and words (cca_inputs.py)
this separates wrong pairs better than small networks trained from nothing, above all where data are few or mostly
wrong: it has little capacity to memorise a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.gallery import GALLERY, TEMPERATURE, GalleryQuery, gallery_of, real_and_wrong
from matchlight.auditing.neighbours import AuditedRows, Signals
from matchlight.console import say, track
from matchlight.parts.canonical_correlation import SOFTENED, CanonicalMaps
from matchlight.training.cross_fits import CrossFits, Losses, weights_in_passes

LIKELY = "likely_"  # gallery losses by likelihood rather than by cosine

Make = Callable[[int, Tensor], Tensor]  # vectors of pictures (0) or captions (1)


def likelihoods(fitted: CanonicalMaps, side: int, x: Tensor) -> Tensor:
    """Vectors whose product is a log likelihood at the scale of the gallery's cosines."""
    made = fitted.likelihoods(side, x)
    return made if side else made * (TEMPERATURE / SOFTENED)


class CrossValidated:
    """What the fits on all folds but one say of the pairs of that one."""

    def __init__(self, images: Tensor, texts: Tensor, audited: AuditedRows, fold: np.ndarray, *, seed: int):
        self.fits = CrossFits(images, texts, audited.picture, fold)
        self.single = self.fits.images.float(), self.fits.texts.float()  # what is compared needs no double precision
        self.audited, self.seed = audited, seed

    def losses(self, turn: int, weight: np.ndarray) -> Losses:
        """Of every row and its manufactured pair, before the last pass."""
        losses = losses_of(self.signals(weight, last=False))
        if turn == 0:
            say(f"at first sight about {losses.share:.0%} of the pairs look wrong")
        return losses

    def signals(self, weight: np.ndarray, *, last: bool) -> Signals:
        """Signals of every row by fits in which every pair weighs so much; before the last, only what weighs them."""
        folds = track(self.fits.each_fold(weight), "comparing pairs", total=len(self.fits.inside))
        return over_rows([self._of_fold(rows, fitted, last=last) for rows, fitted in folds], self.fits.inside)

    def _of_fold(self, inside: np.ndarray, fitted: CanonicalMaps, *, last: bool) -> Signals:
        """The signals of a fold's rows, by the fit on all other folds."""
        audited, every = self.audited, np.arange(len(self.audited.picture))
        gallery = gallery_of(audited.picture, inside, np.delete(every, inside), size=GALLERY, seed=self.seed)
        captions = np.concatenate([inside, audited.wrong[inside]])
        used = every if last else np.unique(np.concatenate([captions, gallery]))
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
    validated = CrossValidated(images, texts, audited, fold, seed=seed)
    return validated.signals(weights_in_passes(len(fold), validated.losses), last=True)


def losses_of(signals: Signals) -> Losses:
    """Of pairs and of manufactured ones, the mean of both ways."""
    return Losses(*((signals[f"i2t{end}"] + signals[f"t2i{end}"]) / 2 for end in ("", "_wrong")))


def over_rows(parts: list[Signals], rows: list[np.ndarray]) -> Signals:
    """Signals of some rows each as arrays over all rows."""
    count = sum(map(len, rows))
    signals = {name: np.empty((count, *value.shape[1:]), value.dtype) for name, value in parts[0].items()}
    for part, some in zip(parts, rows, strict=True):
        for name, value in part.items():
            signals[name][some] = value
    return signals
