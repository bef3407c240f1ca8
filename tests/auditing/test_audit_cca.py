"""Canonical correlation in an audit: the joint directions, held against another derivation, and what it finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import roc_auc_score

from matchlight.auditing.canonical_signals import LIKELY, cross_validated_signals
from matchlight.auditing.neighbours import AuditedRows
from matchlight.parts import canonical_correlation
from matchlight.parts.canonical_correlation import (
    POWER,
    RIDGE,
    Moments,
    fit_canonical_correlation,
    scaled_components,
    sizes_for,
)
from matchlight.training import cross_fits


def planted(count: int = 400, *, noise: float = 0.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Pictures and captions that share eight hidden numbers, and which captions were moved to another picture."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(count, 8))
    sides = [hidden @ rng.normal(size=(8, d)) + 1.5 * rng.normal(size=(count, d)) for d in (30, 20)]
    moved = rng.permutation(count)[: round(noise * count)]
    order = np.arange(count)
    order[moved] = np.roll(moved, 1)
    return torch.from_numpy(sides[0]), torch.from_numpy(sides[1][order]), order != np.arange(count)


def by_symmetric_roots(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """All scores by the textbook's whitening with symmetric roots, pair after pair in plain loops."""

    def root(c: np.ndarray, ridge: float) -> np.ndarray:
        value, vector = np.linalg.eigh(c + ridge * np.trace(c) / len(c) * np.eye(len(c)))
        return vector @ np.diag(value**-0.5) @ vector.T

    x, y = x - x.mean(0), y - y.mean(0)
    a, b = root(x.T @ x / len(x), RIDGE[0]), root(y.T @ y / len(y), RIDGE[1])
    u, s, v = np.linalg.svd(a @ (x.T @ y / len(x)) @ b, full_matrices=False)
    left, right = x @ a @ u @ np.diag(s**POWER), y @ b @ v.T
    return np.array([[p @ q / (np.linalg.norm(p) * np.linalg.norm(q)) for q in right] for p in left])


