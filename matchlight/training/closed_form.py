"""How well pairs fit before anything is trained: canonical correlation between what pretrained networks see and read.

Folds are of pictures (`cross_fits.py`), so no pair is scored by a fit that knows its picture, and nothing wrong is
memorised, not even where all captions of a picture are wrong in the same way. It takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from matchlight.core import IMAGE, TEXT, BadInput, Items, Matcher
from matchlight.inputs.batches import seeded
from matchlight.parts.canonical_correlation import SOFTENED, CanonicalMaps
from matchlight.parts.encoders import ReadPieces
from matchlight.parts.layers import masked_mean
from matchlight.training.contract import TrainingRun
from matchlight.training.cross_fits import CrossFits, Losses, weights_in_passes

FOLDS = 5
GALLERY = 1000  # pictures, and twice as many captions, among which a pair's partner is to be recognised
SALT = 161


@dataclass(frozen=True)
class ClosedForm:
    """How badly every pair fits, and one vector for every picture and caption."""

    loss: np.ndarray  # (C,) by row of the whole table, NaN where it is no training row
    null: np.ndarray  # the same of a caption with a wrong picture
    vectors: dict[str, Tensor]  # by side: (N, D) unit vectors, zeros for what is not trained on


def check(run: TrainingRun, matcher: Matcher) -> None:
    """One clear line where there is nothing pretrained to compare."""
    if run.table.pixels:
        raise BadInput(
            "measure=closed compares stored features; from pixels, begin --from a run that was trained on them"
        )
    _reader(matcher)


def _reader(matcher: Matcher) -> ReadPieces:
    readers = [part for part in matcher.encoders[TEXT].modules() if isinstance(part, ReadPieces)]
    if not readers:
        raise BadInput("measure=closed needs captions read by a sentence encoder, such as sentences=minilm")
    return readers[0]


@torch.no_grad()
def closed_form(run: TrainingRun, matcher: Matcher) -> ClosedForm:
    """Of all training pairs, by the pretrained networks below a matcher that has learnt nothing yet."""
    was = matcher.training
    matcher.eval()
    pictures, place = np.unique(run.pairs.picture[run.rows], return_inverse=True)
    reader = _reader(matcher)
    images = torch.cat([_of_pictures(items) for items in _items(run, IMAGE, pictures)])
    texts = torch.cat([_of_captions(reader, items) for items in _items(run, TEXT, run.rows)])
    matcher.train(was)
    losses, (seen, read) = LossesAmongRivals(images, texts, place, seed=run.seed).measured()
    vectors = {
        IMAGE: torch.zeros(len(run.pairs.names), seen.shape[1]),
        TEXT: torch.zeros(len(run.pairs), read.shape[1]),
    }
    vectors[IMAGE][torch.from_numpy(pictures)], vectors[TEXT][torch.from_numpy(run.rows)] = seen, read
    return ClosedForm(_by_row(run, losses.loss), _by_row(run, losses.null), vectors)


def _items(run: TrainingRun, side: str, places: np.ndarray) -> Iterator[Items]:
    for start in range(0, len(places), run.recipe.batch):
        yield run.table.items(side, places[start : start + run.recipe.batch]).to(run.device)


def _of_pictures(items: Items) -> Tensor:
    """(n, D) or, of several regions, (n, 2D): the first, which is the class token where there is one, and the mean."""
    x = items.x.float()
    return x.cpu() if x.dim() == 2 else torch.cat([x[:, 0], masked_mean(x, items.mask)], 1).cpu()


def _of_captions(reader: ReadPieces, items: Items) -> Tensor:
    read = reader.read(items)
    return F.normalize(masked_mean(read.x.float(), read.mask), dim=1).cpu()


def _by_row(run: TrainingRun, values: np.ndarray) -> np.ndarray:
    out = np.full(len(run.pairs), np.nan)
    out[run.rows] = values
    return out


class LossesAmongRivals:
    """Of (P, D) pictures, (n, E) captions and in `place` (n,) the picture of each, by fits on other pictures."""

    def __init__(self, images: Tensor, texts: Tensor, place: np.ndarray, *, seed: int):
        self.place, self.rng = place, seeded(seed, SALT)
        fold = self.rng.permutation(len(images)) % FOLDS
        self.fits = CrossFits(images, texts, place, fold[place])

    def measured(self) -> tuple[Losses, tuple[Tensor, Tensor]]:
        """Losses of the pairs and of mismatches made of them, and vectors of all pictures and captions."""
        losses = self.losses(weights_in_passes(len(self.place), lambda _, weight: self.losses(weight)))
        whole = self.fits.on_all(losses.weights())
        return losses, (whole.vectors(0, self.fits.images), whole.vectors(1, self.fits.texts))

    def losses(self, weight: np.ndarray) -> Losses:
        """Each pair's loss and its mismatch's, by the fit on the other folds in which pairs weigh so much."""
        loss, null = np.zeros(len(weight)), np.zeros(len(weight))
        for rows, fit in self.fits.each_fold(weight):
            loss[rows], null[rows] = self._of_fold(rows, fit)
        return Losses(loss, null)

    def _of_fold(self, rows: np.ndarray, fit: CanonicalMaps) -> tuple[np.ndarray, np.ndarray]:
        """Of these rows, which the fit does not know: -log of recognising the partner, both ways, and a wrong one."""
        pictures, place = np.unique(self.place[rows], return_inverse=True)
        seen = fit.likelihoods(0, self.fits.images[torch.from_numpy(pictures)]) / SOFTENED
        read = fit.likelihoods(1, self.fits.texts[torch.from_numpy(rows)])
        own = torch.from_numpy(place)
        step = torch.from_numpy(self.rng.integers(1, max(2, len(pictures)), len(rows)))
        wrong = (own + step) % len(pictures)
        rivals = self._rivals(seen, read, own)
        loss, null = (recognised((seen[partner] * read).sum(1), rivals) for partner in (own, wrong))
        return loss.numpy(), null.numpy()

    def _rivals(self, seen: Tensor, read: Tensor, own: Tensor) -> list[Tensor]:
        """Per direction (n,): the log of what all others in the gallery score together, siblings left out."""
        pictures = torch.from_numpy(self.rng.permutation(len(seen))[:GALLERY])
        captions = torch.from_numpy(self.rng.permutation(len(read))[: 2 * GALLERY])
        texts = (seen @ read[captions].T)[own].masked_fill(own[captions][None] == own[:, None], -torch.inf)
        images = (read @ seen[pictures].T).masked_fill(pictures[None] == own[:, None], -torch.inf)
        return [texts.logsumexp(1), images.logsumexp(1)]


def recognised(score: Tensor, rivals: list[Tensor]) -> Tensor:
    """(n,) the mean over directions of -log of the share that a score has beside its rivals."""
    return torch.stack([torch.logaddexp(score, rival) - score for rival in rivals]).mean(0)
