"""A search from what was asked to hits: parts of the question, filters, scores, near-duplicates, chances, captions.

Words alone or a picture alone are scored by the model as it is. A question of several parts (`dog +red -car`; a picture
and words: "like this, but ...") adds up what its parts score, each in standard deviations above what the same part
scores with a fixed sample of the index; of what should not be there, only what is above the usual counts against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from matchlight.console import BadInput
from matchlight.indexing.chances import agreement
from matchlight.indexing.folding import SPARE
from matchlight.indexing.item_filters import Where, passing, said
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.query_reader import Picture
from matchlight.indexing.questions import Question
from matchlight.indexing.results import Hit
from matchlight.indexing.searcher import SearchDepth
from matchlight.measuring.chance import Hits, heights, standardised
from matchlight.pairs import IMAGE, TEXT

SIDES = (IMAGE, TEXT)
MORE, LESS = 0.5, -1.0  # what `+word` and `-word` weigh beside the question itself


class SearchSettings(TypedDict, total=False):
    """The keywords of `Index.search`; `Asked` says what each is when it is left out."""

    top: int
    exact: bool
    where: Where | None
    candidates: int | None
    find: str | None
    fold: bool


@dataclass(frozen=True)
class Asked:
    """One question to an index, and how to answer it."""

    words: str | None = None
    image: Picture | None = None
    like: int | None = None  # the id of a picture of the index, in place of `image`
    top: int = 10
    exact: bool = False  # score everything
    where: Where | None = None  # see item_filters.py
    candidates: int | None = None  # how many items the true similarity looks at
    find: str | None = None  # image or text; None: pictures for words, captions for a picture
    fold: bool = True  # near-duplicates among the hits become one

    def check(self) -> None:
        """One clear line for what cannot be."""
        if self.image is not None and self.like is not None:
            raise BadInput("a picture of the index or one of yours, not both")
        if self.words is None and self.image is None and self.like is None:
            raise BadInput("search for words, for a picture, or for both together")
        if not 1 <= self.top <= 10_000:
            raise BadInput(f"top={self.top}: from 1 to 10,000")
        if self.find is not None and self.find not in SIDES:
            raise BadInput(f"find={self.find!r}: image or text")
        if self.candidates is not None and self.candidates < 1:
            raise BadInput(f"candidates={self.candidates}: at least 1")

    @property
    def with_picture(self) -> bool:
        """Whether a picture is part of the question."""
        return self.image is not None or self.like is not None


@dataclass(frozen=True)
class Part:
    """One part of a question as the model reads it."""

    query: ItemSets
    given: str  # the side it is of
    weight: float = 1.0


@dataclass(frozen=True)
class Found:
    """Places of the items found, best first, their scores, and what is known beside."""

    places: np.ndarray
    scores: np.ndarray
    scored: int  # items that the true similarity looked at
    total: int  # items that passed the filter
    hits: Hits | None = None  # what chances are read from; None: there is nothing to compare with


def wanted_side(index: OpenIndex, asked: Asked) -> str:
    """What is found: pictures for words, and for a picture captions, where there are some and no words beside it."""
    captions = asked.words is None and asked.like is None and TEXT in index.searcher.sides
    wanted = asked.find or (TEXT if captions else IMAGE)
    if wanted not in index.searcher.sides:
        raise BadInput(f"{index.root}: holds pictures without captions; find=image (--find image) finds pictures")
    if wanted == TEXT and asked.words is not None and asked.with_picture:
        raise BadInput("a picture and words together find pictures, not captions")
    return wanted


def read_parts(index: OpenIndex, asked: Asked, question: Question | None) -> tuple[list[Part], list[str]]:
    """The parts of a question, the main one first, and the words that the model does not know."""
    parts, unknown = [], []
    if question is not None:
        for text, weight in ((question.words, 1.0), *((one, MORE) for one in question.more)):
            query, strange = index.encoder.words(text)
            parts.append(Part(query, TEXT, weight))
            unknown += strange
        parts += [Part(index.encoder.words(one)[0], TEXT, LESS) for one in question.less]
    if asked.image is not None:
        parts.append(Part(index.encoder.picture(asked.image), IMAGE))
    if asked.like is not None:
        place = index.catalogue.place(asked.like)
        parts.append(Part(index.searcher.sides[IMAGE].sets.take(np.array([place])), IMAGE))
    return parts, list(dict.fromkeys(unknown))


def may_be_found(index: OpenIndex, asked: Asked, question: Question | None, wanted: str) -> np.ndarray | None:
    """(N,) the pictures that filters and the question's signs leave; None: all of them."""
    known = index.catalogue
    keep = passing(known, asked.where)
    for phrase in question.said if question is not None else ():
        if TEXT not in index.searcher.sides:
            raise BadInput(f'"{phrase}": quotes look for what a caption says, and these pictures have no captions')
        keep = said(known, phrase) & (known.alive if keep is None else keep)
    for word in question.less if question is not None and len(known.rows) else ():
        keep = ~said(known, word, plural=True) & (known.alive if keep is None else keep)
    if asked.like is not None and wanted == IMAGE:
        keep = known.alive.copy() if keep is None else keep
        keep[known.place(asked.like)] = False
    return keep