def scores(images: torch.Tensor, texts: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    joint = fit_canonical_correlation(images, texts, weight)
    return joint.vectors(0, images) @ joint.vectors(1, texts).T


def test_scores_are_those_of_whitening_with_symmetric_roots():
    images, texts, _ = planted(60)
    expected = by_symmetric_roots(images.numpy(), texts.numpy())
    assert np.allclose(scores(images, texts, torch.ones(60).double()).numpy(), expected, atol=1e-5)


def test_a_pair_without_weight_might_as_well_not_be_there():
    images, texts, _ = planted(80)
    weight = torch.ones(80).double()
    weight[50:] = 0
    joint, alone = (
        fit_canonical_correlation(images, texts, weight),
        fit_canonical_correlation(images[:50], texts[:50], weight[:50]),
    )
    for side, x in enumerate((images, texts)):
        one, other = joint.vectors(side, x), alone.vectors(side, x)
        assert torch.allclose(one @ one.T, other @ other.T, atol=1e-5)


@pytest.mark.parametrize("dims", [(8, 8), (12, 5), (5, 12)])
def test_a_fit_from_sums_less_those_of_a_fold_is_the_fit_on_the_others(dims):
    rng = np.random.default_rng(0)
    images, picture = torch.from_numpy(rng.normal(2, 1, (40, dims[0]))), rng.integers(0, 40, 150)
    texts = torch.from_numpy(rng.normal(-1, 1, (150, dims[1]))) + images[picture][:, :1]
    weight, inside = torch.from_numpy(rng.random(150)), np.arange(150) < 30
    parts = [
        Moments.of(images, texts[rows], torch.from_numpy(picture[rows]), weight[rows])
        for rows in (np.flatnonzero(inside), np.flatnonzero(~inside))
    ]
    from_sums = (parts[0] + parts[1] - parts[0]).fit(kept=4)
    others = np.flatnonzero(~inside)
    direct = fit_canonical_correlation(images[picture[others]], texts[others], weight[others], kept=4)
    found, expected = (fit.vectors(0, images) @ fit.vectors(1, texts).T for fit in (from_sums, direct))
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_scaled_components_keep_likeness():
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    small = scaled_components(x, most=39)
    flat = (x - x.mean(0)).double()
    assert small.shape == (50, 39)
    assert np.corrcoef((small @ small.T).flatten(), (flat @ flat.T).flatten())[0, 1] > 0.99


def audited(noise: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    images, texts, bad = planted(noise=noise)
    count = len(bad)
    fold = np.arange(count) % 4
    wrong = (np.arange(count) + 4) % count  # of the same fold
    return cross_validated_signals(
        images, texts, AuditedRows(np.arange(count), np.arange(count), wrong), fold, seed=0
    ), bad


@pytest.mark.parametrize("noise", [0.2, 0.5])
def test_wrong_pairs_lose_more_and_weighing_helps(noise, monkeypatch):
    found, bad = audited(noise)
    monkeypatch.setattr(cross_fits, "PASSES", 1)
    once, _ = audited(noise)
    area = [roc_auc_score(bad, one["i2t"] + one["t2i"]) for one in (found, once)]
    assert area[0] > 0.95 and area[0] >= area[1]


def test_each_moved_caption_is_offered_its_own_picture_first():
    found, bad = audited(0.2)
    order = np.flatnonzero(bad)
    _, texts, _ = planted()
    _, moved, _ = planted(noise=0.2)
    home = np.array([int((texts == moved[row]).all(1).nonzero()[0, 0]) for row in order])
    assert (found["other_picture"][order, 0] == home).mean() > 0.4  # chance is 1 in 400
    assert found["other_picture_share"].shape == (len(bad), 3)


def test_many_pairs_are_fitted_with_more_directions():
    assert sizes_for(9_999) == (320, 80) and sizes_for(10_000) == (768, 128)
    rng = torch.Generator().manual_seed(0)
    images, texts = torch.randn(300, 20, generator=rng).double(), torch.randn(300, 12, generator=rng).double()
    fitted = [fit_canonical_correlation(images, texts, torch.ones(300).double(), kept=kept) for kept in (5, 40)]
    assert [one.vectors(0, images).shape[1] for one in fitted] == [5, 12]


def test_products_of_likelihood_vectors_are_log_ratios_of_gaussian_densities_but_for_a_constant():
    images, texts, _ = planted(60)
    fitted = fit_canonical_correlation(images, texts, torch.ones(60).double(), kept=3)
    one = (images - fitted.centres[0]) @ fitted.maps[0] / fitted.strength**POWER
    other = (texts - fitted.centres[1]) @ fitted.maps[1]
    expected = np.zeros((60, 60))
    for k, r in enumerate(fitted.strength.tolist()):
        x, y = np.meshgrid(one[:, k].numpy(), other[:, k].numpy(), indexing="ij")
        together = multivariate_normal([0, 0], [[1, r], [r, 1]]).logpdf(np.stack([x, y], -1))
        expected += together - norm.logpdf(x) - norm.logpdf(y)
    found = (fitted.likelihoods(0, images) @ fitted.likelihoods(1, texts).T).numpy()
    assert np.allclose(found - found.mean(), expected - expected.mean(), atol=1e-3)


def test_a_direction_that_is_not_there_adds_nothing_to_a_likelihood():
    images, texts, _ = planted(60)
    flat = torch.cat([texts[:, :4], torch.zeros(60, 1)], 1)  # five numbers, four directions
    four, five = (fit_canonical_correlation(images, flat, torch.ones(60).double(), kept=kept) for kept in (4, 5))
    scores = [fit.likelihoods(0, images) @ fit.likelihoods(1, flat).T for fit in (four, five)]
    assert torch.allclose(*scores, atol=1e-3)


def test_gaussian_pairs_are_told_better_by_likelihoods_than_by_cosines(monkeypatch):
    monkeypatch.setattr(canonical_correlation, "RIDGE", (1e-3, 1e-3))  # with a ridge, whitened numbers are smaller
    found, bad = audited(0.2)
    cosine, likely = (roc_auc_score(bad, found[f"{name}i2t"] + found[f"{name}t2i"]) for name in ("", LIKELY))
    assert likely > cosine + 0.01 > 0.9


def test_what_a_caption_tells_is_the_length_of_the_picture_it_lets_one_expect():
    images, texts, _ = planted(60)
    fitted = fit_canonical_correlation(images, texts, torch.ones(60).double())
    x, y = images.numpy() - images.numpy().mean(0), texts.numpy() - texts.numpy().mean(0)
    xx, yy = x.T @ x / 60, y.T @ y / 60
    xx, yy = (c + ridge * np.trace(c) / len(c) * np.eye(len(c)) for c, ridge in zip((xx, yy), RIDGE, strict=True))
    expected = y @ np.linalg.solve(yy, y.T @ x / 60)  # ridge regression of the pictures on the captions
    length = np.sqrt(np.einsum("nd,de,ne->n", expected, np.linalg.inv(xx), expected))
    assert np.allclose(fitted.tells(texts).numpy(), length, atol=1e-4)


def test_captions_that_stand_below_any_picture_tell_less_than_all_others_right_or_wrong():
    images, texts, bad = planted(noise=0.3)
    count, nothing = len(bad), np.random.default_rng(1).random(len(bad)) < 0.15
    same = 1 + 0.1 * torch.randn(count, texts.shape[1], generator=torch.Generator().manual_seed(0)).double()
    texts[torch.from_numpy(nothing)] = same[torch.from_numpy(nothing)]
    rows = AuditedRows(np.arange(count), np.arange(count), (np.arange(count) + 4) % count)
    tells = cross_validated_signals(images, texts, rows, np.arange(count) % 4, seed=0)["tells"]
    assert tells[nothing].max() < np.quantile(tells[~nothing], 0.05)
    right, wrong = (np.median(tells[~nothing & moved]) for moved in (~bad, bad))
    assert abs(right / wrong - 1) < 0.1  # whose picture it is has no part in it
