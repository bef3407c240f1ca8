"""Intervals and paired tests against plain loops, hand-worked cases, and what they promise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchlight.core import BadInput
from matchlight.measuring.metrics import Figures, holm, interval, intervals, paired


def figures_of(values, unit, units) -> Figures:
    out = Figures(units)
    out.add(values, unit, {("r1",): 1.0})
    return out


def test_a_figure_is_the_mean_of_those_asked_and_shares_sum_up_to_it():
    found = figures_of([1, 0, np.nan, 1], [0, 0, 1, 2], 4)
    assert found.value(("r1",)) == pytest.approx(2 / 3)
    assert found.shares(("r1",)).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 0])


def test_sums_are_drawn_together():
    both = Figures(3)
    both.add([1.0, 2.0, 6.0], [0, 1, 2], {("a",): 1.0, ("both",): 0.5})
    both.add([5.0, 4.0, 0.0], [0, 1, 2], {("b",): 1.0, ("both",): 0.5})
    drawn = both.resampled(resamples=40)
    np.testing.assert_allclose(drawn["both",], 3.0)  # a + b is 6 in every picture, whichever are drawn
    assert np.std(drawn["a",]) > 0.1
    with pytest.raises(BadInput, match="no figure c; there are a, both, b"):
        both.shares(("c",))


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_draws_agree_with_a_loop_that_draws_pictures_with_their_captions(seed):
    rng = np.random.default_rng(seed)
    unit = rng.integers(0, 5, 14)
    values = np.where(rng.random(14) < 0.2, np.nan, rng.random(14))
    values[0] = 0.5
    drawn = figures_of(values, unit, 5).resampled(resamples=7, seed=seed)["r1",]
    same, expected = np.random.default_rng(seed), []
    for pictures in same.integers(0, 5, (7, 5)):
        taken = [values[k] for picture in pictures for k in np.flatnonzero(unit == picture) if not np.isnan(values[k])]
        expected.append(np.mean(taken) if taken else np.nan)
    np.testing.assert_allclose(drawn, expected)


def test_captions_of_a_picture_that_rise_and_fall_together_make_an_interval_wider():
    rng = np.random.default_rng(0)
    hit = rng.random(200) < 0.5
    together = figures_of(np.repeat(hit, 5), np.repeat(np.arange(200), 5), 200)
    apart = figures_of(np.repeat(hit, 5), np.arange(1000), 1000)
    wide, narrow = (intervals(each)["r1"] for each in (together, apart))
    assert wide[1] - wide[0] == pytest.approx(5**0.5 * (narrow[1] - narrow[0]), rel=0.15)
    assert wide[1] - wide[0] == pytest.approx(2 * 1.96 * (0.25 / 200) ** 0.5, rel=0.15)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        found = figures_of(rng.normal(size=60), np.arange(60), 60)
        low, high = interval(found.resampled(resamples=200, seed=trial)["r1",])
        held += low <= 0 <= high
    assert 0.88 <= held / 200 <= 0.98


def test_the_same_seed_gives_the_same_interval():
    found = figures_of(np.random.default_rng(0).normal(size=9), np.arange(9), 9)
    assert intervals(found, seed=3) == intervals(found, seed=3) != intervals(found, seed=4)


def test_p_is_that_of_all_swaps_counted_out():
    mine, other = np.array([0.5, 0.9, 0.2, 0.8, 0.7]), np.array([0.1, 0.3, 0.3, 0.2, 0.4])
    apart = mine - other
    sums = [abs(np.dot(signs, apart)) for signs in product((1, -1), repeat=5)]
    exact = np.mean([value >= abs(apart.sum()) - 1e-12 for value in sums])  # 4 of 32
    found = paired(mine, other, flips=40_000)
    assert found["difference"] == pytest.approx(apart.sum())
    assert found["p"] == pytest.approx(exact, abs=0.01)
    turned = paired(other, mine, flips=40_000)
    assert turned["difference"] == -found["difference"] and turned["p"] == found["p"]


def test_p_is_evenly_spread_where_there_is_nothing_to_find():
    rng = np.random.default_rng(0)
    found = [paired(*rng.normal(size=(2, 40)), flips=300, resamples=10)["p"] for _ in range(300)]
    assert np.mean(np.array(found) < 0.05) < 0.1 and 0.4 < np.mean(found) < 0.6


def test_one_clear_line_for_results_on_different_pictures():
    with pytest.raises(BadInput, match="the same pictures; 3 and 2"):
        paired(np.zeros(3), np.zeros(2))


def test_holm_on_a_hand_worked_case():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 x .01; 2 x .03; never below the one before
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []
