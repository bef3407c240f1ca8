"""Losses against numbers a reader can check with a pencil, and against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, Batch, Items, Scores
from matchlight.parts.objectives import (
    Hinge,
    SoftmaxLoss,
    contrast,
    evidence,
    generalised_cross_entropy,
    hinge_all,
    hinge_hardest,
    log_probabilities,
)
from tests.reference.losses import naive_hinges, naive_probabilities


def batch_of(owners: list[int], pictures: list[int] | None = None) -> Batch:
    """Captions with their pictures' ids; the picture side lists each picture once unless given."""
    pictures = sorted(set(owners)) if pictures is None else pictures
    texts = Items(torch.zeros(len(owners), 1), None, torch.arange(len(owners)), {"picture": tensor(owners)})
    images = Items(torch.zeros(len(pictures), 1), None, tensor(pictures))
    places = [[pictures.index(owner), place] for place, owner in enumerate(owners)]
    return Batch({IMAGE: images, TEXT: texts}, {"positive": tensor(places)}, torch.arange(len(owners)))


def test_hinge_on_a_hand_worked_case() -> None:
    c = contrast(tensor([[0.9, 0.8], [0.1, 0.7]]), batch_of([0, 1]))
    terms = hinge_hardest(c, 0.2)
    assert_close(terms["i2t"], tensor([0.1, 0.0]))  # .2 + .8 - .9 ; .2 + .1 - .7 < 0
    assert_close(terms["t2i"], tensor([0.0, 0.3]))  # .2 + .1 - .9 < 0 ; .2 + .8 - .7


def test_a_caption_of_the_same_picture_is_no_negative_unless_asked_for() -> None:
    scores = tensor([[0.5, 0.9, 0.1], [0.0, 0.0, 0.5]])
    batch = batch_of([7, 7, 8])
    assert_close(hinge_hardest(contrast(scores, batch), 0.2)["i2t"], tensor([0.0, 0.0, 0.0]))
    official = hinge_hardest(contrast(scores, batch, siblings="negatives"), 0.2)["i2t"]
    assert_close(official, tensor([0.6, 0.0, 0.0]))  # .2 + .9 - .5


def test_with_two_pairs_the_hardest_negative_is_all_there_is() -> None:
    c = contrast(torch.rand(2, 2), batch_of([0, 1]))
    for hardest, every in zip(hinge_hardest(c, 0.2).values(), hinge_all(c, 0.2).values(), strict=True):
        assert_close(hardest, every)


def test_a_pair_without_negatives_costs_nothing_and_has_a_finite_gradient() -> None:
    scores = torch.rand(1, 2, requires_grad=True)
    batch = batch_of([3, 3])
    for objective in (Hinge(), SoftmaxLoss("infonce"), SoftmaxLoss("rclog"), SoftmaxLoss("gce")):
        loss = objective.total(objective(Scores(scores), {}, batch))
        (grad,) = torch.autograd.grad(loss, scores)
        assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
        assert torch.isfinite(grad).all()


def test_a_hardening_hinge_on_a_hand_worked_case() -> None:
    scores = tensor([[0.5, 0.4, 0.6], [0.1, 0.5, 0.1], [0.1, 0.1, 0.5]])
    batch = batch_of([0, 1, 2]).with_extra(hardness=torch.full((3,), 0.25))
    terms = Hinge()(Scores(scores), {}, batch)
    assert_close(terms["i2t"], tensor([0.225, 0.0, 0.0]))  # costs .1 and .3: .75 * .2 + .25 * .3
    assert_close(terms["t2i"], tensor([0.0, 0.0625, 0.1875]))  # costs .1 | .3, and 0: .75 * half + .25 * all of it


