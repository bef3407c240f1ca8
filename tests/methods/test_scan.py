"""SCAN against a loop over captions, the authors' numbers, and the traps of padding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Sizes
from matchlight.methods import scan
from matchlight.parts.attention import AGGREGATES, NORMS
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.runs.importing import import_checkpoints
from matchlight.scoring.encode import encode
from matchlight.training.registry import settings_of
from tests.fixtures import imported, loss_value, recorded_batch
from tests.reference import cross_attention as naive
from tests.reference.sets import gradients, sets

FIXTURES = ("scan_t2i", "scan_i2t")
SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)


def similarity(direction: str = "t2i", **changes: object) -> scan.StackedCrossAttention:
    given = {"aggregate": "lse", "norm": "clipped_l2norm", "temperature": 9.0, "sharpness": 6.0, **changes}
    return scan.StackedCrossAttention(direction, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_all_pairs_at_once_score_as_one_caption_after_another(direction: str, norm: str) -> None:
    images, texts, lengths = sets(4, 6, regions=5, dim=8)
    for aggregate in AGGREGATES:
        fast = similarity(direction, aggregate=aggregate, norm=norm)
        wanted = naive.scan(images.vectors, texts.vectors, lengths, direction=direction, aggregate=aggregate, norm=norm)
        assert_close(fast(images, texts), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_gradients_are_those_of_the_loop_and_finite_behind_padding(direction: str, norm: str) -> None:
    images, texts, lengths = sets(3, 6, regions=4, dim=5, dtype=torch.float64)
    leaves = [images.vectors.requires_grad_(), texts.vectors.requires_grad_()]
    fast = similarity(direction, norm=norm)(images, texts)
    slow = naive.scan(*leaves, lengths, direction=direction, norm=norm)
    assert_close(fast, slow, atol=1e-12, rtol=0)
    for ours, theirs in zip(gradients(fast, *leaves), gradients(slow, *leaves), strict=True):
        assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_a_word_or_a_picture_alone_can_be_scored(direction: str) -> None:
    images, texts, lengths = sets(1, 6, regions=5, dim=8)
    assert min(lengths) == 1
    fast, one = similarity(direction), lengths.index(1)
    single = fast(images, Embedding(texts.vectors[[one], :1]))
    assert_close(single, fast(images, texts)[:, [one]], atol=1e-6, rtol=1e-5)


def test_masked_regions_are_as_good_as_absent() -> None:
    images, texts, _ = sets(3, 4, regions=6, dim=8)
    mask = torch.arange(6)[None] < torch.tensor([6, 4, 4])[:, None]
    fewer = Embedding(images.vectors[1:, :4])
    for direction in ("t2i", "i2t"):
        fast = similarity(direction)
        assert_close(fast(Embedding(images.vectors, mask), texts)[1:], fast(fewer, texts), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "scan", tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 2e-6
    assert np.abs(split_scores(run, pairs, "test", budget=1) - expected["scores"]).max() < 2e-6
    table = run.inputs(pairs).table
    for side, key, count in ((IMAGE, "img_emb", 12), (TEXT, "txt_emb", 60)):
        found = encode(run.matcher, table, side, np.arange(count)).vectors
        assert_close(found, torch.from_numpy(expected[key]), atol=1e-6, rtol=0)
    wanted = json.loads((parity / fixture / "expected_metrics.json").read_text())
    found = evaluate(run, pairs, "test", ties="official")
    for way in ("i2t", "t2i"):
        assert found[way] == pytest.approx(wanted[way], abs=1e-6)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_loss_is_the_authors_loss(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "scan", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    hardest = loss_value(Hinge(siblings="negatives"), batch, scores, embeddings)
    every = loss_value(Hinge(siblings="negatives", hardest=False), batch, scores, embeddings)
    assert hardest == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert every == pytest.approx(float(expected["loss_sum_over_negatives"]), rel=1e-5)


def test_several_files_make_an_ensemble_of_mean_scores(parity: Path, tmp_path: Path) -> None:
    file, words = parity / "scan_t2i" / "checkpoint.pth.tar", parity / "scan_t2i" / "data" / "vocab.json"
    run = import_checkpoints([file, file], "scan", words, tmp_path / "two")
    alone, pairs, expected = imported(parity / "scan_t2i", "scan", tmp_path / "one")
    assert len(run.matcher.members) == 2
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 2e-6


def released(*, weight_norm: bool = False, both_ways: bool = True) -> dict[str, object]:
    """A checkpoint as the authors' code lays it out, with small random weights."""
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    image = {"fc.weight_g": torch.tensor(3.0), "fc.weight_v": some(8, 6)} if weight_norm else {"fc.weight": some(8, 6)}
    text = {"embed.weight": some(12, 5)}
    for end in ("", "_reverse") if both_ways else ("",):
        text |= {f"rnn.weight_ih_l0{end}": some(24, 5), f"rnn.weight_hh_l0{end}": some(24, 8)}
        text |= {f"rnn.bias_{part}_l0{end}": some(24) for part in ("ih", "hh")}
    return {"model": [image | {"fc.bias": some(8)}, text], "opt": {}}


