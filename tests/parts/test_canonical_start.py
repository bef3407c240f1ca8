"""Two towers from parts: any backbone, any sentence encoder, and projections that begin with canonical correlation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.data.noise import mismatch
from matchlight.files import read_json
from matchlight.inputs.prepare import prepare, view_of
from matchlight.methods.vse import VSEInfinity
from matchlight.parts.canonical_correlation import fit_canonical_correlation
from matchlight.parts.canonical_start import POWER, start_canonically
from matchlight.scoring.encode import encode
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_bert, tiny_pairs, tiny_pictures

transformers = pytest.importorskip("transformers")
CPU = torch.device("cpu")
SMALL = {"dim": 12, "hidden": 8, "batch": 16, "epochs": 2, "rate": 1e-3, "warm": 0, "drop_words": 0.0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def started(bert: str, **settings: object) -> tuple[Trainer, VSEInfinity]:
    """A trainer before its first step."""
    pairs = tiny_pairs(60, held=10)
    asked = {**SMALL, "sentences": bert, **settings}
    inputs = prepare(pairs, view_of(asked, pooled=False, pairs=pairs), device=CPU)
    arguments = VSEInfinity(**asked)
    trainer = Trainer(Path("unused"), arguments.recipe(inputs.sizes), inputs)
    trainer.networks["A"].begin(trainer.table, trainer.rows, 0)
    return trainer, arguments


def vectors(trainer: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    matcher, pairs = trainer.networks["A"].matcher, trainer.pairs
    both = [(IMAGE, np.arange(len(pairs.names))), (TEXT, np.arange(len(pairs)))]
    found = [encode(matcher, trainer.table, side, places).single for side, places in both]
    return found[0], found[1]


def test_before_the_first_step_scores_are_those_of_the_closed_form(bert: str) -> None:
    trainer, _ = started(bert)
    images, texts = vectors(trainer)
    reader, rows = trainer.networks["A"].matcher.encoders[TEXT].reader.eval(), trainer.rows
    with torch.no_grad():
        states = [reader(*reader.tokenize([caption]))[0].mean(0).double() for caption in trainer.pairs.captions]
    means = torch.from_numpy(trainer.pairs.features.gather(np.arange(60))).double().mean(1), torch.stack(states)
    owners = torch.from_numpy(trainer.pairs.picture[rows])
    weight = torch.ones(len(rows)).double()
    closed = fit_canonical_correlation(means[0][owners], means[1][rows], weight, power=POWER)
    assert_close(images @ texts.T, closed.vectors(0, means[0]) @ closed.vectors(1, means[1]).T, atol=1e-3, rtol=0)


@pytest.mark.parametrize("pooling", ["gpo", "top"])
def test_pairs_fit_before_the_first_step(bert: str, pooling: str) -> None:
    images, texts = vectors(started(bert, pooling=pooling)[0])
    own = (images[np.repeat(np.arange(60), 2)] * texts).sum(1)[:80]
    other = (images[np.repeat(np.roll(np.arange(40), 1), 2)] * texts[:80]).sum(1)
    assert own.mean() > 0.3 + other.mean()


def test_the_seed_decides_all_of_it(bert: str) -> None:
    one, same = (started(bert)[0].networks["A"].matcher.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], same[name]) for name in one)


def test_outputs_without_a_direction_are_small_but_can_learn(bert: str) -> None:
    trainer, _ = started(bert, dim=20)
    weight = trainer.networks["A"].matcher.encoders[IMAGE].linear.weight
    assert 0 < weight[12:].abs().max() < 0.5 * weight[:12].abs().max()


def test_a_fit_on_some_of_many_pairs_is_drawn_by_the_seed(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matchlight.parts.canonical_start.MOST", 30)
    trainer, _ = started(bert)
    matcher = trainer.networks["A"].matcher
    first = matcher.encoders[TEXT].linear.weight.clone()
    start_canonically(matcher, trainer.table, trainer.rows, 1)
    other = matcher.encoders[TEXT].linear.weight.clone()
    start_canonically(matcher, trainer.table, trainer.rows, 0)
    assert not torch.allclose(first, other) and torch.allclose(first.abs(), matcher.encoders[TEXT].linear.weight.abs())


def test_frozen_parts_stay_and_a_run_opens_again(bert: str, tmp_path: Path) -> None:
    pairs, _ = mismatch(tiny_pairs(60, held=10), ratio=0.4, seed=0)
    run = ml.train("vse_infty", pairs, tmp_path / "run", device="cpu", **SMALL, sentences=bert, sentences_rate=0)
    reader = run.matcher.encoders[TEXT].reader
    fresh = VSEInfinity(**SMALL, sentences=bert).network(ml.core.Sizes(1, 1, "regions", 12)).encoders[TEXT].reader
    assert all(torch.equal(a, b) for a, b in zip(reader.parameters(), fresh.parameters(), strict=True))
    assert ml.evaluate(run, pairs, "test")["rsum"] > 400  # through 40% wrong pairs; 291 by chance


def test_both_sides_from_folders_tuned_and_resumed_to_the_same_weights(
    bert: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dino")
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14}
    torch.manual_seed(0)
    transformers.Dinov2Model(transformers.Dinov2Config(**shape, image_size=28)).save_pretrained(folder)
    transformers.BitImageProcessor(size={"height": 28, "width": 28}, do_center_crop=False).save_pretrained(folder)
    asked = {**SMALL, "sentences": bert, "backbone": f"hf:{folder}", "finetune": True, "drop_words": 0.2}
    pairs = tiny_pictures(40, held=6)
    whole = ml.train("vse_infty", pairs, tmp_path / "whole", device="cpu", **asked)
    with pytest.MonkeyPatch.context() as patch:  # stopped after the first epoch
        patch.setattr(Trainer, "_patience_spent", lambda trainer: trainer.epoch >= 1)
        ml.train("vse_infty", pairs, tmp_path / "part", device="cpu", **asked)
    part = ml.train("vse_infty", pairs, tmp_path / "part", device="cpu", resume=True, **asked)
    ends = [run.matcher.state_dict() for run in (whole, part)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_start_that_no_epoch_betters_is_what_is_kept(bert: str, tmp_path: Path) -> None:
    pairs, asked = tiny_pairs(60, held=10), {**SMALL, "sentences": bert, "sentences_rate": 0}
    run = ml.train("vse_infty", pairs, tmp_path / "run", device="cpu", **asked | {"rate": 10.0, "clip": 0.0})
    assert read_json(run.folder / "metrics.json", "metrics")["epoch"] == -1
    kept = run.matcher.encoders[TEXT].linear.weight
    assert torch.equal(kept, started(bert, sentences_rate=0)[0].networks["A"].matcher.encoders[TEXT].linear.weight)


def test_it_needs_captions_that_are_read_already(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sentences=minilm"):
        ml.train("vse_infty", tiny_pairs(), tmp_path, device="cpu", projections="canonical")
