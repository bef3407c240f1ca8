"""How likely each hit of a search is right, and when nothing fits: fitted when the index is built.

The captions of an index are questions whose answers are known (`measuring/chance.py`), pictures are such questions for
captions. Captions that the model learnt from would flatter it: others are asked where there are enough of them. Without
any, what training measured on its validation pictures is used, and without that the chances are those of captions the
model knows, or none. `chance.json` keeps the curves, where they come from, and the items of the fixed sample that
scores are compared with: the same sample while the index grows, so that the same hit keeps its chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput, say
from matchlight.files import Json
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.item_sets import ItemSets, joined
from matchlight.indexing.query_reader import QueryReader
from matchlight.indexing.searcher import Searcher, other
from matchlight.indexing.tuning import score_all_for
from matchlight.measuring.chance import (
    FEWEST,
    Chance,
    Hits,
    Known,
    best_places,
    fit,
    heights,
    known_question,
    standardised,
)
from matchlight.measuring.chance import FILE as FILE
from matchlight.measuring.same_meaning import SameMeaning
from matchlight.pairs import IMAGE, TEXT

SAMPLE = 128  # items that a question's scores are compared with
QUESTIONS, PAIRS = 400, 2_000_000  # captions asked, and pairs scored for it
FROM = {  # what chances were measured with
    "index": "captions of the index",
    "run": "the run's validation pictures",
    "learnt captions": "captions that the model learnt from",
}


@dataclass(frozen=True)
class Chances:
    """What an index knows of chances, by the side that is found."""

    sample: dict[str, np.ndarray]  # places of the items that scores are compared with
    curves: dict[str, Chance]
    source: str | None = None  # a key of FROM

    def save(self, path: Path, numbers: dict[str, np.ndarray]) -> None:
        """As JSON; items go by their numbers, which never change."""
        curves = {side: curve.plain() for side, curve in self.curves.items()}
        sample = {side: numbers[side][places].tolist() for side, places in self.sample.items()}
        files.write_json(path, {"sample": sample, "curves": curves, "source": self.source})

    @staticmethod
    def load(path: Path, searcher: Searcher) -> Chances:
        """Of a version; one of an earlier Matchlight has a sample and no curves."""
        kept: dict[str, dict[str, Json]] = {}
        if path.is_file():
            kept = files.read_json(path, "an index's chances")
        sample = {}
        for name, side in searcher.sides.items():
            numbers = kept.get("sample", {}).get(name)
            known = side.places(np.asarray(numbers, dtype=np.int64)) if isinstance(numbers, list) else None
            sample[name] = _spread(side.remaining()) if known is None or not len(known) else known
        curves = {side: Chance.from_plain(plain) for side, plain in kept.get("curves", {}).items()}  # type: ignore[arg-type]
        source = str(kept["source"]) if curves else None
        return Chances(sample, curves, source)

    def described(self) -> dict[str, Json]:
        """What `describe` says of it."""
        return {"source": self.source, **{side: curve.plain()["measured"] for side, curve in self.curves.items()}}


def _spread(places: np.ndarray) -> np.ndarray:
    """A few items, evenly spread."""
    return places[np.unique(np.linspace(0, len(places) - 1, min(SAMPLE, len(places))).astype(np.int64))]


def measured_chances(searcher: Searcher, catalogue: Catalogue, run: Path, reader: QueryReader) -> Chances:
    """The curves of an index that is being built, for pictures as hits and for captions as hits."""
    sample = {name: _spread(side.remaining()) for name, side in searcher.sides.items()}
    if TEXT not in searcher.sides:
        return _of_run(sample, run)
    curves = _fitted(searcher, catalogue, sample, reader, unseen=True)
    if not curves and (kept := _of_run(sample, run)).curves:
        return kept
    if curves or not catalogue.seen.any():
        return Chances(sample, curves, "index" if curves else None)
    curves = _fitted(searcher, catalogue, sample, reader, unseen=False)
    return Chances(sample, curves, "learnt captions" if curves else None)


def _of_run(sample: dict[str, np.ndarray], run: Path) -> Chances:
    """What training measured on its validation pictures."""
    try:
        kept: dict[str, dict[str, Json]] = files.read_json(run / FILE, "a run's chances")
        curves = {side: Chance.from_plain(plain) for side, plain in kept.items() if side in sample}
    except (BadInput, TypeError, ValueError, KeyError, AttributeError):  # a run of old, or imported
        return Chances(sample, {})
    return Chances(sample, curves, "run" if curves else None)


@dataclass(frozen=True)
class Questions:
    """Questions of one side whose right answers are known."""

    queries: list[ItemSets]  # one each
    right: np.ndarray  # (Q, n) of the items of the other side that are there
    words: list[int]  # how many each has
    rows: list[int]  # the place of the caption that each is; -1 where it is none


def _fitted(
    searcher: Searcher, catalogue: Catalogue, sample: dict[str, np.ndarray], reader: QueryReader, *, unseen: bool
) -> dict[str, Chance]:
    """Curves from captions (those that the model did not learn from alone, if `unseen`) and their pictures."""
    rows = catalogue.alive[catalogue.picture] & ~(catalogue.seen & unseen)
    if rows.sum() < FEWEST:
        return {}
    meaning = SameMeaning([catalogue.caption(place) for place in range(len(catalogue.rows))], catalogue.picture)
    curves: dict[str, Chance] = {}
    for given, places in ((TEXT, np.flatnonzero(rows)), (IMAGE, np.unique(catalogue.picture[rows]))):
        there = searcher.sides[other(given)].remaining()
        count = min(len(places), QUESTIONS, max(FEWEST, PAIRS // max(1, len(there))))
        some = np.sort(np.random.default_rng(1).choice(places, count, replace=False))
        asked = (
            _captions(searcher, meaning, some, there, reader)
            if given == TEXT
            else _pictures(searcher, meaning, some, there)
        )
        # of one caption a picture the own one is the question itself: it says nothing of the captions of others
        captions = catalogue if given == TEXT and meaning.border <= 1 else None
        found = fit(_answered(searcher, given, asked, sample, captions))
        curves |= {other(given): found} if found is not None else {}
    return curves


def _captions(
    searcher: Searcher, meaning: SameMeaning, some: np.ndarray, there: np.ndarray, reader: QueryReader
) -> Questions:
    """One half whole captions, one half a word or two of a caption, where the model reads words."""
    short = meaning.short_questions(some[1::2], np.random.default_rng(2))
    try:
        read = [reader.words(words)[0] for words, _ in short]
    except BadInput:  # a model of ready-made vectors
        short, read = [], []
    whole = some[::2] if short else some
    own = [searcher.sides[TEXT].sets.take(np.array([row])) for row in whole]
    right = [meaning.for_words(whole, there), *(np.isin(there, pictures)[None] for _, pictures in short)]
    lengths = [meaning.length(row) for row in whole] + [len(words.split()) for words, _ in short]
    return Questions([*own, *read], np.concatenate(right), lengths, [*whole.tolist(), *([-1] * len(short))])


def _pictures(searcher: Searcher, meaning: SameMeaning, some: np.ndarray, there: np.ndarray) -> Questions:
    own = [searcher.sides[IMAGE].sets.take(np.array([place])) for place in some]
    return Questions(own, meaning.for_pictures(some, there), [0] * len(own), [-1] * len(own))


def _answered(
    searcher: Searcher, given: str, asked: Questions, sample: dict[str, np.ndarray], captions: Catalogue | None
) -> list[Known]:
    """The questions with their hits, in an order that mixes short and long ones; `captions` are compared if given."""
    wanted = other(given)
    there = searcher.sides[wanted].remaining()
    scores = score_all_for(searcher, given, joined(asked.queries), there)
    known, beside = [], np.isin(there, sample[wanted])
    for number in np.random.default_rng(3).permutation(len(scores)).tolist():
        own, right = scores[number], asked.right[number]
        best = best_places(own, right)
        agree = None
        if captions is not None:
            query, itself = asked.queries[number], asked.rows[number]
            agree = agreement(searcher, captions, query, there[best], sample[TEXT], but=itself)
        hits = Hits(heights(own[best], own[beside & ~right], len(there)), asked.words[number], agree)
        known.append(known_question(hits, right[best]))
    return known


def agreement(
    searcher: Searcher,
    catalogue: Catalogue,
    query: ItemSets,
    pictures: np.ndarray,
    sample: np.ndarray,
    *,
    but: int = -1,
) -> np.ndarray:
    """(k,) how well the nearest caption of each picture agrees with words, in standard deviations; 0 for none."""
    own = [catalogue.captions_of(int(picture)) for picture in pictures]
    own = [captions[captions != but] for captions in own]
    places = np.concatenate([*own, sample]).astype(np.int64)
    scores = searcher.scored(query, TEXT, TEXT, places)
    above = standardised(scores[: len(scores) - len(sample)], scores[len(scores) - len(sample) :])
    ends = np.cumsum([len(captions) for captions in own])
    parts = np.split(above, ends[:-1]) if len(own) else []
    return np.array([part.max(initial=-np.inf) if len(part) else 0.0 for part in parts])


def report(chances: Chances) -> None:
    """One line about what was measured."""
    curve = chances.curves.get(IMAGE)
    if curve is None:
        say("how likely a hit is right is not known: it takes captions in the index, or a run with validation pictures")
        return
    found = curve.measured
    told = f"{found.recall:.0%} of questions whose picture is not there are told so"
    where = FROM[chances.source or "index"]
    say(f"chances from {where}: off by {found.error:.1%} on average; {told}")
