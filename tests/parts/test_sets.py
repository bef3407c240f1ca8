"""Similarities between sets: against sets compared element by element, and what each of them promises."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from matchlight.core import BadInput, Embedding, Matcher
from matchlight.parts.set_similarities import (
    SIMILARITIES,
    SmoothChamfer,
    cosines,
    diversity_loss,
    maximum_mean_discrepancy,
    set_similarity,
)
from matchlight.scoring.all_pairs import held_scores
from tests.reference import dive as naive
from tests.reference.sets import gradients


def random_sets(count: int, size: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, size, dim, generator=draw), dim=-1)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_a_matrix_holds_what_element_by_element_comparison_gives(name: str) -> None:
    images, texts = random_sets(3, 4), random_sets(5, 3, seed=1)
    found = set_similarity(name, alpha=8.0)(Embedding(images), Embedding(texts))
    expected = torch.stack([torch.stack([naive.pair_score(x, y, name, 8.0) for y in texts]) for x in images])
    assert_close(found, expected, atol=1e-6, rtol=1e-5)
    few = Embedding(images[:2]), Embedding(texts[1:3])
    assert_close(set_similarity(name, alpha=8.0).pairs(*few), expected[[0, 1], [1, 2]], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_gradients_are_those_of_element_by_element_comparison(name: str) -> None:
    images, texts = random_sets(2, 3).requires_grad_(), random_sets(3, 3, seed=1).requires_grad_()
    quick = gradients(set_similarity(name)(Embedding(images), Embedding(texts)), images, texts)
    rows = [torch.stack([naive.pair_score(x, y, name) for y in texts]) for x in images]
    for mine, theirs in zip(quick, gradients(torch.stack(rows), images, texts), strict=True):
        assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_order_inside_a_set_does_not_matter(name: str) -> None:
    images, texts = random_sets(3, 4), random_sets(4, 4, seed=1)
    similarity = set_similarity(name)
    turned = Embedding(images[:, [2, 0, 3, 1]]), Embedding(texts[:, [1, 0, 3, 2]])
    assert_close(similarity(*turned), similarity(Embedding(images), Embedding(texts)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("name", "lost"), [("smooth_chamfer", math.log(4) / 16), ("chamfer", 0.0), ("mil", 0.0)])
def test_smooth_chamfer_alone_scores_collapsed_twins_above_spread_ones(name: str, lost: float) -> None:
    spread, collapsed = torch.eye(4)[None], torch.eye(4)[[0, 0, 0, 0]][None]
    score = set_similarity(name)
    apart, together = (score(Embedding(one), Embedding(one)) for one in (spread, collapsed))
    assert float(together - apart) == pytest.approx(lost, abs=1e-5)


@pytest.mark.parametrize(("name", "most"), [("smooth_chamfer", 1.0), ("mil", 0.2)])
def test_slots_of_nearly_collapsed_sets_are_pulled_alike_by_smooth_chamfer(name: str, most: float) -> None:
    images, texts = (
        F.normalize(random_sets(8, 1, 64, seed=k) + 0.1 * random_sets(8, 4, 64, seed=k + 2), dim=-1).requires_grad_()
        for k in (0, 1)
    )
    scores = set_similarity(name)(Embedding(images), Embedding(texts))
    pull = gradients(scores.log_softmax(1), images)[0]
    way = F.normalize(pull, dim=-1)
    others = torch.einsum("nkd,nld->nkl", way, way)[:, ~torch.eye(4, dtype=torch.bool)]
    assert float(others.mean()) == pytest.approx(most, abs=0.2)


@pytest.mark.parametrize("name", ["smooth_chamfer", "chamfer", "mil"])
def test_sets_of_one_are_compared_by_their_cosine(name: str) -> None:
    images, texts = random_sets(3, 1), random_sets(4, 1, seed=1)
    assert_close(set_similarity(name)(Embedding(images), Embedding(texts)), images[:, 0] @ texts[:, 0].T)


def test_match_probability_of_a_known_cosine() -> None:
    x = Embedding(torch.tensor([[[1.0, 0.0]]]))
    assert float(set_similarity("mp")(x, x)) == pytest.approx(1 / (1 + math.exp(-1)))  # a = 1, b = 0
    learned = set_similarity("mp", learned=True)
    assert {name for name, _ in learned.named_parameters()} == {"a", "b"}


def test_smooth_chamfer_lies_between_chamfer_and_chamfer_plus_log_k_over_alpha() -> None:
    images, texts = Embedding(random_sets(6, 4)), Embedding(random_sets(7, 4, seed=1))
    hard, soft = set_similarity("chamfer")(images, texts), set_similarity("smooth_chamfer")(images, texts)
    assert (soft >= hard - 1e-6).all() and (soft <= hard + math.log(4) / 16 + 1e-6).all()
    same = Embedding(torch.tensor([1.0, 0.0]).expand(1, 4, 2))
    assert float(SmoothChamfer()(same, same)) == pytest.approx(1 + math.log(4) / 16)  # four equal elements: the most


def test_a_large_alpha_is_chamfer_and_never_infinite() -> None:
    images, texts = Embedding(random_sets(3, 4)), Embedding(random_sets(3, 4, seed=1))
    sharp = set_similarity("smooth_chamfer", alpha=5000.0)(images, texts)
    assert_close(sharp, set_similarity("chamfer")(images, texts), atol=1e-3, rtol=0)
    with pytest.raises(BadInput, match="alpha"):
        SmoothChamfer(alpha=0.0)


@torch.no_grad()
def test_products_of_any_precision_and_under_autocast_are_close() -> None:
    images, texts = random_sets(3, 4, dim=64), random_sets(5, 4, dim=64, seed=1)
    exact = cosines(images, texts)
    assert_close(cosines(images, texts, precision="tf32"), exact, atol=2e-3, rtol=0)
    assert_close(cosines(images, texts, precision="bf16"), exact, atol=2e-2, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(cosines(images, texts), exact, atol=1e-6, rtol=0)
    similarity = set_similarity("smooth_chamfer")
    plain = similarity(Embedding(images), Embedding(texts))
    similarity.precision = "bf16"
    assert_close(similarity(Embedding(images), Embedding(texts)), plain, atol=2e-2, rtol=0)


def test_sets_with_padding_are_refused() -> None:
    one = Embedding(random_sets(2, 4), torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="whole"):
        set_similarity("mil")(one, one)


def test_every_element_proposes_and_proposals_have_unit_length() -> None:
    coarse = set_similarity("smooth_chamfer").coarse(Embedding(3 * random_sets(5, 4)), "image")
    assert coarse is not None and coarse.shape == (5, 4, 6)
    assert_close(coarse.norm(dim=-1), torch.ones(5, 4))


def test_crowds_differ_by_the_sum_over_their_pairs() -> None:
    x, y = random_sets(1, 5)[0], random_sets(1, 7, seed=1)[0]
    assert float(maximum_mean_discrepancy(x, y)) == pytest.approx(naive.maximum_mean_discrepancy(x, y), abs=1e-5)
    assert float(maximum_mean_discrepancy(x, x)) == pytest.approx(0, abs=1e-6)
    x = random_sets(1, 40)[0].requires_grad_()
    maximum_mean_discrepancy(x, y).backward()
    assert x.grad is not None and x.grad.isfinite().all()  # self-distances are 0, where a norm has no slope


def test_crowding_is_one_for_a_collapsed_set_and_small_for_a_spread_one() -> None:
    spread, collapsed = torch.eye(4)[None], torch.ones(1, 4, 4)
    assert float(diversity_loss(collapsed)) == pytest.approx(1.0)
    assert float(diversity_loss(spread)) == pytest.approx(math.exp(-4))  # orthogonal: distance squared is 2
    some = torch.randn(3, 4, 6)
    assert_close(diversity_loss(some), torch.tensor([naive.diversity_loss(one) for one in some]), atol=1e-6, rtol=1e-5)
    assert float(diversity_loss(torch.randn(1, 1, 3))) == 0.0


@torch.no_grad()
def test_the_fast_matrix_is_the_caption_by_caption_loop_in_any_blocks() -> None:
    images, texts = random_sets(9, 4, dim=32), random_sets(23, 4, dim=32, seed=1)
    matcher = Matcher({}, set_similarity("smooth_chamfer"))
    expected = naive.loop_scores(images, texts)
    for budget in (1, 3000, 1 << 30):
        assert_close(held_scores(matcher, Embedding(images), Embedding(texts), budget=budget), expected)
