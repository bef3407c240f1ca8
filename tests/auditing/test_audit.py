"""The audit's judgement: folds, manufactured pairs, the mixture and the verdict."""

from __future__ import annotations

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from audited import NAMES, made_up, named
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from tiny import Arrays, tiny_pairs

from matchlight.auditing import mixture, neighbours
from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.folds import divide, near_duplicate_groups
from matchlight.auditing.gallery import _loss, _rank_and_z, gallery_of
from matchlight.auditing.options import Options
from matchlight.auditing.run_signals import early_loss, loss_evidence, run_losses, trained_here
from matchlight.auditing.signals import fold_count
from matchlight.auditing.verdict import Verdict, combine, trusted_max, trusted_mean
from matchlight.core import IMAGE, BadInput
from matchlight.pairs import Pairs
from matchlight.training.pair_losses import Mismatches, steps_to_another

# ---- folds -----------------------------------------------------------------------------------------------------------


def folds_of(pairs: Pairs, **named: int):
    return divide(pairs, pairs.rows("train"), near_duplicate_groups(pairs), **named)


@settings(deadline=None, max_examples=20)
@given(pictures=st.integers(12, 60), captions=st.integers(1, 4), count=st.integers(2, 5), seed=st.integers(0, 99))
def test_folds_never_split_a_picture_and_all_have_rows(pictures, captions, count, seed):
    folds = folds_of(named(pictures, captions), count=count, seed=seed)
    owner = np.repeat(np.arange(pictures), captions)
    assert all(len(np.unique(folds.fold[owner == p])) == 1 for p in range(pictures))
    assert set(folds.fold) == set(range(count))


def test_a_picture_that_is_there_twice_never_sits_in_two_folds():
    once = tiny_pairs(40, 2, held=0)
    twice = np.concatenate([once.features.array, once.features.array[:15]])
    pairs = Pairs(
        names=[f"p{i}" for i in range(55)],
        captions=[*once.captions, *once.captions[:30]],
        picture=np.repeat(np.arange(55), 2),
        splits=np.full(55, "train"),
        features=Arrays(twice),
    )
    folds = folds_of(pairs)
    fold = {p: folds.fold[pairs.picture == p][0] for p in range(55)}
    assert all(fold[p] == fold[40 + p] for p in range(15))
    for row, source in zip(folds.rows, folds.wrong, strict=True):  # nor is a copy's caption a wrong caption
        assert folds.group[pairs.picture[row]] != folds.group[pairs.picture[source]]


@settings(deadline=None, max_examples=20)
@given(pictures=st.integers(20, 80), captions=st.integers(1, 5), seed=st.integers(0, 99))
def test_wrong_captions_come_from_other_pictures_of_the_same_fold_and_decoys_exchange_theirs(pictures, captions, seed):
    pairs = named(pictures, captions)
    folds = folds_of(pairs, seed=seed)
    place = np.searchsorted(folds.rows, folds.wrong)
    assert (pairs.picture[folds.rows] != pairs.picture[folds.wrong]).all()
    assert (folds.fold == folds.fold[place]).all()
    decoys = np.flatnonzero(folds.decoy)
    assert sorted(place[decoys]) == decoys.tolist()
    assert len(decoys) <= 0.12 * len(folds.rows) + 5


def test_too_few_pictures_are_one_clear_line():
    with pytest.raises(BadInput, match="at least 10 pictures"):
        folds_of(named(6, 5))


# ---- what is asked ---------------------------------------------------------------------------------------------------


def test_the_loss_of_a_pair_on_a_hand_worked_case():
    own, scores = torch.tensor([0.10]), torch.tensor([[0.05, 0.10, 0.20]])
    rival = torch.tensor([[True, True, False]])
    loss, (rank, z) = _loss(own, scores, ~rival), _rank_and_z(own, scores, rival)
    weights = np.exp(np.array([2.0, 1.0, 2.0]))  # own .10, rivals .05 and .10, each / .05; the third may not play
    assert loss.item() == pytest.approx(-np.log(weights[0] / weights.sum()), abs=1e-5)
    assert rank.item() == pytest.approx(1 / 2)  # one of two rivals scores as well
    assert z.item() == pytest.approx((0.10 - 0.075) / 0.025, abs=1e-4)


