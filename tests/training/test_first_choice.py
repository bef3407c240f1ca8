"""Training without a method's name: the most robust recipe for the data, the machine and the weights at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput, Sizes
from matchlight.files import read_json
from matchlight.inputs.weights import weight_store
from matchlight.methods.captioning import Described
from matchlight.parts.objectives import Hinge, SoftmaxLoss
from matchlight.training.first_choice import first_choice
from matchlight.training.registry import methods, settings_of
from tests.tiny import tiny_pairs, tiny_pictures, tiny_settings


def test_the_choice_follows_data_machine_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tiny_pairs(24, 2)
    assert first_choice(pairs, "cuda").method == "lantern"
    monkeypatch.setattr(weight_store, "here", lambda weights: None)
    bare = first_choice(pairs, "cpu")
    assert bare.method == "vse_infty" and not bare.settings and "matchlight[sentences]" in bare.why
    monkeypatch.setattr(weight_store, "here", lambda weights: Path("somewhere"))
    reading = first_choice(pairs, "cpu")
    assert reading.method == "vse_infty" and reading.settings["sentences"] == "minilm"
    vectors = replace(pairs, text_features=np.zeros((48, 4), np.float32))
    assert first_choice(vectors, "cpu").method == "mrl"
    with pytest.raises(BadInput, match="name a method"):
        first_choice(replace(vectors, labels=None), "cpu")


@pytest.mark.parametrize("weights", [None, Path("somewhere")])
def test_what_is_chosen_for_a_gpu_can_be_built_with_a_sentence_encoder_or_without(
    monkeypatch: pytest.MonkeyPatch, weights: Path | None
) -> None:
    monkeypatch.setattr(weight_store, "here", lambda asked: weights)
    choice = first_choice(tiny_pairs(24, 2), "cuda")
    settings, _ = settings_of(methods()[choice.method], choice.settings, pairs=30000, device="cuda")
    sizes = Sizes(pairs=10, pictures=5, image="regions", image_dim=8, regions=4, vocabulary=20)
    recipe = methods()[choice.method].build(sizes, **settings)
    assert (recipe.begin is not None) == (weights is not None)  # only what was read before can be correlated


def test_the_heads_are_trained_in_bfloat16_only_where_the_processor_multiplies_in_it(monkeypatch) -> None:
    monkeypatch.setattr(weight_store, "here", lambda weights: Path("somewhere"))
    pictures = tiny_pictures(8, held=2)
    for multiplies, precision in ((True, "bf16"), (False, "auto")):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda answer=multiplies: answer, raising=False)
        assert first_choice(pictures, "cpu").precision == precision
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported", raising=False)  # as in older versions of torch
    assert first_choice(pictures, "cpu").precision == "auto"


def test_training_without_a_name_says_which_and_why(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(weight_store, "here", lambda weights: None)
    small = {**tiny_settings(methods()["vse_infty"].defaults), "epochs": 1}
    run = ml.train(None, tiny_pairs(24, 2), tmp_path / "run", device="cpu", **small)
    assert run.method == "vse_infty" and run.info["arguments"]["loss"] == "rclog"
    assert "no method named: vse_infty (on a CPU" in capsys.readouterr().err
    again = ml.train(None, tiny_pairs(24, 2), tmp_path / "more", device="cpu", start=run, **small)
    assert again.method == "vse_infty"


def test_an_override_may_stand_where_the_method_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "epochs=0", "--data", str(tmp_path), "-o", str(tmp_path / "run")]) == 2
    assert "no method" not in capsys.readouterr().err  # it is no mistyped name


@pytest.mark.parametrize("name", ["vse++", "scan", "bfan", "imram", "saf", "vsrn", "pvse"])
def test_the_loss_in_place_of_the_hinge_ranks_and_the_rest_stays(name: str) -> None:
    method = methods()[name]
    settings = tiny_settings(method.defaults)
    sizes = Sizes(pairs=10, pictures=5, image="regions", image_dim=8, regions=4, vocabulary=20)
    hinge, robust = (method.build(sizes, **{**settings, "loss": loss}).objective() for loss in ("hinge", "gce"))
    assert isinstance(robust, Described) == isinstance(hinge, Described)  # captioning beside the ranking stays
    ranking = getattr(robust, "ranking", robust)
    assert isinstance(ranking, SoftmaxLoss) and ranking.kind == "gce"
    assert isinstance(getattr(hinge, "ranking", hinge), Hinge) or name == "pvse"  # whose hinge is its own


def test_a_run_keeps_how_likely_its_hits_were_on_validation_pictures(tmp_path: Path) -> None:
    pairs = tiny_pairs(120, 2, held=30)
    small = {**tiny_settings(methods()["vse_infty"].defaults), "epochs": 2}
    run = ml.train("vse_infty", pairs, tmp_path / "run", device="cpu", **small)
    kept = read_json(run.folder / "chance.json", "a run's chances")
    assert kept["image"]["measured"]["questions"] >= 40
    bare = pairs.select(np.arange(40), np.zeros(0, np.int64))
    with ml.Index.build(run, bare, tmp_path / "index") as index:
        found = index.search(pairs.captions[0])
        assert found.chances_from == "run" and all(hit.chance is not None for hit in found.hits)