@pytest.mark.parametrize("siblings", ["masked", "negatives"])
def test_a_hardening_hinge_begins_at_the_mean_of_all_and_ends_at_the_hardest(siblings: str) -> None:
    owners = [0, 0, 1, 2, 2, 3]
    batch, matrix = batch_of(owners), torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    c = contrast(matrix, batch, siblings=siblings)
    count = {name: ok.sum(1) for name, (_, ok) in c.directions().items()}
    mean = {name: cost / count[name] for name, cost in hinge_all(c, 0.2).items()}
    for share, wanted in ((0.0, mean), (1.0, hinge_hardest(c, 0.2))):
        leaf = matrix.clone().requires_grad_()
        hard = batch.with_extra(hardness=torch.full((6,), share))
        found = Hinge(siblings=siblings)(Scores(leaf), {}, hard)
        assert_close(found, wanted)
    (grad,) = torch.autograd.grad(Hinge().total(found), leaf)
    assert torch.isfinite(grad).all()


def test_all_negatives_stay_all_whatever_the_hardness() -> None:
    scores, batch = Scores(torch.rand(4, 4)), batch_of([0, 1, 2, 3])
    hard = batch.with_extra(hardness=torch.full((4,), 0.5))
    assert_close(Hinge(hardest=False)(scores, {}, hard), Hinge(hardest=False)(scores, {}, batch), atol=0, rtol=0)


def test_a_hardening_pair_without_negatives_costs_nothing() -> None:
    scores = torch.rand(1, 2, requires_grad=True)
    batch = batch_of([3, 3]).with_extra(hardness=torch.full((2,), 0.5))
    loss = Hinge().total(Hinge()(Scores(scores), {}, batch))
    (grad,) = torch.autograd.grad(loss, scores)
    assert float(loss.detach()) == 0 and torch.isfinite(grad).all()


def test_evidence_of_a_uniform_matrix_is_the_log_of_the_batch() -> None:
    assert_close(evidence(torch.zeros(8, 8), batch_of(list(range(8)))), torch.full((8,), math.log(8)))


def test_generalised_cross_entropy_lies_between_its_limits() -> None:
    torch.manual_seed(0)
    c = contrast(torch.randn(6, 6), batch_of(list(range(6))))
    own = log_probabilities(c, 0.5)["i2t"][0]
    near = generalised_cross_entropy(c, temperature=0.5, q=1e-4)["i2t"]
    far = generalised_cross_entropy(c, temperature=0.5, q=1.0)["i2t"]
    assert_close(near, -own, atol=1e-3, rtol=1e-3)
    assert_close(far, 1 - own.exp())


def test_the_complementary_loss_of_two_pairs_is_the_cross_entropy() -> None:
    scores, batch = tensor([[0.5, 0.4], [0.45, 0.6]]), batch_of([0, 1])
    wrong = SoftmaxLoss("rclog", pull=0.0)(Scores(scores), {}, batch)["i2t"]
    right = -log_probabilities(contrast(scores, batch), 0.05)["i2t"][0]
    assert_close(wrong, right, atol=1e-3, rtol=1e-3)


def test_complementary_losses_hardly_pull_a_pair_that_does_not_fit() -> None:
    scores = torch.full((64, 64), 0.5)
    scores[0, 0] = 0.1
    pulls = {}
    for kind in ("infonce", "rclog"):
        leaf = scores.clone().requires_grad_()
        objective = SoftmaxLoss(kind, pull=0.0)
        objective.total(objective(Scores(leaf), {}, batch_of(list(range(64))))).backward()
        pulls[kind] = -float(leaf.grad[0, 0])
    assert pulls["rclog"] < pulls["infonce"] / 100


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["masked", "negatives"]))
def test_losses_agree_with_plain_loops(seed: int, siblings: str) -> None:
    rng = np.random.default_rng(seed)
    owners = rng.integers(0, 5, size=7).tolist()
    batch = batch_of(owners)
    scores = torch.from_numpy(rng.normal(size=(len(set(owners)), 7)))
    c = contrast(scores, batch, siblings=siblings)
    hard, every = naive_hinges(scores.numpy(), batch, 0.2, siblings)
    assert_close(sum(hinge_hardest(c, 0.2).values()), torch.from_numpy(hard))
    assert_close(sum(hinge_all(c, 0.2).values()), torch.from_numpy(every))
    own = naive_probabilities(scores.numpy(), batch, 0.05, siblings)
    assert_close(torch.stack([v[0] for v in log_probabilities(c, 0.05).values()]), torch.from_numpy(own))