def test_a_gallery_holds_a_picture_once_and_prefers_the_fold():
    picture = np.repeat(np.arange(6), 2)
    gallery = gallery_of(picture, np.arange(6), np.arange(6, 12), size=5, seed=0)
    assert len(set(picture[gallery])) == 5
    assert set(picture[gallery[:3]]) == {0, 1, 2}


# ---- company ---------------------------------------------------------------------------------------------------------


def four_corners() -> tuple[neighbours.Space, neighbours.AuditedRows]:
    """Four pictures with two captions each, everything along its own axis; picture 1 shows nearly what 0 shows."""
    axes = torch.eye(4)
    axes[1] = torch.tensor([0.8, 0.6, 0.0, 0.0])
    scene = neighbours.AuditedRows(np.repeat(np.arange(4), 2), np.arange(4), (np.arange(8) + 4) % 8)
    return neighbours.Space(axes, axes.repeat_interleave(2, 0)), scene


def test_neighbours_never_are_rows_of_the_pair_s_own_picture():
    space, scene = four_corners()
    lists = neighbours.neighbour_signals(space, scene, np.arange(8))
    for kind in ("text", "photo"):
        rows = lists[f"{kind}_rows"]
        assert (scene.picture[rows][rows >= 0] != np.repeat(scene.picture, (rows >= 0).sum(1))).all()


def test_likeness_to_a_neighbour_is_counted_beyond_what_is_usual():
    space, scene = four_corners()
    lists = neighbours.neighbour_signals(space, scene, np.arange(8))
    mean = space.images.mean(0)
    first = lists["text"][0][lists["text_rows"][0] == 2][0]  # the neighbour of picture 1, at a cosine of .8
    assert first == pytest.approx(0.8 - float(space.images[0] @ mean), abs=1e-3)


def test_siblings_are_the_other_captions_of_the_picture():
    space, scene = four_corners()
    rows, values = neighbours.siblings(space.texts, scene, np.arange(8), np.arange(8))
    assert rows[:, 0].tolist() == [1, 0, 3, 2, 5, 4, 7, 6] and (rows[:, 1:] == -1).all()
    assert np.allclose(values[:, 0].astype(float), 1, atol=1e-3)


def test_everything_of_a_querys_group_is_found_whatever_the_order_of_groups():
    rng = np.random.default_rng(0)
    mine, theirs = rng.integers(0, 6, 20), rng.integers(1, 9, 30)
    query, place = neighbours.of_own_group(mine, theirs, np.argsort(theirs, kind="stable"))
    found = np.zeros((20, 30), bool)
    found[query, place] = True
    np.testing.assert_array_equal(found, mine[:, None] == theirs[None])


def test_fewer_rows_than_neighbours_leave_gaps():
    places = neighbours.nearest(torch.eye(3), torch.eye(3), (np.arange(3), np.arange(3)), 3)
    assert (places[:, 2] == -1).all() and (places[:, :2] >= 0).all()


def test_better_partners_leave_out_the_pair_s_own():
    space, scene = four_corners()
    found = better_partners(space.images, space.texts, scene, np.arange(8))
    assert found["other_picture"][0][0] == 1 and found["other_picture"][2][0] == 0
    assert (scene.picture[found["other_caption"][:, 0]] != scene.picture).all()
    own, rivals = 1 / 0.05, [0.8 / 0.05, 0.0, 0.0]
    assert found["own_share"][0] == pytest.approx(1 / sum(np.exp(r - own) for r in [own, *rivals]), abs=1e-5)


def test_the_word_of_a_distrusted_row_counts_little():
    found = {"x": np.array([[1.0, 0.0, np.nan]]), "x_rows": np.array([[0, 1, -1]])}
    assert trusted_mean(found, "x", np.array([1.0, 1.0]))[0] == pytest.approx(0.5)
    assert trusted_mean(found, "x", np.array([1.0, 0.0]))[0] > 0.99
    assert trusted_max(found, "x", np.array([0.25, 1.0]))[0] == pytest.approx(0.25)


# ---- the mixture -----------------------------------------------------------------------------------------------------


def two_kinds(noise: float, *, apart: float = 4.0, n: int = 4000, seed: int = 0):
    rng = np.random.default_rng(seed)
    bad = rng.random(n) < noise
    real = rng.normal(size=(n, 2)) + np.where(bad, 0, apart)[:, None]
    return real, rng.normal(size=(n, 2)), bad


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2, 0.4, 0.6, 0.8])
def test_the_share_of_wrong_pairs_is_found(noise):
    real, made, bad = two_kinds(noise)
    found = mixture.fit(real, made)
    assert found.noise == pytest.approx(bad.mean(), abs=0.03)


