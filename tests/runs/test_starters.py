"""Starters: names that are taken wherever a run is, weights that come with the package, and what they need."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import matchlight as ml
from matchlight.cli import main
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.inputs.prepare import prepare, view_of
from matchlight.runs import starters
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.runs.starters import LARGE, SMALL, STARTERS, best_starter, run_folder
from matchlight.runs.train_run import reader_of
from matchlight.scoring.encode import encode
from tests.tiny import tiny_pairs, tiny_pictures

COLOURS = ("red", "green", "blue")


def test_what_is_shipped_is_small_and_in_half_precision() -> None:
    from safetensors import safe_open

    for starter in STARTERS.values():
        assert starter.size <= 25e6
        with safe_open(str(starter.folder / "model.safetensors"), framework="pt") as file:
            kinds = {file.get_tensor(name).dtype for name in file.keys() if "num_batches" not in name}  # noqa: SIM118
        assert [str(kind) for kind in kinds] == ["torch.float16"]


def test_both_know_how_likely_their_hits_are_right() -> None:
    for starter in STARTERS.values():
        curves = json.loads((starter.folder / "chance.json").read_text())
        assert set(curves) == {IMAGE, TEXT} and all(curve["measured"]["error"] < 0.05 for curve in curves.values())


def test_a_name_is_a_starter_unless_a_run_of_that_name_is_here(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_folder("starter") == run_folder(Path("starter")) == LARGE.folder
    assert run_folder("./my-starter") == Path("my-starter")
    (tmp_path / "starter").mkdir()
    assert run_folder("starter") == LARGE.folder, "a folder that holds no run is no run"
    (tmp_path / "starter" / "recipe.json").write_text("{}")
    assert run_folder("starter") == Path("starter")


def test_a_name_that_is_no_run_is_told_of_the_starters() -> None:
    with pytest.raises(BadInput, match="not a run folder.*starter and starter-small come with the package"):
        Run.load("startr")


def test_both_open_without_the_weights_of_their_reader_in_the_file() -> None:
    for starter in STARTERS.values():
        run = Run.load(starter.name, device="cpu")
        assert run.method == "vse_infty" and run.view.sentences == "minilm"
        reader = run.matcher.state_dict()["encoders.text.reader.bert.pieces.weight"]
        assert reader.abs().sum() > 0, "read from its own package"


def test_the_best_starter_is_the_one_whose_parts_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        starters.weight_store, "here", lambda weights: None if weights.name == "dinov2-small" else Path()
    )
    assert best_starter() is SMALL and LARGE.fix == "matchlight weights get dinov2-small"
    monkeypatch.setattr(starters.weight_store, "here", lambda weights: Path())
    assert best_starter() is LARGE
    monkeypatch.setattr(starters, "find_spec", lambda name: None)
    assert LARGE.fix == "pip install transformers"
    with pytest.raises(BadInput, match="starter-small needs tokenizers, which is not here: `pip install tokenizers`"):
        best_starter()


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours")
    rng = np.random.default_rng(0)
    for number in range(9):
        noise = rng.integers(0, 40, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise + np.eye(3, dtype=np.uint8)[number % 3] * 200).save(
            folder / f"{COLOURS[number % 3]}{number}.png"
        )
    return folder


def test_a_folder_is_indexed_and_searched_with_no_training(colours: Path, tmp_path: Path, capsys) -> None:
    line = ["photos", str(colours), "--model", "starter-small", "-o", str(tmp_path / "index"), "--no-serve", "--json"]
    assert main(line) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["pictures"], told["model"]) == (9, "starter-small")
    assert main(["search", str(tmp_path / "index"), "a photo that is all red", "--top", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert [hit["image"].rstrip("0123456789.pn")[:3] for hit in found] == ["red"] * 3
    assert all(0 < hit["chance"] < 1 for hit in found), "measured where the starter was made"


def test_going_on_from_a_starter(tmp_path: Path, capsys) -> None:
    pairs = tiny_pictures(12, held=4)
    from matchlight.data import formats

    data = formats.write(pairs, tmp_path / "data")
    line = ["--from", "starter-small", "--data", str(data), "-o"]
    assert main(["train", "dive", *line, str(tmp_path / "dive"), "preset=small", "epochs=1"]) == 2
    assert "`matchlight train vse_infty --from` it, without preset= and sizes, goes on" in capsys.readouterr().err
    assert main(["train", "vse_infty", *line, str(tmp_path / "run"), "epochs=1", "batch=8"]) == 0
    kept = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert kept["start"]["run"] == "starter-small" and kept["arguments"]["sentences"] == "minilm"


def test_lantern_and_ncr_plus_go_on_from_a_starter_with_its_scorer(tmp_path: Path, capsys) -> None:
    pairs, start = tiny_pictures(12, held=4), Run.load(SMALL.name, device="cpu")
    frozen = {"backbone": SMALL.name, "finetune": False, "batch": 8, "rate": 1e-12, "device": "cpu"}
    for method, told in (("lantern", True), ("ncr+", False)):  # vse_infty is what ncr+ trains anyway
        run = ml.train(method, pairs, tmp_path / method, start=start, epochs=1, **frozen)
        line = f"{method} goes on from starter-small with scorer=vse_infty, as that run was trained"
        assert (line in capsys.readouterr().err) == told
        settings = run.info["arguments"]
        assert (settings["scorer"], settings["dim"], settings["sentences"]) == ("vse_infty", 1024, "minilm")
        assert (settings["loss"], settings["temperature"]) == ("auto", 0.05), "the method's own"
        assert len(run.matcher.each()) == 2
        scores = [split_scores(one, pairs, "test") for one in (run, start)]
        np.testing.assert_allclose(*scores, atol=5e-3)  # at a rate of nothing it stays where it began


def test_frozen_it_reads_pictures_and_captions_as_the_starter_does(tmp_path: Path) -> None:
    pairs = tiny_pictures(12, held=4)
    start = Run.load(SMALL.name, device="cpu")
    frozen = {"backbone": SMALL.name, "finetune": False, "epochs": 1, "batch": 8, "rate": 1e-12}
    run = ml.train("vse_infty", pairs, tmp_path / "run", start=start, device="cpu", **frozen)
    for side, count in ((IMAGE, len(pairs.names)), (TEXT, len(pairs))):
        before, after = (encode(one.matcher, one.inputs(pairs).table, side, np.arange(count)) for one in (start, run))
        assert torch.allclose(before.vectors, after.vectors, atol=2e-3), side  # features are stored in 16 bits


def test_captions_are_read_once_by_the_reader_of_the_run_that_is_gone_on_from(tmp_path: Path) -> None:
    pairs = tiny_pairs(24, 2)
    tuned = ml.train("vse_infty", pairs, tmp_path / "first", device="cpu", epochs=1, dim=8, sentences="minilm")
    reader = tuned.matcher.encoders[TEXT].reader
    with torch.no_grad():
        reader.bert.blocks[5].wide.weight.mul_(1.5)
    settings = {"sentences": "minilm", "sentences_rate": 0.0, "drop_words": 0.0}
    assert reader_of(tuned, settings) is reader and reader_of(tuned, {"sentences": "gte-small"}) is None
    view = view_of(settings, pooled=False, pairs=pairs)
    states = prepare(pairs, view, device=torch.device("cpu"), reader=reader).table.states
    assert states is not None
    ids, mask = reader.tokenize(pairs.captions[:1])
    with torch.inference_mode():
        assert np.allclose(states.batch(np.arange(1)), reader(ids, mask).numpy(), atol=2e-3)


def test_heads_of_a_tuned_network_are_not_put_on_the_network_as_it_came(tmp_path: Path) -> None:
    asked = {"finetune": False, "epochs": 1}
    start = Run.load(SMALL.name, device="cpu")
    with pytest.raises(BadInput, match="finetune=false would read pictures with tinyvit-5m"):
        ml.train("vse_infty", tiny_pictures(12, held=4), tmp_path / "run", start=start, device="cpu", **asked)


def test_weights_lists_starters_and_says_what_they_need(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path))
    assert main(["weights", "list", "--json"]) == 0
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)["weights"]}
    assert told["starter"]["needs"] == "dinov2-small" and told["starter-small"]["needs"] is None
    assert main(["weights", "where", "starter-small"]) == 0
    assert Path(capsys.readouterr().out.strip()) == SMALL.folder
    assert main(["weights", "remove", "starter"]) == 2
    assert "it comes with this package" in capsys.readouterr().err
