"""Linear baselines against loops that follow their definitions, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.cross_decomposition import CCA

from matchlight.core import IMAGE, TEXT
from matchlight.measuring.protocols import evaluate_scores, figure
from matchlight.reproduce.linear import LINEAR, Maps, Views, gma, mcca, mvda, pls, views
from matchlight.reproduce.mrl_linear import Plain
from tests.tiny import tiny_pairs


def made(seed: int = 0, items: int = 60, classes: int = 3) -> Views:
    """Pictures and texts of one class each that share a little of what they are; some items have two classes."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, classes, items)
    hot = np.eye(classes)[kind]
    hot[:5, 0] = 1
    common = rng.normal(size=(items, 2)) + 2 * rng.normal(size=(classes, 2))[kind]
    x = common @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(items, 6))
    y = common @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(items, 5))
    labels = {IMAGE: hot, TEXT: np.roll(hot, 1, axis=0)}
    return Views({IMAGE: x - x.mean(0), TEXT: y - y.mean(0)}, np.stack([np.arange(items)] * 2, 1), labels)


def solved(wanted: np.ndarray, unwanted: np.ndarray) -> np.ndarray:
    """Directions of a generalised eigenproblem, the best first, with the ridge that all fits have."""
    ridge = views.RIDGE * unwanted.diagonal().mean()
    return scipy.linalg.eigh(wanted, unwanted + ridge * np.eye(len(wanted)))[1][:, ::-1]


def assert_same_directions(found: Maps, wanted: np.ndarray, count: int) -> None:
    stacked = np.concatenate([found.of[IMAGE], found.of[TEXT]])
    for k in range(count):
        both = stacked[:, k], wanted[:, k]
        cosine = abs(both[0] @ both[1]) / (np.linalg.norm(both[0]) * np.linalg.norm(both[1]))
        assert cosine == pytest.approx(1, abs=1e-6)


def test_two_sides_that_correlate_most_are_those_of_canonical_correlation() -> None:
    data = made()
    found, (x, y) = mcca(data), data.paired()
    usual = CCA(n_components=2, scale=False, max_iter=5000).fit_transform(x, y)
    for k in range(2):
        ours = np.corrcoef(x @ found.of[IMAGE][:, k], y @ found.of[TEXT][:, k])[0, 1]
        theirs = np.corrcoef(usual[0][:, k], usual[1][:, k])[0, 1]
        assert ours == pytest.approx(theirs, abs=0.02)


def test_sides_that_vary_together_are_singular_vectors_of_their_covariance() -> None:
    data = made(1)
    x, y = data.paired()
    left, _, right = np.linalg.svd(x.T @ y)
    found = pls(data)
    for k in range(2):
        assert abs(found.of[IMAGE][:, k] @ left[:, k]) == pytest.approx(1)
        assert abs(found.of[TEXT][:, k] @ right[k]) == pytest.approx(1)


def test_one_discriminant_analysis_of_both_sides_by_a_loop() -> None:
    data = made(2)
    longs = {
        IMAGE: [np.concatenate([x, np.zeros(5)]) for x in data.items[IMAGE]],
        TEXT: [np.concatenate([np.zeros(6), y]) for y in data.items[TEXT]],
    }
    members = [
        [vector for side in longs for vector, label in zip(longs[side], data.labels[side], strict=True) if label[k]]
        for k in range(3)
    ]
    middle = np.mean([vector for some in members for vector in some], axis=0)
    between, within = np.zeros((11, 11)), np.zeros((11, 11))
    for some in members:
        own = np.mean(some, axis=0)
        between += len(some) * np.outer(own - middle, own - middle)
        for vector in some:
            within += np.outer(vector - own, vector - own)
    assert_same_directions(mvda(data), solved(between, within), 2)


def test_matched_discriminants_by_a_loop() -> None:
    data = made(3)
    between, within, centres, counts = {}, {}, {}, {}
    for side, x in data.items.items():
        members = [x[data.labels[side][:, k] > 0] for k in range(3)]
        everything = np.concatenate(members).mean(0)
        centres[side], counts[side] = [m.mean(0) for m in members], [len(m) for m in members]
        between[side] = sum(len(m) * np.outer(m.mean(0) - everything, m.mean(0) - everything) for m in members)
        within[side] = sum(np.outer(v - m.mean(0), v - m.mean(0)) for m in members for v in m)
    across = sum(
        (counts[IMAGE][k] + counts[TEXT][k]) / 2 * np.outer(centres[IMAGE][k], centres[TEXT][k]) for k in range(3)
    )
    wanted = np.block([[between[IMAGE], 10 * across], [10 * across.T, between[TEXT]]])
    size = within[IMAGE].trace() / within[TEXT].trace()
    unwanted = scipy.linalg.block_diag(within[IMAGE], size * within[TEXT])
    assert_same_directions(gma(data), solved(wanted, unwanted), 2)


@pytest.mark.parametrize("name", LINEAR)
def test_each_finds_more_than_chance_and_takes_its_dimension_from_val(name: str) -> None:
    pairs = tiny_pairs(120, held=24)
    plain = Plain.of(pairs, "val", "test", device="cpu")
    scores, dim = plain.fitted(name, pairs, "test")
    part = pairs.subset("test")
    assert part.labels is not None and scores.shape == (24, 48) and scores.dtype == np.float32
    fits = part.labels.image.astype(int) @ part.labels.text.T.astype(int) > 0
    assert figure(evaluate_scores(scores, part, protocol="labels"), "map", "mean") > fits.mean() + 0.03
    maps = LINEAR[name](plain.views(pairs))
    val = pairs.subset("val")
    on_val = {
        d: figure(evaluate_scores(plain.scores(maps, "val", dim=d), val, protocol="labels"), "map", "mean")
        for d in (2, 4, 8, maps.most)
        if d <= maps.most
    }
    assert on_val.get(dim, 1.0) >= max(on_val.values())


def test_wrong_labels_change_what_labels_teach_and_nothing_else() -> None:
    pairs = tiny_pairs(60, held=12)
    plain = Plain.of(pairs, "test", device="cpu")  # without val all directions are taken
    views_of = plain.views(pairs)
    moved = Views(views_of.items, views_of.pairs, {side: hot[::-1] for side, hot in views_of.labels.items()})
    for name, fit in LINEAR.items():
        same = np.allclose(fit(views_of).of[IMAGE], fit(moved).of[IMAGE])
        assert same == (name in ("MCCA", "PLS"))
