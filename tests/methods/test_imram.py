"""IMRAM: looks and memory against a loop that forms every vector, the authors' numbers step by step, and its limits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from matchlight.core import BadInput, Embedding, Sizes
from matchlight.methods import imram
from matchlight.methods.scan import StackedCrossAttention
from matchlight.parts.attention import every
from matchlight.parts.objectives import Hinge
from matchlight.runs.evaluation import evaluate, split_scores
from matchlight.scoring.encode import encode_both
from tests.fixtures import imported, loss_value, recorded_batch
from tests.methods.test_scan import released
from tests.reference import cross_attention as naive
from tests.reference.sets import gradients, sets

FIXTURES = ("imram_full", "imram_text", "imram_image")
SIZES = Sizes(pairs=10, pictures=10, image="regions", image_dim=6, regions=4, vocabulary=12)


def similarity(mode: str, *, steps: int = 3, renormalise: bool = False, dim: int = 6) -> imram.RecurrentAttention:
    torch.manual_seed(1)
    made = imram.RecurrentAttention(
        *imram.MODES[mode], dim=dim, steps=steps, temperature=9.0, renormalise=renormalise
    ).double()
    return made


def loop(fast: imram.RecurrentAttention, images: Embedding, texts: Embedding, lengths: list[int]) -> torch.Tensor:
    memories = {
        way: naive.remember(
            (unit.linear.weight, unit.linear.bias), (unit.gate.weight, unit.gate.bias), unit_length=fast.renormalise
        )
        for way, unit in fast.memory.items()
    }
    return naive.imram(images.vectors, texts.vectors, lengths, memories=memories, steps=fast.steps)


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("mode", imram.MODES)
def test_scores_and_gradients_are_those_of_one_caption_after_another(mode: str, renormalise: bool) -> None:
    images, texts, lengths = sets(3, 5, regions=4, dim=6, dtype=torch.float64)
    fast = similarity(mode, renormalise=renormalise)
    leaves = [images.vectors.requires_grad_(), texts.vectors.requires_grad_(), *fast.parameters()]
    found, wanted = fast(images, texts), loop(fast, images, texts, lengths)
    assert_close(found, wanted, atol=1e-12, rtol=0)
    for ours, theirs in zip(gradients(found, *leaves), gradients(wanted, *leaves), strict=True):
        assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("mode", imram.MODES)
def test_pairs_and_padding_give_what_the_matrix_gives(mode: str) -> None:
    images, texts, _ = sets(4, 4, regions=3, dim=6, dtype=torch.float64)
    fast = similarity(mode)
    whole = fast(images, texts)
    assert_close(fast.pairs(images, texts), whole.diagonal())
    assert texts.mask is not None
    wider = Embedding(
        torch.cat([texts.vectors, torch.randn(4, 3, 6, dtype=torch.float64)], 1),
        torch.cat([texts.mask, torch.zeros(4, 3, dtype=torch.bool)], 1),
    )
    assert_close(fast(images, wider), whole)


@pytest.mark.parametrize(("mode", "direction"), [("text", "t2i"), ("image", "i2t")])
def test_one_look_is_scan_with_the_mean(mode: str, direction: str) -> None:
    images, texts, _ = sets(3, 4, regions=5, dim=6, dtype=torch.float64)
    scan = StackedCrossAttention(direction, aggregate="mean", norm="clipped_l2norm", temperature=9.0, sharpness=1.0)
    one = similarity(mode, steps=1)
    assert_close(one(images, texts), scan(images, texts))
    assert not list(one.parameters())


def test_a_memory_that_keeps_everything_looks_the_same_way_again() -> None:
    images, texts, _ = sets(3, 4, regions=5, dim=6, dtype=torch.float64)
    fast = similarity("full", steps=2)
    with torch.no_grad():
        for unit in fast.memory.values():
            unit.gate.bias.fill_(100.0)
    assert_close(fast(images, texts), 2 * similarity("full", steps=1)(images, texts))


def test_the_memory_by_hand() -> None:
    memory = imram.Memory(1)
    with torch.no_grad():
        memory.linear.weight.copy_(torch.tensor([[1.0, 2.0]]))  # reads q and o
        memory.linear.bias.fill_(0.5)
        memory.gate.weight.copy_(torch.tensor([[0.0, 1.0]]))
        memory.gate.bias.fill_(0.0)
    query, context = torch.tensor([[[3.0]]]), torch.tensor([[[1.0], [-1.0]]])
    weights = torch.tensor([0.25, 0.75]).view(1, 2, 1)  # o = -0.5
    keep = torch.sigmoid(torch.tensor(-0.5))
    assert_close(memory(query, weights, context).flatten(), (keep * 3 + (1 - keep) * torch.tensor(2.5).tanh())[None])


def test_training_in_parts_gives_the_same_scores_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, _ = sets(5, 4, regions=3, dim=6, dtype=torch.float64)
    fast = similarity("full")
    leaves = [images.vectors.requires_grad_(), texts.vectors.requires_grad_(), *fast.parameters()]
    whole = fast(images, texts)
    meeting = every(texts, images)
    assert len(fast._parts(meeting)) == 1
    monkeypatch.setattr(imram, "room_for_training", lambda device: 4 * (8 * 4 * 28 * 6 * 2))  # four pictures
    assert [len(part.seen) for part in fast._parts(meeting)] == [1, 1, 1, 1, 1]  # a quarter of the room each
    parts = fast(images, texts)
    assert_close(parts, whole)
    for ours, theirs in zip(gradients(parts, *leaves), gradients(whole, *leaves), strict=True):
        assert_close(ours, theirs)
    with torch.no_grad():
        assert len(fast._parts(meeting)) == 1


@pytest.mark.parametrize("fixture", FIXTURES)
def test_imported_weights_score_as_the_authors_code_does(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "imram", tmp_path / "run")
    assert np.abs(split_scores(run, pairs, "test") - expected["scores"]).max() < 2e-6
    wanted = json.loads((parity / fixture / "expected_metrics.json").read_text())
    found = evaluate(run, pairs, "test", ties="official")
    for way in ("i2t", "t2i"):
        assert found[way] == pytest.approx(wanted[way], abs=1e-6)


@torch.no_grad()
def test_every_look_is_the_authors_look(parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / "imram_full", "imram", tmp_path / "run")
    images, texts = encode_both(run.matcher, run.inputs(pairs).table, np.arange(12), np.arange(60))
    fast = run.matcher.similarity
    for way, meeting in {"t2i": every(texts, images), "i2t": every(images, texts)}.items():
        for step, found in enumerate(fast.looks(meeting, way)):
            wanted = torch.from_numpy(expected[f"scores_{way}_step{step}"])
            assert_close((found if way == "t2i" else found.T).double(), wanted, atol=2e-6, rtol=0)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_the_loss_is_the_authors_loss(fixture: str, parity: Path, tmp_path: Path) -> None:
    run, pairs, expected = imported(parity / fixture, "imram", tmp_path / "run")
    batch, scores, embeddings = recorded_batch(run, pairs, expected)
    hardest = loss_value(Hinge(siblings="negatives"), batch, scores, embeddings)
    every_one = loss_value(Hinge(siblings="negatives", hardest=False), batch, scores, embeddings)
    assert hardest == pytest.approx(float(expected["loss"]), rel=1e-5)
    assert every_one == pytest.approx(float(expected["loss_sum_over_negatives"]), rel=1e-5)


def flat(**options: object) -> dict[str, object]:
    """A file as the authors save it: one flat dict behind `module.`, memory units for both directions."""
    image, text = released()["model"]  # type: ignore[misc]
    state = {f"module.img_enc.{key.replace('fc.', 'fc_local.')}": value for key, value in image.items()}
    state |= {f"module.txt_enc.{key}": value for key, value in text.items()}
    for layer in ("linear", "gate"):
        for way in ("t2i", "i2t"):
            state[f"module.{layer}_{way}.weight"] = torch.randn(8, 16)
            state[f"module.{layer}_{way}.bias"] = torch.randn(8)
    return {"model": state, "opt": options}


@pytest.mark.parametrize(
    ("options", "units"),
    [
        ({"model_mode": "full_IMRAM", "iteration_step": 3}, {"t2i", "i2t"}),
        ({"model_mode": "text_IMRAM", "iteration_step": 2, "no_IMRAM_norm": True}, {"t2i"}),
        ({"model_mode": "image_IMRAM", "iteration_step": 1}, set()),
    ],
)
def test_a_released_file_loads_with_the_memory_units_its_mode_uses(options: dict[str, object], units: set[str]) -> None:
    foreign = imram.read(flat(**options))
    matcher = (
        imram.IMRAM(**foreign.arguments).recipe(Sizes(pairs=0, pictures=0, image="regions", **foreign.sizes)).matcher()
    )
    matcher.load_state_dict(foreign.weights)
    assert set(matcher.similarity.memory) == units
    assert matcher.similarity.renormalise is not bool(options.get("no_IMRAM_norm"))
    assert matcher.similarity.steps == options["iteration_step"]


@pytest.mark.parametrize("wrong", [{"mode": "both"}, {"steps": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        imram.IMRAM(**wrong).recipe(SIZES)
