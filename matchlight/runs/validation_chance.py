"""How likely a hit of a finished run is right, measured on its validation pictures and kept beside it.

An index of pictures without captions has nothing to measure chances with (`measuring/chance.py`); it takes these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from matchlight import files
from matchlight.core import IMAGE, TEXT, Embeddings, Matcher
from matchlight.inputs.batches import Table
from matchlight.measuring.chance import FEWEST, FILE, Chance, Hits, best_places, fit, heights, known_question
from matchlight.measuring.same_meaning import SameMeaning
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.encode import encode

QUESTIONS, PICTURES = 400, 2000  # validation captions asked, and pictures they are asked among
SAMPLE = 128  # items that scores are compared with, as many as an index takes


Reader = Callable[[list[str]], Embeddings]  # questions in words as the model reads them


def keep_chances(folder: Path, matcher: Matcher, table: Table, reader: Reader, *, seed: int) -> None:
    """Write `chance.json` of a run, where its validation split is large enough to say something."""
    curves = validation_chances(matcher, table, reader, seed=seed)
    if curves:
        files.write_json(folder / FILE, {side: curve.plain() for side, curve in curves.items()})


def validation_chances(matcher: Matcher, table: Table, reader: Reader, *, seed: int) -> dict[str, Chance]:
    """Curves by the side that is found: pictures for captions and for a word or two of them, captions for pictures."""
    pairs = table.pairs
    if "val" not in pairs.split_names or len(pairs.rows("val")) < FEWEST:
        return {}
    draw = np.random.default_rng(seed)
    pictures = pairs.pictures_of("val")
    pictures = np.sort(draw.permutation(pictures[~np.isin(pictures, table.broken)])[:PICTURES])
    rows = pairs.rows("val")
    rows = np.sort(draw.permutation(rows[np.isin(pairs.picture[rows], pictures)])[: 5 * PICTURES])
    asked = np.sort(draw.permutation(len(rows))[:QUESTIONS])
    some = np.sort(draw.permutation(len(pictures))[:QUESTIONS])
    said = SameMeaning([pairs.captions[row] for row in rows], pairs.picture[rows])
    short = said.short_questions(asked[1::2], draw)
    images, texts = encode(matcher, table, IMAGE, pictures), encode(matcher, table, TEXT, rows)
    whole = asked[::2] if short else asked
    queries = [texts.take(torch.from_numpy(whole)), *([reader([words for words, _ in short])] if short else [])]
    right = [said.for_words(whole, pictures), *(np.isin(pictures, own)[None] for _, own in short)]
    lengths = [said.length(row) for row in whole] + [len(words.split()) for words, _ in short]
    device = next(matcher.parameters()).device
    for_words = np.concatenate([score_all(matcher, images, part, device=device).T for part in queries])
    for_pictures = score_all(matcher, images.take(torch.from_numpy(some)), texts, device=device)
    of_captions = said.for_pictures(pictures[some], np.arange(len(rows)))
    curves = {
        IMAGE: _curve(for_words, np.concatenate(right), lengths, draw),
        TEXT: _curve(for_pictures, of_captions, [0] * len(some), draw),
    }
    return {side: curve for side, curve in curves.items() if curve is not None}


def _curve(scores: np.ndarray, right: np.ndarray, words: list[int], draw: np.random.Generator) -> Chance | None:
    """One curve; the items that scores are compared with are drawn once, as an index does."""
    sample = np.zeros(scores.shape[1], dtype=bool)
    sample[draw.permutation(scores.shape[1])[:SAMPLE]] = True
    questions = []
    for number in draw.permutation(len(scores)).tolist():
        own, is_right = scores[number], right[number]
        best = best_places(own, is_right)
        hits = Hits(heights(own[best], own[sample & ~is_right], len(own)), words[number])
        questions.append(known_question(hits, is_right[best]))
    return fit(questions)
