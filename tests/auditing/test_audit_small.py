"""An audit of few pairs, of captions that say nothing, or in two languages: it claims no more than can be told."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from audited import made_up, named
from tiny import tiny_pairs

import matchlight as ml
from matchlight.auditing.odd_captions import nothing_but_numbers, other_language, same_for_many, set_aside
from matchlight.auditing.reasons import conclude
from matchlight.auditing.report import in_a_sentence
from matchlight.auditing.verdict import combine
from matchlight.data.findings import EMPTY, OTHER_LANGUAGE, SAME_CAPTION, VAGUE

ENGLISH = ["a dog runs on the grass", "two men ride a horse", "a child in the snow", "the man with a red ball runs"]
GERMAN = ["ein hund rennt über die wiese", "zwei männer reiten ein pferd", "das kind spielt mit dem hund im schnee"]


def weakly_told(
    pictures: int, *, noise: float, apart: float, seed: int = 0
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Signals of one caption a picture, by models that hardly tell right from wrong and neighbours that do not."""
    found, bad = made_up(pictures, 1, noise=noise, apart=apart, seed=seed)
    rng = np.random.default_rng(seed)
    near = [name for name in found if ("text" in name or "photo" in name) and not name.endswith("_rows")]
    found |= {name: rng.normal(size=found[name].shape).astype(np.float16) for name in near}
    return {name: value for name, value in found.items() if name != "history"}, bad


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(("pictures", "apart"), [(20, 0.35), (50, 0.15), (100, 0.15), (240, 0.15)])
def test_there_are_no_more_false_alarms_than_expected_on_small_sets(pictures, apart, noise):
    expected, real = 0.0, 0
    for seed in range(2):
        found, bad = weakly_told(pictures, noise=noise, apart=apart, seed=seed)
        verdict = combine(found)
        expected += verdict.score[verdict.suspect].sum()
        real += (verdict.suspect & ~bad).sum()
    assert real <= expected + 2 * expected**0.5 + 1


def test_the_false_alarms_among_240_pairs_that_models_tell_a_little_are_as_many_as_expected():
    found, bad = made_up(240, 1, noise=0.3, apart=0.7)
    verdict = combine({name: value for name, value in found.items() if name != "history"})
    expected = verdict.score[verdict.suspect].sum()
    assert verdict.suspect.any() and (verdict.suspect & ~bad).sum() <= expected + 2 * expected**0.5


def test_ten_right_pairs_are_too_few_to_call_one_wrong():
    verdict = combine(weakly_told(10, noise=0.0, apart=0.35)[0])
    assert not verdict.suspect.any() and "10 pairs to judge are too few" in verdict.unsure
    assert verdict.interval == (0.0, 1.0) and verdict.notes[0] == verdict.unsure


def test_where_all_captions_moved_with_their_picture_it_cannot_be_told_and_the_estimate_is_high():
    verdict = combine(made_up(100, 5, noise=1.0, together=True)[0])
    assert not verdict.suspect.any() and "nearly all may be wrong" in verdict.unsure
    assert verdict.noise > 0.7


def test_many_pairs_that_models_separate_are_still_told():
    found, bad = made_up(100, 3, noise=0.3)
    verdict = combine(found)
    assert verdict.unsure == "" and verdict.suspect[bad].mean() > 0.4


# ---- captions that cannot be judged ----------------------------------------------------------------------------------


def test_a_caption_that_many_pictures_have_is_its_own_reason_and_never_called_wrong():
    pairs = named(60, 1)
    pairs = replace(pairs, captions=["A  photo", "a photo"] * 10 + pairs.captions[20:])
    found, _ = made_up(60, 1, noise=0.5)
    aside = set_aside(pairs, found)
    assert (aside[:20] == SAME_CAPTION).all() and (aside[20:] == "").all()
    out = conclude(pairs, found, combine(found, aside=aside != ""), aside)
    assert not out.suspect[:20].any() and (out.reason[:20] == SAME_CAPTION).all()


def test_a_caption_that_a_few_pictures_share_is_judged_as_any_other():
    captions = ["a dog"] * 3 + [f"a dog and {k} cats" for k in range(57)]
    assert not same_for_many(captions, np.arange(60)).any()
    assert not same_for_many(["a dog"] * 60, np.zeros(60)).any()  # of one picture


def test_captions_of_a_second_language_are_told_as_such():
    captions = ENGLISH * 20 + GERMAN * 10 + ["一只狗在草地上奔跑", "Sunset."]
    assert other_language(captions).tolist() == [False] * 80 + [True] * 31 + [False]
    assert not other_language(ENGLISH * 20).any()


