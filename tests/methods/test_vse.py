"""VSE++ and VSE-infinity against the authors' numbers, and what their parts promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Items, Sizes
from matchlight.methods import vse
from matchlight.parts.encoders import LastState
from matchlight.parts.layers import masked_mean
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.scoring.encode import encode
from matchlight.training import schedules
from matchlight.training.strategies import Plain, WarmUp
from tests.fixtures import imported, loss_value, recorded_batch

FIXTURES = {"vsepp": "vse++", "vse_infty": "vse_infty"}
SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, FIXTURES[fixture], tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 1e-5
    inputs = run.inputs(pairs)
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, inputs.table, side, np.arange(count))
        assert_close(found.single, torch.from_numpy(expected[key]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_loss_is_the_authors_loss(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, FIXTURES[fixture], tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    hardest = loss_value(Hinge(siblings="negatives"), batch, scores, embeddings)
    every = loss_value(Hinge(siblings="negatives", hardest=False), batch, scores, embeddings)
    assert hardest == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert every == pytest.approx(float(expected["loss_sum_over_negatives"]), rel=1e-5)


def test_regions_cut_to_other_counts_agree_with_the_authors_code(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "vse_infty", "vse_infty", tmp_path / "run")
    regions = torch.from_numpy(np.asarray(pairs.features.gather(np.arange(3)), dtype=np.float32))
    mask = torch.arange(36)[None] < torch.tensor([20, 36, 31])[:, None]
    items = Items(regions * mask[..., None], mask, torch.arange(3))
    with torch.no_grad():
        found = run.matcher.embed(IMAGE, items).single
    assert_close(found, torch.from_numpy(expected["img_emb_first3_len_20_36_31"]), atol=1e-5, rtol=0)
    theta = run.matcher.encoders[IMAGE].pool.weights(torch.tensor([36]), 36)[0]
    assert_close(theta, torch.from_numpy(expected["gpo_img_weights_len36"]), atol=1e-6, rtol=0)


def test_the_report_of_an_imported_run_is_the_recorded_one(parity: Path, tmp_path: Path) -> None:
    import json

    for fixture, method in FIXTURES.items():
        run, pairs, _ = imported(parity / fixture, method, tmp_path / fixture)
        expected = json.loads((parity / fixture / "expected_metrics.json").read_text())
        found = evaluate(run, pairs, "test")
        assert found["rsum"] == pytest.approx(expected["rsum"], abs=1e-3)


def test_a_caption_is_its_state_at_the_last_word() -> None:
    torch.manual_seed(0)
    encoder = LastState(12, 5, word_dim=4, layers=1, absolute=False, eps=1e-8)
    tokens = torch.tensor([[1, 5, 2, 0, 0]])
    items = Items(tokens, tokens > 0, torch.arange(1), {"length": torch.tensor([3])})
    _, state = encoder.words.ahead(encoder.words.embed(tokens[:, :3]))
    assert_close(encoder(items).single, torch.nn.functional.normalize(state[0]))


def test_region_features_enter_vse_plus_plus_through_their_mean() -> None:
    matcher = vse.VSEPlusPlus(dim=8, word_dim=4).recipe(SIZES).matcher()
    x = torch.randn(3, 4, 6)
    regions = matcher.embed(IMAGE, Items(x, None, torch.arange(3)))
    vectors = matcher.embed(IMAGE, Items(masked_mean(x, None), None, torch.arange(3)))
    assert_close(regions.single, vectors.single)


@pytest.mark.parametrize("wrong", [{"loss": "hing"}, {"pooling": "max"}, {"schedule": "cosine"}, {"words": "some"}])
def test_a_word_that_is_no_choice_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        vse.VSEInfinity(**wrong).recipe(SIZES)


def test_hardening_needs_the_hinge() -> None:
    with pytest.raises(BadInput, match="harden=2 .* add loss=hinge$"):
        vse.VSEInfinity(loss="infonce", harden=2).recipe(SIZES)
    found = [type(vse.VSEInfinity(warm=0, harden=harden).recipe(SIZES).strategy) for harden in (0, 2)]
    assert found == [Plain, WarmUp]


def test_rates_follow_their_papers() -> None:
    assert [schedules.staircase(e, 0, 1, every=15) for e in (0, 14, 15, 30)] == pytest.approx([1, 1, 0.1, 0.01])
    assert [schedules.step_down(e, 0, 1, at=15) for e in (14, 15, 24)] == [1.0, 0.1, 0.1]
    cycle = [schedules.one_cycle(0, s, 100, epochs=1) for s in range(100)]
    assert max(cycle) == pytest.approx(1.0) and cycle[0] < 0.05 and cycle[-1] < 0.01
    assert schedules.released(0, 0, 1, rates=lambda *a: 1.0, frozen=1)["backbone"] == 0
