"""Signals of fixed vectors, which nothing was trained for: neighbours and siblings, canonical correlation, cosines."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.canonical_signals import cross_validated_signals
from matchlight.auditing.cca_inputs import OWN, caption_features, picture_features, principal_components, sized
from matchlight.auditing.folds import Folds
from matchlight.auditing.gallery import GALLERY, MEASURES, GalleryQuery, gallery_of, vectors_against_gallery
from matchlight.auditing.item_vectors import AUTO, sentence_vectors, tfidf_vectors, unit
from matchlight.auditing.neighbours import AuditedRows, Signals, Space, neighbour_signals
from matchlight.auditing.options import Options
from matchlight.inputs.batches import Table
from matchlight.inputs.given_vectors import GivenVectors
from matchlight.inputs.prepare import View, view_of
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import sizes_for


def own_view(pairs: Pairs, kinds: list[str], *, quick: bool) -> tuple[View, list[str]]:
    """How the audit itself reads pictures, and the kinds of vectors with those it reads that way called its own.

    Quick models learn from a grid of lite0's, or from the features that came with the data. Without them nothing needs
    a grid, and where networks are named, the first of them is all that is needed to begin with.
    """
    if quick or OWN in kinds or pairs.features is not None:
        return view_of({}, pooled=False, pairs=pairs), kinds
    network, pixels = sized(kinds[0])
    return view_of({"backbone": network, "pixels": pixels}, pooled=True, pairs=pairs), [OWN, *kinds[1:]]


def fixed_vector_signals(
    table: Table, folds: Folds, kinds: list[str], vectors: GivenVectors | None, options: Options, device: torch.device
) -> Signals:
    """Neighbours and siblings, canonical correlation with its better partners, and the cosine of given vectors."""
    pictures, picture = np.unique(table.pairs.picture[folds.rows], return_inverse=True)
    audited = AuditedRows(picture, folds.group[pictures], np.searchsorted(folds.rows, folds.wrong))
    captions = [table.pairs.captions[row] for row in folds.rows.tolist()]
    seen = picture_features(table, pictures, kinds, device)
    sentences = _sentences(captions, folds.rows, vectors, options, device)
    texts = tfidf_vectors(captions, seed=options.seed) if sentences is None else sentences
    space = Space(unit(torch.cat(seen, 1)).to(device), unit(texts).to(device))
    wide, _ = sizes_for(len(captions))
    sides = (
        torch.cat([principal_components(one, most=wide) for one in seen], 1),
        caption_features(captions, sentences, seed=options.seed),
    )
    plain = cross_validated_signals(*sides, audited, folds.fold, seed=options.seed)
    near = neighbour_signals(space, audited, np.arange(len(captions)), seed=options.seed)
    signals = {f"free_{name}": value for name, value in near.items()} | {f"plain_{k}": v for k, v in plain.items()}
    if vectors is not None and vectors.joint:
        both = _unit(vectors.images[pictures]), _unit(vectors.texts[folds.rows])
        signals |= {f"given_{k}": v for k, v in _cosine_signals(*both, audited, seed=options.seed).items()}
    return signals


def _sentences(
    captions: list[str], rows: np.ndarray, vectors: GivenVectors | None, options: Options, device: torch.device
) -> Tensor | None:
    """(n, D) vectors of what captions mean: those that were given, and those of encoders that were named."""
    if vectors is None:
        return sentence_vectors(captions, options.captions, device=device)
    given = _unit(vectors.texts[rows])
    named = None if options.captions == AUTO else sentence_vectors(captions, options.captions, device=device)
    return given if named is None else torch.cat([given, named], 1)


def _unit(vectors: np.ndarray) -> Tensor:
    return unit(torch.from_numpy(vectors).float())


def _cosine_signals(images: Tensor, texts: Tensor, audited: AuditedRows, *, seed: int) -> Signals:
    """Gallery scores of every row and of its manufactured pair by the product of given unit vectors."""
    rows = np.arange(len(texts))
    gallery = gallery_of(audited.picture, rows, rows[:0], size=GALLERY, seed=seed)
    query = GalleryQuery(np.tile(audited.picture, 2), np.concatenate([rows, audited.wrong]), gallery, audited.group)
    scores = vectors_against_gallery(images, texts, audited.picture, query)
    signals: Signals = {}
    for name in MEASURES:
        signals[name], signals[f"{name}_wrong"] = np.split(scores[name], 2)
    return signals
