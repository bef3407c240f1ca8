"""Divisions against the authors' numbers, and the measured share against draws whose share is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchlight.training.division import (
    clean_probability,
    clean_probability_given_share,
    looks_clean,
    min_max_scaled,
    share_of_wrong,
)


def test_the_recorded_mixture_of_the_authors_comes_out(parity: Path) -> None:
    z = np.load(parity / "losses" / "ncr_gmm.npz")
    for name, tolerance in (("A", 1e-4), ("B", 0.03)):  # another k-means start moves B by as much as 0.0245
        found = clean_probability(z[f"raw_losses_{name}"])
        assert np.abs(found - z[f"prob_{name}"]).max() < tolerance
        assert (looks_clean(z[f"prob_{name}"]) == z[f"pred_{name}"]).all()
    assert (looks_clean(z["all_clean_prob"]) == z["all_clean_pred"]).all()


def test_where_nothing_looks_noisy_the_lowest_hundredth_does() -> None:
    assert (~looks_clean(np.linspace(0.6, 1, 250))).sum() == 3


def test_the_smaller_losses_are_the_clean_ones() -> None:
    w = clean_probability(np.r_[np.full(50, 0.1), np.full(30, 2.0)] + np.linspace(0, 0.05, 80))
    assert (w[:50] > 0.9).all() and (w[50:] < 0.1).all()


@pytest.mark.parametrize("losses", [[1.0], [2.0, 2.0, 2.0]])
def test_equal_losses_are_all_clean(losses: list[float]) -> None:
    assert (clean_probability(losses) == 1).all() and (min_max_scaled(losses) == 0).all()


def drawn(noise: float, size: int = 6000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    wrong = rng.random(size) < noise
    null = rng.normal(7, 1.5, size)
    return np.where(wrong, rng.normal(7, 1.5, size), rng.gamma(1.5, 0.9, size)), null, wrong


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2, 0.5, 0.8, 1.0])
def test_the_measured_share_is_the_true_one_at_every_share(noise: float) -> None:
    losses, null, _ = drawn(noise)
    assert share_of_wrong(losses, null) == pytest.approx(noise, abs=0.05)


@pytest.mark.parametrize("noise", [0.2, 0.5, 0.8])
def test_as_many_pairs_are_trusted_as_are_clean(noise: float) -> None:
    losses, _, wrong = drawn(noise)
    w = clean_probability_given_share(losses, noise)
    assert w.mean() == pytest.approx(1 - noise, abs=0.03)
    assert (~wrong[w > 0.5]).mean() > 0.95


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0, 50), min_size=5, max_size=60), st.floats(0, 1))
def test_trust_never_rises_with_the_loss(losses: list[float], noise: float) -> None:
    w = clean_probability_given_share(losses, noise)
    order = np.argsort(losses, kind="stable")
    assert (np.diff(w[order]) <= 1e-12).all() and (w >= 0).all() and (w <= 1).all()


def test_hardly_any_noise_is_none() -> None:
    assert (clean_probability_given_share(np.arange(100.0), 0.01) == 1).all()
