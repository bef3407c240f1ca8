"""VSRN against the authors' numbers and a loop that follows them step by step, and what its parts promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Items, Sizes
from matchlight.methods import vsrn
from matchlight.methods.captioning import Described
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.scoring.encode import encode
from tests.fixtures import imported, loss_value, recorded_batch
from tests.methods.vsrn_parts import CAPTIONS, captioner_of, matcher_of, regions_of, release, texts_of
from tests.reference import vsrn as naive

FIXTURES = ["vsrn", "vsrn_f30k"]
SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=5, vocabulary=12)


# ---- the authors' numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", FIXTURES)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "vsrn", tmp_path / "run")
    assert run.info["arguments"]["variant"] == ("f30k" if fixture.endswith("f30k") else "coco")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5
    inputs = run.inputs(pairs)
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, inputs.table, side, np.arange(count))
        assert_close(found.single, torch.from_numpy(expected[key]), atol=1e-5, rtol=0)
    with torch.no_grad():
        states = run.matcher.embed(IMAGE, inputs.table.items(IMAGE, np.arange(3))).extra["states"]
    assert_close(states, torch.from_numpy(expected["gcn_regions_first3"]), atol=1e-5, rtol=0)
    report = evaluate(run, pairs, "test")
    recorded = json.loads((parity / fixture / "expected_metrics.json").read_text())
    assert report["rsum"] == pytest.approx(recorded["rsum"], abs=1e-3)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_losses_are_the_authors_losses(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "vsrn", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    ranking = Hinge(siblings="negatives")
    assert loss_value(ranking, batch, scores, embeddings) == pytest.approx(float(expected["loss"]), rel=1e-5)
    every = Hinge(siblings="negatives", hardest=False)
    wanted = float(expected["loss_sum_over_negatives"])
    assert loss_value(every, batch, scores, embeddings) == pytest.approx(wanted, rel=1e-5)
    weights = torch.load(parity / fixture / "caption_model.pth", weights_only=True)
    both = Described(ranking, captioner_of(weights, max_len=run.info["arguments"]["max_len"]))
    with torch.no_grad():
        terms = both(scores, embeddings, batch)
    assert float(terms["caption"].sum()) == pytest.approx(float(expected["loss_caption"]), rel=1e-5)
    assert float(both.total(terms)) == pytest.approx(float(expected["loss_total"]), rel=1e-5)


# ---- the loop that follows the authors -------------------------------------------------------------------------------


@pytest.mark.parametrize("f30k", [False, True])
@pytest.mark.parametrize("caption", [False, True])
def test_a_released_file_scores_as_the_plain_loop_does(f30k: bool, caption: bool) -> None:
    file = release(f30k=f30k, caption=caption)
    matcher = matcher_of(file)
    x, mask = regions_of(5, 3, 4)
    alike, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
    images = matcher.embed(IMAGE, Items(alike, mask, torch.arange(3)))
    found = matcher.score(images, matcher.embed(TEXT, texts_of(CAPTIONS)))
    cut = [row[: int(n)] for row, n in zip(plain, mask.sum(1), strict=True)]
    wanted = naive.scores(file["model"][0], file["model"][1], cut, CAPTIONS)
    assert_close(found, wanted, atol=1e-5, rtol=0)
    weight = torch.randn(3, 4)
    (found * weight).sum().backward()
    (wanted * weight).sum().backward()
    assert_close(alike.grad, plain.grad, atol=1e-4, rtol=1e-3)
    assert alike.grad is not None and not alike.grad[~mask].any()


# ---- the graph -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_a_new_block_passes_regions_on_unchanged(training: bool) -> None:
    block = vsrn.Related(6).train(training)
    x, mask = regions_of(5, 3)
    assert torch.equal(block(x, mask), x)
    assert torch.equal(block(x, None), x)


def test_channels_have_unit_length_across_the_regions() -> None:
    x, mask = regions_of(5, 3)
    normal = vsrn.across_regions(x, mask)
    assert_close(normal.square().sum(1), torch.ones(2, 6))
    assert not normal[~mask].any()
    assert_close(normal[1, :3], vsrn.across_regions(x[1:, :3], None)[0])


def test_a_silent_channel_stays_zero_and_its_gradient_finite() -> None:
    x = torch.tensor([[[0.0, 3.0], [0.0, 4.0]]], requires_grad=True)
    normal = vsrn.across_regions(x, None)
    assert_close(normal, torch.tensor([[[0.0, 0.6], [0.0, 0.8]]]))
    normal.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_only_the_coco_variant_normalises_before_the_graph() -> None:
    x, _ = regions_of(4)
    for variant, same in (("coco", True), ("f30k", False)):
        torch.manual_seed(0)
        encoder = vsrn.Reasoned(6, 8, variant=variant, blocks=1, eps=0.0)
        reached: list[Tensor] = []
        encoder.blocks[0].register_forward_pre_hook(lambda _, given, into=reached: into.append(given[0]))
        encoder.relate(x, None)
        assert torch.allclose(reached[0].square().sum(1), torch.ones(1, 8)) is same


def test_the_order_of_regions_matters_to_the_picture_but_not_to_the_graph() -> None:
    encoder = matcher_of(release(f30k=False)).encoders[IMAGE]
    x, _ = regions_of(5, 5)
    order = torch.tensor([4, 2, 0, 1, 3])
    plain, turned = (encoder(Items(some, None, torch.arange(2))) for some in (x, x[:, order]))
    assert_close(turned.extra["states"], plain.extra["states"][:, order], atol=1e-6, rtol=1e-5)
    assert (turned.single - plain.single).abs().max() > 1e-2
    assert_close(plain.single.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("f30k", [False, True])
def test_padded_regions_change_nothing_while_training_either(f30k: bool) -> None:
    x, mask = regions_of(5, 5)
    plain = matcher_of(release(f30k=f30k)).train().embed(IMAGE, Items(x, None, torch.arange(2)))
    wide = torch.cat([x, torch.full((2, 3, 6), 7.0)], 1)
    behind = torch.cat([mask, torch.zeros(2, 3, dtype=torch.bool)], 1)
    padded = matcher_of(release(f30k=f30k)).train().embed(IMAGE, Items(wide, behind, torch.arange(2)))
    assert_close(padded.single, plain.single, atol=1e-5, rtol=1e-4)
    assert_close(padded.extra["states"][:, :5], plain.extra["states"], atol=1e-5, rtol=1e-4)


def test_a_batch_of_one_picture_can_be_trained_on() -> None:
    encoder = vsrn.Reasoned(6, 8, variant="f30k", blocks=1, eps=1e-8).train()
    out = encoder(Items(torch.randn(1, 4, 6), None, torch.arange(1)))
    assert out.single.isfinite().all()


def test_states_of_a_whole_table_are_not_kept() -> None:
    encoder = matcher_of(release(f30k=False)).encoders[IMAGE]
    items = Items(regions_of(5, 3)[0], None, torch.arange(2))
    assert set(encoder(items).extra) == {"states"}
    with torch.inference_mode():
        assert not encoder(items).extra


# ---- the recipe ------------------------------------------------------------------------------------------------------


def test_the_captioning_branch_can_be_left_out() -> None:
    off = vsrn.VSRN(dim=8, word_dim=4, caption_weight=0.0).recipe(SIZES).objective()
    on = vsrn.VSRN(dim=8, word_dim=4, caption_hidden=4, caption_word_dim=3).recipe(SIZES).objective()
    assert not list(off.parameters()) and isinstance(on, Described)


def test_a_gentle_start_ranks_against_all_and_keeps_the_decoder() -> None:
    recipe = vsrn.VSRN(dim=8, word_dim=4, caption_hidden=4, caption_word_dim=3, warm=2).recipe(SIZES)

    class Trained:
        objective = recipe.objective()

    class Run:
        rows = np.arange(4)
        networks = {"A": Trained()}

    early, late = (recipe.strategy.phases(Run(), epoch)[0] for epoch in (1, 2))
    assert isinstance(early.objective, Described) and early.objective.captioner is Trained.objective.captioner
    assert isinstance(early.objective.ranking, Hinge) and not early.objective.ranking.hardest
    assert late.objective is None


def test_every_parameter_is_given_to_the_optimiser_once() -> None:
    recipe = vsrn.VSRN(dim=8, word_dim=4, caption_hidden=4, caption_word_dim=3).recipe(SIZES)
    matcher, objective = recipe.matcher(), recipe.objective()
    given_ = [id(p) for group in recipe.groups(matcher, objective) for p in group["params"]]
    assert sorted(given_) == sorted(id(p) for p in [*matcher.parameters(), *objective.parameters()])


@pytest.mark.parametrize("wrong", [{"variant": "flickr"}, {"max_len": 1}])
def test_a_setting_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        vsrn.VSRN(**wrong).recipe(SIZES)


def test_one_vector_a_picture_is_refused() -> None:
    with pytest.raises(BadInput, match="one vector a picture"):
        vsrn.VSRN().recipe(Sizes(pairs=1, pictures=1, image="vector", image_dim=6))
    with pytest.raises(BadInput, match="one vector a picture"):
        matcher_of(release(f30k=False)).embed(IMAGE, Items(torch.randn(2, 6), None, torch.arange(2)))


@pytest.mark.parametrize("odd", [{"measure": "order"}, {"use_abs": True}, {"no_imgnorm": True}])
def test_a_released_file_of_another_kind_is_refused(odd: dict[str, Any]) -> None:
    file = release(f30k=False)
    file["opt"] |= odd
    with pytest.raises(BadInput, match="cosine"):
        vsrn.read_vsrn(file)