def find(index: OpenIndex, asked: Asked, parts: list[Part], wanted: str, keep: np.ndarray | None) -> Found:
    """The best items for a question, some more than were asked for where near-duplicates are to be folded."""
    searcher, sample = index.searcher, index.chances.sample[wanted]
    passed = keep if keep is None or wanted == IMAGE else keep[index.catalogue.picture]
    total = searcher.sides[wanted].count() if passed is None else int(passed.sum())
    depth = SearchDepth(asked.top, asked.candidates, asked.exact)
    asking = [(part.query, part.given) for part in parts if part.weight > 0]
    places = searcher.places_to_score(asking, wanted, depth, passed)
    scores, first = np.zeros(len(places), dtype=np.float32), np.zeros(0)
    usual = {}
    for number, part in enumerate(parts):
        own = searcher.scored(part.query, part.given, wanted, places)
        first = own if number == 0 else first
        if len(parts) > 1 or wanted in index.chances.curves:
            usual[number] = searcher.scored(part.query, part.given, wanted, sample)
        if len(parts) > 1:
            above = standardised(own, usual[number])
            own = part.weight * (above if part.weight > 0 else np.maximum(above, 0))
        scores = scores + own
    best = np.argsort(-scores, kind="stable")[: asked.top + (SPARE if asked.fold else 0)]
    likely = wanted in index.chances.curves and parts[0].given != wanted and not (asked.words and asked.with_picture)
    hits = None
    if likely and len(best):
        agree = None
        if index.chances.curves[wanted].reads_captions:
            near = index.chances.sample[TEXT]
            agree = agreement(searcher, index.catalogue, parts[0].query, places[best], near)
        hits = Hits(heights(first[best], usual[0], total), len((asked.words or "").split()), agree)
    return Found(places[best], scores[best], len(places), total, hits)


def fold(index: OpenIndex, asked: Asked, found: Found, wanted: str) -> tuple[Found, list[tuple[int, ...]]]:
    """As many hits as were asked for, and the ids of the near-duplicates that each of them stands for."""
    groups = [[position] for position in range(len(found.places))]
    if asked.fold and wanted == IMAGE and index.folding is not None:
        groups = index.folding.groups(found.places)
    groups = groups[: asked.top]
    first = np.array([group[0] for group in groups], dtype=np.int64)
    hits = None if found.hits is None else found.hits.take(first)
    kept = Found(found.places[first], found.scores[first], found.scored, found.total, hits)
    copies = [found.places[group[1:]] for group in groups]  # of pictures alone: captions are never folded
    return kept, [tuple(int(index.catalogue.ids[one]) for one in own) for own in copies]


def as_hits(
    index: OpenIndex, places: np.ndarray, scores: np.ndarray, wanted: str, query: str | None = None
) -> list[Hit]:
    """Hits by place and score, each with the caption that says most of what was asked."""
    known = index.catalogue
    if wanted == IMAGE:
        words = set(query.lower().split()) if query else set()
        pictures, captions = places, np.array([_best_caption(index, int(one), words) for one in places], dtype=np.int64)
    else:
        pictures, captions = known.picture[places], places
    out = []
    for rank, (picture, caption, score) in enumerate(zip(pictures, captions, scores, strict=True), 1):
        text, row = (known.caption(caption), int(known.rows[caption])) if caption >= 0 else ("", -1)
        out.append(Hit(rank, float(score), int(known.ids[picture]), known.name(picture), text, row))
    return out


def _best_caption(index: OpenIndex, picture: int, words: set[str]) -> int:
    """The caption of a picture that shares most words with the question, else the first; -1 for none."""
    own: list[int] = index.catalogue.captions_of(picture).tolist()
    if len(own) < 2 or not words:
        return own[0] if own else -1
    theirs = [set(index.catalogue.caption(k).lower().split()) for k in own]
    return own[int(np.argmax([len(words & one) / max(1, len(words | one)) for one in theirs]))]