def test_captions_of_a_second_language_are_never_called_wrong_and_teach_nothing():
    found, bad = made_up(120, 1, noise=0.2)
    pairs = replace(named(120, 1), captions=ENGLISH * 20 + [f"{GERMAN[k % 3]} {k}" for k in range(40)])
    aside = set_aside(pairs, found)
    foreign = aside == OTHER_LANGUAGE
    assert foreign[80:].all() and not foreign[:80].any()
    assert not combine(found, aside=foreign).suspect[foreign].any()


def test_a_caption_that_tells_far_less_than_the_usual_one_is_vague_and_never_called_wrong():
    found, _ = made_up(120, 1, noise=0.5)
    found["plain_tells"] = np.where(np.arange(120) < 30, 1.0, np.linspace(1.7, 3, 120))
    aside = set_aside(named(120, 1), found)
    assert (aside[:30] == VAGUE).all() and (aside[30:] == "").all()
    out = conclude(named(120, 1), found, combine(found, aside=aside != ""), aside)
    assert not out.suspect[:30].any() and (out.reason[:30] == VAGUE).all()


def test_a_phrase_that_many_pictures_have_is_vague_and_a_sentence_of_another_language_is_not():
    phrases = [f"Uploaded by nobody: image number {k}" for k in range(20)]
    foreign = [f"{GERMAN[k % 3]} zwei {chr(97 + k) * 3}" for k in range(20)]
    pairs = replace(named(120, 1), captions=[f"{ENGLISH[k % 4]} one{k}" for k in range(80)] + phrases + foreign)
    found, _ = made_up(120, 1, noise=0.2)
    found["plain_tells"] = np.where(np.arange(120) < 80, 3.0, 1.0)
    aside = set_aside(pairs, found)
    assert (aside[:80] == "").all() and (aside[80:100] == VAGUE).all() and (aside[100:] == OTHER_LANGUAGE).all()


def test_an_empty_caption_is_its_own_reason():
    pairs = named(60, 1)
    pairs.captions[7] = " . "
    found, _ = made_up(59, 1, noise=0.2)
    found["rows"], found["lost"] = np.delete(np.arange(60), 7), np.array([7])
    found["group"], found["picture"] = np.arange(60), found["rows"]
    out = conclude(pairs, found, combine(found))
    assert out.reason[7] == EMPTY and out.suspect[7]


# ---- the whole audit -------------------------------------------------------------------------------------------------


def test_an_audit_of_file_names_says_that_they_are_file_names_and_flags_none(tmp_path):
    pairs = replace(tiny_pairs(60, 1, held=0), labels=None)
    pairs = replace(pairs, captions=[f"IMG_{4000 + 7 * k}.JPG" for k in range(55)] + pairs.captions[55:])
    found = ml.audit(None, pairs, tmp_path, quick=False, captions="words")
    assert found.summary["flagged"] == 0 and not found.summary["can_tell"]
    assert found.summary["reasons"][VAGUE] == 55
    assert "55 of 60 captions are the same as others but for numbers ('IMG_4000.JPG')" in in_a_sentence(found.summary)


def test_captions_that_differ_in_more_than_numbers_are_not_taken_for_file_names():
    found, aside = {"rows": np.arange(60)}, np.full(60, "", dtype=object)
    differing = replace(named(60, 1), captions=[f"{chr(97 + k % 26) * (1 + k // 26)} with 2 dogs" for k in range(60)])
    assert nothing_but_numbers(differing, found, aside) == [] and (aside == "").all()
    few = replace(differing, captions=["photo 1", "photo 2"] * 10 + differing.captions[20:])
    assert nothing_but_numbers(few, found, aside) == [] and (aside == "").all()


def test_an_audit_of_identical_captions_says_that_it_cannot_tell_and_flags_nothing(tmp_path):
    pairs = replace(tiny_pairs(20, 1, held=0), labels=None)
    pairs = replace(pairs, captions=["a photo"] * len(pairs))
    found = ml.audit(None, pairs, tmp_path / "audit", quick=False, captions="words")
    written = json.loads((tmp_path / "audit" / "summary.json").read_text())
    assert written["flagged"] == 0 and written["can_tell"] is False
    assert written["reasons"] == {SAME_CAPTION: 20}
    assert "too few to tell" in in_a_sentence(found.summary) and "expected" not in in_a_sentence(found.summary)
    assert "cannot be told" in (tmp_path / "audit" / "report.html").read_text()