def test_where_every_caption_was_shuffled_nearly_all_are_found_wrong():
    rng = np.random.default_rng(0)
    assert mixture.fit(rng.normal(size=(4000, 3)), rng.normal(size=(4000, 3))).noise > 0.9


def test_probabilities_of_being_wrong_are_about_right():
    real, made, bad = two_kinds(0.3, apart=1.5, n=20000)
    wrong = mixture.fit(real, made).wrong(real)
    for low in (0.1, 0.3, 0.5, 0.7, 0.9):
        some = (wrong > low - 0.1) & (wrong <= low + 0.1)
        assert bad[some].mean() == pytest.approx(wrong[some].mean(), abs=0.1)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 50), noise=st.floats(0, 0.7))
def test_more_evidence_in_any_column_never_makes_a_pair_more_suspicious(seed, noise):
    real, made, _ = two_kinds(noise, n=300, seed=seed)
    found = mixture.fit(real, made)
    assert (found.weight >= 0).all()
    assert (found.wrong(real + np.array([0.5, 0.0])) <= found.wrong(real) + 1e-12).all()


def test_the_order_of_the_pairs_changes_nothing():
    real, made, _ = two_kinds(0.3, n=800)
    order = np.random.default_rng(1).permutation(len(real))
    straight, turned = mixture.fit(real, made), mixture.fit(real[order], made[order])
    assert np.allclose(straight.wrong(real)[order], turned.wrong(real[order]), atol=1e-3)


def test_flagged_pairs_keep_the_expected_false_alarms_low():
    wrong = np.array([0.99, 0.97, 0.9, 0.6, 0.55, 0.2])
    # cumulative means of 1 - wrong: .01 .02 .047 .135 ...: three keep below the limit
    assert mixture.flagged(wrong).tolist() == [True, True, True, False, False, False]
    assert not mixture.flagged(np.full(5, 0.4)).any()


# ---- the verdict -----------------------------------------------------------------------------------------------------


@cache
def judged(**given: float) -> tuple[Verdict, np.ndarray]:
    """The verdict about made-up pairs, and which of them are wrong; several tests look at the same."""
    found, bad = made_up(**given)
    return combine(found), bad


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.6])
def test_wrong_pairs_are_found_and_their_share_is_told(noise):
    verdict, bad = judged(noise=noise)
    assert roc_auc_score(bad, -verdict.score) > 0.99
    assert verdict.noise == pytest.approx(bad.mean(), abs=0.06)
    assert verdict.interval[0] - 0.05 <= bad.mean() <= verdict.interval[1] + 0.05
    assert bad[verdict.suspect].mean() > 0.92 and verdict.suspect[bad].mean() > 0.8


def test_a_clean_set_is_left_alone():
    found, _ = made_up(noise=0.0)
    verdict = combine(found)
    assert verdict.noise < 0.03 and verdict.suspect.mean() < 0.02


def test_siblings_help_and_can_be_left_out():
    found, bad = made_up(noise=0.4, apart=0.3)
    helped, without = combine(found), combine(found, siblings=False)
    assert 1 - roc_auc_score(bad, -helped.score) < 0.7 * (1 - roc_auc_score(bad, -without.score))
    assert "sibling" in helped.used and "sibling" not in without.used


def test_captions_that_moved_together_are_found_though_they_agree_with_each_other():
    found, bad = made_up(noise=0.3, together=True, apart=4.0)
    verdict = combine(found)
    assert roc_auc_score(bad, -verdict.score) > 0.97
    assert verdict.noise == pytest.approx(bad.mean(), abs=0.06)
    assert any("moved together" in note for note in verdict.notes)


def test_one_caption_a_picture_needs_no_siblings():
    found, bad = made_up(1200, 1, noise=0.3)
    verdict = combine(found)
    assert roc_auc_score(bad, -verdict.score) > 0.98 and "sibling" not in verdict.used


def test_the_verdict_never_reads_the_truth_and_scores_stay_between_0_and_1():
    found, _ = made_up(noise=0.3)
    assert not any("truth" in name or "bad" in name for name in found)
    score = judged(noise=0.3)[0].score
    assert (score >= 0).all() and (score <= 1).all() and np.isfinite(score).all()


