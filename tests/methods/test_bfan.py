"""BFAN: which fragments stay in focus, the same scores as a loop, the authors' numbers, and no NaN anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput, Embedding, Sizes
from matchlight.methods import bfan
from matchlight.parts.attention import every
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.importing import import_checkpoints
from tests.fixtures import imported, loss_value, recorded_batch
from tests.methods.test_scan import released
from tests.reference import cross_attention as naive
from tests.reference.sets import gradients, sets

FOCALS = ("equal", "prob")

FIXTURES = ("bfan_equal", "bfan_prob")


def similarity(focal: str, **changes: bool) -> bfan.FocalAttention:
    return bfan.FocalAttention(focal=focal, temperature=20.0, **changes)


def test_equal_focus_keeps_what_is_above_the_mean() -> None:
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4]).view(1, 4, 1, 1)
    assert bfan.relevant(weights, None, focal="equal").flatten().tolist() == [False, False, True, True]


def test_prob_focus_by_hand() -> None:
    weights = torch.tensor([0.64, 0.25, 0.11]).view(1, 3, 1, 1)
    # roots 0.8, 0.5, 0.33166; sum of a^1.5 / sum of roots = (0.512 + 0.125 + 0.03648) / 1.63166 = 0.4128
    assert bfan.relevant(weights, None, focal="prob").flatten().tolist() == [True, False, False]


def test_the_single_sum_decides_as_the_double_sum() -> None:
    weights = torch.rand(50, 6, 1, 1, dtype=torch.float64).softmax(1)
    a = weights[..., 0, 0]
    double = ((a[:, :, None] - a[:, None]) * a.sqrt()[:, None]).sum(2)
    assert (bfan.relevant(weights, None, focal="prob")[..., 0, 0] == (double > 0)).all()


def test_padded_members_do_not_lower_the_mean() -> None:
    weights = torch.tensor([0.4, 0.6, 0.0, 0.0]).view(1, 4, 1, 1)  # the mean of two is 0.5, of four 0.25
    mask = torch.tensor([True, True, False, False]).view(1, 4, 1, 1)
    assert bfan.relevant(weights, mask, focal="equal").flatten().tolist() == [False, True, False, False]


@pytest.mark.parametrize("focal", FOCALS)
def test_all_pairs_at_once_score_as_one_caption_after_another(focal: str) -> None:
    images, texts, lengths = sets(4, 6, regions=5, dim=8, dtype=torch.float64)
    found = similarity(focal)(images, texts)
    assert_close(found, naive.bfan(images.vectors, texts.vectors, lengths, kind=focal), atol=1e-12, rtol=0)
    assert found.abs().max() <= 2
    single = similarity(focal)(Embedding(images.vectors.float()), Embedding(texts.vectors.float(), texts.mask))
    several = torch.tensor(lengths) > 1  # one word alone meets every region alike: rounding would decide
    assert_close(single[:, several], found[:, several].float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("focal", FOCALS)
def test_gradients_are_those_of_the_loop(focal: str) -> None:
    images, texts, lengths = sets(3, 6, regions=4, dim=5, dtype=torch.float64)
    several = [t for t, length in enumerate(lengths) if length > 1]  # the loop has no slope at one word
    leaves = [images.vectors.requires_grad_(), texts.vectors[several].requires_grad_()]
    assert texts.mask is not None
    fast = similarity(focal)(images, Embedding(leaves[1], texts.mask[several]))
    slow = naive.bfan(*leaves, [lengths[t] for t in several], kind=focal)
    for ours, theirs in zip(gradients(fast, *leaves), gradients(slow, *leaves), strict=True):
        assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("focal", FOCALS)
def test_even_attention_scores_nothing_and_its_gradient_is_finite(focal: str) -> None:
    images, texts, _ = sets(2, 3, regions=4, dim=5)
    words = torch.zeros_like(texts.vectors)
    words[:, 0] = texts.vectors[:, 0]  # captions of one word: all of a region's attention goes there
    mask = torch.zeros_like(texts.mask)
    mask[:, 0] = True
    leaves = [images.vectors.requires_grad_(), words.requires_grad_()]
    fast = similarity(focal)
    captions = Embedding(leaves[1], mask)
    assert (fast.direction_scores(every(images, captions), "i2t") == 0).all()  # no word beats the only word
    scores = fast(images, captions)
    assert scores.isfinite().all()
    for side in gradients(scores, *leaves):
        assert side.isfinite().all()
    same = Embedding(images.vectors[:, :1].expand(-1, 4, -1).detach().clone().requires_grad_())  # four equal regions
    alike = fast(same, texts)
    assert alike.isfinite().all() and gradients(alike, same.vectors)[0].isfinite().all()


def test_precise_scores_are_those_of_double_sets_outside_training_only() -> None:
    images, texts, _ = sets(3, 5, regions=5, dim=8)
    doubles = Embedding(images.vectors.double()), Embedding(texts.vectors.double(), texts.mask)
    fast = similarity("prob", precise=True)
    assert fast.train()(images, texts).dtype == torch.float32
    assert_close(fast.eval()(images, texts), similarity("prob")(*doubles), atol=0, rtol=0)
    assert_close(fast.pairs(images, texts.take(slice(0, 3))), fast(images, texts)[:, :3].diagonal())


@pytest.mark.parametrize("fixture", FIXTURES)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "bfan", tmp_path / "run")
    assert run.info["arguments"]["focal"] == fixture.removeprefix("bfan_")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 2e-6
    wanted = json.loads((parity / fixture / "expected_metrics.json").read_text())
    found = evaluate(run, pairs, "test", ties="official")
    for way in ("i2t", "t2i"):
        assert found[way] == pytest.approx(wanted[way], abs=1e-6)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_loss_is_the_authors_loss(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "bfan", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    hardest = loss_value(Hinge(siblings="negatives"), batch, scores, embeddings)
    every_one = loss_value(Hinge(siblings="negatives", hardest=False), batch, scores, embeddings)
    assert hardest == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert every_one == pytest.approx(float(expected["loss_sum_over_negatives"]), rel=1e-5)


def test_an_equal_and_a_prob_file_make_the_papers_ensemble(parity: Path, tmp_path: Path) -> None:
    words = parity / "bfan_equal" / "data" / "vocab.json"
    both = [parity / name / "checkpoint.pth.tar" for name in FIXTURES]
    run = import_checkpoints(both, "bfan", words, tmp_path / "both")
    assert [member.similarity.focal for member in run.matcher.members] == ["equal", "prob"]
    _, pairs, expected = imported(parity / "bfan_equal", "bfan", tmp_path / "equal")
    other, _, _ = imported(parity / "bfan_prob", "bfan", tmp_path / "prob")
    wanted = (expected["scores"] + split_scores(other, pairs, "test")) / 2
    assert np.abs(split_scores(run, pairs, "test") - wanted).max() < 2e-6


@pytest.mark.parametrize(("options", "focal"), [({}, "equal"), ({"focal_type": "prob", "lambda_softmax": 20}, "prob")])
def test_files_of_aoq_are_read_by_the_same_layout(options: dict[str, object], focal: str) -> None:
    file = released()
    file["opt"] = options
    foreign = bfan.read(file)
    matcher = (
        bfan.BFAN(**foreign.arguments).recipe(Sizes(pairs=0, pictures=0, image="regions", **foreign.sizes)).matcher()
    )
    matcher.load_state_dict(foreign.weights)
    assert matcher.similarity.focal == focal and matcher.similarity.temperature == 20.0


def test_a_focus_that_is_no_choice_is_refused() -> None:
    with pytest.raises(BadInput, match="focal=all: equal or prob"):
        bfan.BFAN(focal="all").recipe(Sizes(pairs=1, pictures=1, image="regions", image_dim=2))