def rebuilt(file: dict[str, object]) -> torch.nn.Module:
    foreign = scan.read(file)
    sizes = Sizes(pairs=0, pictures=0, image="regions", **foreign.sizes)
    matcher = scan.SCAN(**foreign.arguments).recipe(sizes).matcher()
    matcher.load_state_dict(foreign.weights)
    return matcher


def test_a_weight_normalised_projection_is_read_as_the_matrix_it_stands_for() -> None:
    file = released(weight_norm=True)
    image = file["model"][0]  # type: ignore[index]
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 8), dim=None)
    layer.load_state_dict(
        {
            "parametrizations.weight.original0": image["fc.weight_g"],
            "parametrizations.weight.original1": image["fc.weight_v"],
            "bias": image["fc.bias"],
        }
    )
    x = torch.randn(2, 4, 6)
    found = rebuilt(file).encoders[IMAGE].fc(x)  # type: ignore[union-attr, index, operator]
    assert_close(found, layer(x))


def test_a_model_with_a_one_way_gru_is_read_as_such() -> None:
    matcher = rebuilt(released(both_ways=False))
    words = matcher.encoders[TEXT].words  # type: ignore[union-attr, index]
    assert words.back is None
    tokens = torch.tensor([[1, 4, 7, 2]])
    states, _ = words.ahead(words.embed(tokens))
    found = matcher.encoders[TEXT](Items(tokens, None, torch.arange(1))).vectors  # type: ignore[union-attr, index, operator]
    assert_close(found, torch.nn.functional.normalize(states, dim=-1))


def test_options_of_a_released_file_become_arguments() -> None:
    file = released()
    file["opt"] = {
        "cross_attn": "i2t", "agg_func": "Sum", "raw_feature_norm": "l2norm", "lambda_softmax": 4.0, "lambda_lse": 5.0,
        "no_imgnorm": True, "max_violation": False, "margin": 0.1,
    }  # fmt: skip
    named = scan.read(file).arguments
    assert (named["direction"], named["aggregate"], named["norm"]) == ("i2t", "sum", "l2norm")
    assert (named["temperature"], named["sharpness"], named["margin"]) == (4.0, 5.0, 0.1)
    assert (named["image_norm"], named["text_norm"], named["hardest"]) == (False, True, False)


def test_lambdas_are_the_papers_for_each_direction_unless_given() -> None:
    found = {way: scan.SCAN(direction=way, dim=8).recipe(SIZES).matcher().similarity for way in ("t2i", "i2t")}
    assert [(s.temperature, s.sharpness) for s in found.values()] == [(9.0, 6.0), (4.0, 5.0)]
    assert scan.SCAN(dim=8, temperature=7.0).recipe(SIZES).matcher().similarity.temperature == 7.0


def test_presets_are_the_settings_of_the_data_sets() -> None:
    chosen, _ = settings_of(scan.METHODS[0], {"preset": "coco"}, pairs=10, device="cpu")
    assert (chosen["epochs"], chosen["rate"], chosen["decay_every"]) == (20, 5e-4, 10)
    chosen, _ = settings_of(scan.METHODS[0], {"preset": "f30k"}, pairs=10, device="cpu")
    assert (chosen["epochs"], chosen["rate"], chosen["decay_every"]) == (30, 2e-4, 15)


@pytest.mark.parametrize("wrong", [{"direction": "both"}, {"aggregate": "LogSumExp"}, {"norm": "l3norm"}])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=f"{next(iter(wrong))}=.* or "):
        scan.SCAN(**wrong).recipe(SIZES)


def test_proposals_are_unit_means_of_real_members() -> None:
    _, texts, lengths = sets(1, 4, regions=2, dim=5)
    coarse = similarity().coarse(texts, TEXT)
    assert coarse is not None and coarse.shape == (4, 1, 5)
    wanted = [texts.vectors[t, :n].mean(0) for t, n in enumerate(lengths)]
    assert_close(coarse[:, 0], torch.nn.functional.normalize(torch.stack(wanted), dim=-1))