def test_a_run_s_history_alone_joins_the_neighbours():
    found, bad = made_up(noise=0.3)
    names = [name for name in found if not name.startswith(("own", "i2t", "t2i", "text", "photo", "sibling", "other"))]
    only = {name: found[name] for name in names}
    rng = np.random.default_rng(5)
    only["run_history"] = (np.where(bad, 5.0, 2.0) + rng.normal(size=(6, len(bad)))).astype(np.float16)
    del only["history"]
    without = {name: value for name, value in only.items() if name != "run_history"}
    assert roc_auc_score(bad, -combine(only).score) > roc_auc_score(bad, -combine(without).score)


def measured(bad: np.ndarray, *, apart: float = 5.0) -> dict[str, np.ndarray]:
    """What a run keeps that took the losses of its pairs and of wrong ones beside them."""
    rng = np.random.default_rng(5)
    real, wrong = (2 + apart * part + rng.normal(size=len(bad)) for part in (bad, 1.0))
    return {"run_measured": real, "run_measured_wrong": wrong, "run_trained_here": np.array(True)}


@pytest.mark.parametrize("siblings", [True, False])
def test_a_run_that_measured_wrong_pairs_too_takes_nothing_away_and_adds_what_it_knows(siblings):
    found, bad = made_up(noise=0.3, apart=1.0)
    run = measured(bad, apart=3.0)
    before = judged(noise=0.3, apart=1.0)[0] if siblings else combine(found, siblings=False)
    both, without = (
        roc_auc_score(bad, -verdict.score) for verdict in (combine(found | run, siblings=siblings), before)
    )
    assert both > max(without, roc_auc_score(bad, run["run_measured"])) - 1e-3
    assert siblings or both > without


def test_what_came_of_a_run_that_measured_is_heard_where_no_siblings_are():
    found, bad = made_up(noise=0.3, apart=1.0)
    run, rng = measured(bad, apart=2.0), np.random.default_rng(6)
    last = {f"run_{way}": 2 + 3.0 * bad + rng.normal(size=len(bad)) for way in ("i2t", "t2i")}
    both, without = (
        roc_auc_score(bad, -combine(one, siblings=False).score) for one in (found | run | last, found | run)
    )
    assert 1 - both < 0.8 * (1 - without)
    np.testing.assert_array_equal(combine(found | run | last).score, combine(found | run).score)


def test_pairs_that_a_run_did_not_measure_are_judged_as_without_it():
    found, bad = made_up(noise=0.3)
    run = measured(bad)
    run["run_measured"][::2] = np.nan
    assert np.isfinite(combine(found | run).score).all()
    run["run_measured"][:] = np.nan
    np.testing.assert_array_equal(combine(found | run).score, judged(noise=0.3)[0].score)


# ---- a run that was trained on some of the pairs ---------------------------------------------------------------------


def remembered(bad: np.ndarray, trained: np.ndarray | bool) -> dict[str, np.ndarray]:
    """Signals of a run that memorised its pairs: wrong ones look nearly right, manufactured ones hopeless."""
    rng = np.random.default_rng(7)
    found = {"run_trained_here": np.asarray(trained)}
    for end, level in (("", np.where(bad & trained, 4.0, 5.0)), ("_wrong", np.full(len(bad), -5.0))):
        values = {name: level + rng.normal(size=len(bad)) for name in NAMES}
        for way in ("i2t", "t2i"):
            values[way] = 8.0 - values[way]
            values[f"{way}_rank"] = 1 / (1 + np.exp(values[f"{way}_rank"]))
        found |= {f"run_{name}{end}": value for name, value in values.items()}
    return found


def test_one_answer_for_all_pairs_reads_like_one_for_each():
    found, bad = made_up(noise=0.3)
    for trained in (True, False):
        one, each = remembered(bad, trained), remembered(bad, np.full(len(bad), trained))
        verdict = combine(found | one)
        np.testing.assert_array_equal(verdict.score, combine(found | each).score)
        assert verdict.notes == []


def test_a_run_that_knows_all_pairs_but_one_is_no_stranger():
    found, bad = made_up(noise=0.3, apart=1.5)
    trained = np.ones(len(bad), dtype=bool)
    every, most = combine(found | remembered(bad, trained)), combine(found | remembered(bad, np.arange(len(bad)) > 0))
    assert most.noise == pytest.approx(every.noise, abs=0.01) and "run_z_i2t" not in most.used
    assert roc_auc_score(bad, -most.score) == pytest.approx(roc_auc_score(bad, -every.score), abs=0.01)
    assert most.notes == [f"the run was trained on {len(bad) - 1} of the {len(bad)} pairs and is used for these alone"]


