"""Chances of hits: fitted on questions whose answers are known, measured on others."""

from __future__ import annotations

import json

import numpy as np
import pytest

from matchlight.measuring.chance import Chance, Hits, best_places, calibration_error, fit, heights, known_question
from matchlight.measuring.same_meaning import SameMeaning


def questions(count: int, *, lift: float, items: int = 200, seed: int = 0) -> list:
    """Scores of normal numbers, of which one, the right item's, is lifted."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        scores, right = rng.normal(size=items), np.zeros(items, bool)
        right[rng.integers(items)] = True
        scores[right] += lift
        best = best_places(scores, right)
        hits = Hits(heights(scores[best], scores[:64], items), 8)
        made.append(known_question(hits, right[best]))
    return made


def test_chances_of_new_questions_are_the_shares_that_are_right():
    curve = fit(questions(600, lift=4.0))
    assert curve is not None and curve.measured.error < 0.02
    new = questions(600, lift=4.0, seed=1)
    chance = np.concatenate([curve.of(known.there) for known in new])
    assert calibration_error(chance, np.concatenate([known.right for known in new])) < 0.05
    likely = chance > 0.7
    assert likely.any() and np.concatenate([known.right for known in new])[likely].mean() > 0.7


@pytest.mark.parametrize(("lift", "recall"), [(6.0, (0.95, 1.0)), (0.0, (0.0, 0.2))])
def test_nothing_fits_is_found_as_far_as_the_model_tells_right_from_wrong(lift, recall):
    curve = fit(questions(400, lift=lift))
    assert curve is not None and recall[0] <= curve.measured.recall <= recall[1]
    assert curve.measured.false_alarms < 0.2
    told = [curve.nothing_fits(known.gone) for known in questions(200, lift=lift, seed=2)]
    assert recall[0] - 0.05 <= np.mean(told) <= recall[1] + 0.05


def test_too_few_questions_teach_nothing():
    assert fit(questions(39, lift=4.0)) is None


def test_the_best_hits_and_the_best_wrong_ones_are_looked_at():
    scores = np.arange(30.0)[::-1]  # the first is the best
    right = np.zeros(30, bool)
    right[:5] = True
    assert best_places(scores, right).tolist() == list(range(15))  # ten in all, and ten wrong ones


def test_a_hit_is_described_by_height_lead_length_and_agreement():
    hits = Hits(np.array([2.0, 0.5]), 3, np.array([1.0, -1.0]))
    expected = [[2.0, 1.5, np.log(4), 1.0], [0.5, -1.5, np.log(4), -1.0]]
    assert np.allclose(hits.described(), expected)


def test_a_curve_is_the_same_from_its_file_and_a_damaged_one_is_refused():
    curve = fit(questions(100, lift=4.0))
    assert curve is not None and Chance.from_plain(json.loads(json.dumps(curve.plain()))) == curve
    for wrong in ({}, {**curve.plain(), "weights": [1.0]}, {**curve.plain(), "cut": "x"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Chance.from_plain(wrong)


CAPTIONS = [text for k in range(20) for text in (f"thing{k} beside a wooden house", f"an old barn with thing{k}")]


def test_pictures_whose_captions_say_the_same_are_right_too():
    captions = [*CAPTIONS, "thing3 beside a wooden barn", "an empty street"]
    meaning = SameMeaning(captions, np.array([*np.repeat(np.arange(20), 2), 20, 21]))
    right = meaning.for_words(np.array([6]), np.arange(22))[0]
    assert np.flatnonzero(right).tolist() == [3, 20]
    assert np.flatnonzero(meaning.for_pictures(np.array([3]), np.arange(42))[0]).tolist() == [6, 7, 40]


def test_short_questions_are_answered_by_every_picture_whose_captions_hold_the_words():
    captions = ["a red ball", "a red house", "the blue ball", "red ball", "big ball", *["a tree"] * 8]
    meaning = SameMeaning(captions, np.arange(13))
    made = dict(meaning.short_questions(np.array([0, 3]), np.random.default_rng(0)))
    for words, pictures in made.items():
        assert pictures.tolist() == [k for k, text in enumerate(captions) if set(words.split()) <= set(text.split())]
    assert made
