"""Noise as the web has it: captions of similar or neighbouring pictures, titles, file names, templates, cut captions.

Not every such caption is wrong. A title and a cut caption still fit their picture, a file name and a template say
nothing about any, and only a caption that was written for another picture is wrong; the truth keeps the kind of every
row and what is true of that kind (`MEANS`). Kinds come in equal numbers, so that each is measured equally well; they
are no estimate of how often pages have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from matchlight.console import BadInput
from matchlight.data.noise.fits import caption_fits
from matchlight.data.noise.truth import NOTHING, RIGHT, WEB, WRONG, Ints, Truth
from matchlight.data.noise.web_words import MADE, template
from matchlight.pairs import Pairs

SIMILAR, NEXT = "similar", "next"  # captions written for another picture
MEANS = {SIMILAR: WRONG, NEXT: WRONG, "title": RIGHT, "truncated": RIGHT, "file name": NOTHING, "template": NOTHING}
TRIED = 10  # other pictures, the nearest first, before a row gets a template instead
BLOCK = 256  # pictures that are read, or whose neighbours are looked for, at once


def web_captions(
    pairs: Pairs, *, ratio: float, per: str = "caption", seed: int = 0, split: str = "train"
) -> tuple[Pairs, Truth]:
    """Give exactly round(ratio * n) rows (or pictures, with all their rows) of a split captions as the web has them."""
    if pairs.text_features is not None or pairs.tokens is not None:
        raise BadInput(f'{pairs.root}: its texts are vectors or word ids; like "web" writes new words')
    rng = np.random.default_rng(seed)
    units = _units(pairs, split, per)
    count = round(ratio * len(units))
    chosen = rng.permutation(len(units))[:count]
    kinds = rng.permutation(np.resize(list(MEANS), count))
    others = _Others(pairs, split, [units[k][0] for k, kind in zip(chosen, kinds, strict=True) if kind == SIMILAR])
    captions = list(pairs.captions)
    kind_of: dict[int, str] = {}
    source: dict[int, int] = {}
    for unit, kind in zip(chosen.tolist(), kinds.tolist(), strict=True):
        rows = units[unit]
        for row, (what, words, origin) in zip(rows.tolist(), _made(pairs, rows, kind, others, rng), strict=True):
            captions[row], kind_of[row] = words, what
            if origin is not None:
                source[row] = origin
    moved = sorted(kind_of)
    truth = Truth("mismatch", float(ratio), int(seed), per, list(moved), dict(sorted(source.items())), WEB)
    truth = replace(truth, kinds={row: kind_of[row] for row in moved}, means=MEANS)
    return _with_captions(pairs, captions, source), truth


def _units(pairs: Pairs, split: str, per: str) -> list[Ints]:
    """What changes as one: single rows, or all rows of a picture."""
    rows = pairs.rows(split)
    if per == "caption":
        return list(rows[:, None])
    rows = rows[np.argsort(pairs.picture[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(pairs.picture[rows])) + 1) if len(rows) else []


def _made(
    pairs: Pairs, rows: Ints, kind: str, others: _Others, rng: np.random.Generator
) -> Iterator[tuple[str, str, int | None]]:
    """Kind, words and origin of the new caption of each of these rows of a picture; a template where all else fails."""
    moved = others.rows_for(rows, kind) if kind in (SIMILAR, NEXT) else None
    for place, row in enumerate(rows.tolist()):
        if moved is not None:
            yield kind, pairs.captions[moved[place]], int(moved[place])
            continue
        words = MADE[kind](pairs.captions[row], rng) if kind in MADE else None
        if words is None or words == pairs.captions[row]:
            yield "template", template("", rng), None
        else:
            yield kind, words, row if MEANS[kind] == RIGHT else None


class _Others:
    """Pictures that are similar to a picture or stand next to it, and rows of theirs whose captions do not fit it."""

    def __init__(self, pairs: Pairs, split: str, similar_to: list[int]):
        rows = pairs.rows(split)
        self.picture = pairs.picture
        self.fits, self.content = caption_fits(pairs)
        order = rows[np.argsort(pairs.picture[rows], kind="stable")]
        self.pictures, start = np.unique(pairs.picture[order], return_index=True)
        self.rows = np.split(order, start[1:]) if len(order) else []
        asked = np.unique(pairs.picture[np.array(similar_to, np.int64)])
        places = np.searchsorted(self.pictures, asked)
        self.similar = dict(zip(asked.tolist(), _nearest(pairs, self.pictures, self.rows, places), strict=True))

    def rows_for(self, rows: Ints, kind: str) -> Ints | None:
        """A row of one other picture for each of these rows of one picture; None where every caption tried fits."""
        own = int(self.picture[rows[0]])
        mine = self.rows[np.searchsorted(self.pictures, own)]
        ordinal = np.searchsorted(mine, rows)
        for place in self._tried(own, kind):
            theirs = self.rows[place]
            found = theirs[ordinal % len(theirs)]
            if not self.fits(self.content[found], np.full(len(found), own)).any():
                return found
        return None

    def _tried(self, own: int, kind: str) -> list[int]:
        if kind == SIMILAR:
            return [int(place) for place in self.similar[own]]
        place = int(np.searchsorted(self.pictures, own))
        near = [place + step * side for step in range(1, TRIED // 2 + 1) for side in (1, -1)]
        return [other for other in near if 0 <= other < len(self.pictures)]


def _nearest(pairs: Pairs, pictures: Ints, rows: list[Ints], places: Ints) -> Ints:
    """(p, TRIED) places of the pictures most similar to those at `places`, the most similar first."""
    width = min(TRIED, max(0, len(pictures) - 1))
    found = [np.zeros((0, width), np.int64)]
    if len(places):
        likeness = _by_features if pairs.features is not None else _by_words
        for block, alike in likeness(pairs, pictures, rows, places):
            alike[np.arange(len(block)), block] = -np.inf
            found.append(np.argsort(-alike, axis=1, kind="stable")[:, :width])
    return np.concatenate(found)


Likeness = Iterator[tuple[Ints, np.ndarray]]  # blocks of places, and how alike each is to every picture


def _by_features(pairs: Pairs, pictures: Ints, rows: list[Ints], places: Ints) -> Likeness:
    """By the features that came with the pictures."""
    assert pairs.features is not None
    parts = [pairs.features.gather(pictures[start : start + BLOCK]) for start in range(0, len(pictures), BLOCK)]
    vectors = np.concatenate([part.reshape(len(part), -1, part.shape[-1]).mean(1) for part in parts]).astype(np.float32)
    vectors -= vectors.mean(0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        yield block, vectors[block] @ vectors.T


def _by_words(pairs: Pairs, pictures: Ints, rows: list[Ints], places: Ints) -> Likeness:
    """By the words of the pictures' own captions, rare words counting most."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    said = [" ".join(pairs.captions[row] for row in own.tolist()) for own in rows]
    weigh = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", dtype=np.float32)
    try:
        vectors = weigh.fit_transform(said)
    except ValueError:  # no caption has a word
        raise BadInput(f"{pairs.root}: its captions have no words, so none is similar to another") from None
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        yield block, (vectors[block] @ vectors.T).toarray()


def _with_captions(pairs: Pairs, captions: list[str], source: dict[int, int]) -> Pairs:
    """The pairs with these captions; relevance and text labels of a caption that was moved come along."""
    rows, origins = (np.fromiter(places, np.int64, len(source)) for places in (source.keys(), source.values()))
    return replace(pairs.with_captions_moved(rows, origins), captions=captions)