def test_pairs_that_a_run_was_not_trained_on_do_without_it():
    found, bad = made_up(noise=0.3)
    trained = np.arange(len(bad)) % 2 == 0
    more = loss_evidence(found | remembered(bad, trained), np.where(bad, -3.0, 3.0), 0.3)
    assert (more[~trained] == 0).all() and more[trained & bad].mean() < 0 < more[trained & ~bad].mean()
    strange = found | remembered(bad, False)
    assert not run_losses(strange) and not trained_here(strange).any() and "run_z_i2t" in combine(strange).used


def test_a_mean_over_the_epochs_that_know_a_pair_on_a_hand_worked_case():
    history = np.full((5, 3), np.nan)
    history[:, 0], history[[2, 4], 1] = [9, 9, 6, 4, 2], [7, 3]  # the first two epochs are left out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        means = early_loss(history)
    assert means[:2] == pytest.approx([4, 5]) and np.isnan(means[2])


def test_wrong_pairs_are_heard_though_a_run_left_them_out_for_some_epochs():
    found, bad = made_up(noise=0.3, apart=1.0)
    rng = np.random.default_rng(5)
    history = np.where(bad, 5.0, 2.0) + rng.normal(size=(8, len(bad)))
    history[3:6, bad] = np.nan  # as NCR leaves out what it takes for wrong
    with_gaps, without = combine(found | {"run_history": history}), judged(noise=0.3, apart=1.0)[0]
    assert 1 - roc_auc_score(bad, -with_gaps.score) < 0.7 * (1 - roc_auc_score(bad, -without.score))
    history[:, ::3] = np.nan
    known = {"run_history": history} | remembered(bad, True)
    more = loss_evidence(found | known, np.where(bad, -3.0, 3.0), 0.3)
    assert more[::3][bad[::3]].mean() < 0 < more[::3][~bad[::3]].mean()  # by what it answers, losses or no losses


def test_a_column_that_nobody_has_is_not_listed():
    found, bad = made_up(noise=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        used = combine(found | {"run_history": np.full((6, len(bad)), np.nan)}).used
    assert "run_training" not in used and "training" in used


# ---- pairs that a run made wrong on purpose --------------------------------------------------------------------------


def test_the_next_of_another_owner_on_a_hand_worked_case():
    assert steps_to_another(np.array([1, 1, 1, 2, 3, 1])).tolist() == [3, 2, 1, 1, 1, 4]
    assert steps_to_another(np.array([5, 5])).tolist() == [0, 0]


@settings(deadline=None, max_examples=30)
@given(pictures=st.integers(2, 5), captions=st.integers(1, 30), seed=st.integers(0, 99))
def test_a_stranger_is_never_a_sibling_however_few_the_pictures(pictures, captions, seed):
    pairs = named(pictures, captions)
    rows, items = np.arange(len(pairs)), SimpleNamespace(to=lambda device: None)
    table = SimpleNamespace(items=lambda side, places: items)
    matcher: Any = SimpleNamespace(eval=lambda: None, embed=lambda side, items: None)
    run = SimpleNamespace(seed=seed, rows=rows, pairs=pairs, device=torch.device("cpu"), precision="fp32", table=table)
    own = torch.from_numpy(pairs.picture)
    link = torch.stack([own, torch.from_numpy(rows)], 1)
    sides = {IMAGE: SimpleNamespace(id=torch.arange(pictures))}
    batch: Any = SimpleNamespace(row=torch.from_numpy(rows), sides=sides, positive=link)
    strangers = Mismatches(run, matcher)
    assert (strangers.owner[strangers.of(batch)] != own).all()


# ---- how many folds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pictures", "options", "count"), [(400, {}, 10), (400, {"quick": True}, 5), (399, {}, 5)])
def test_a_fit_of_seconds_is_made_ten_times_where_pictures_are_many(pictures, options, count):
    pairs = named(pictures, 1)
    rows = pairs.rows("train")
    assert fold_count(pairs, rows, Options(**options)) == count
    assert fold_count(pairs, rows, Options(folds=3, **options)) == 3
