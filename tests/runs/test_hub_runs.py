"""A run goes to the hub and comes back as the same run, with a card; nothing else is sent, and nothing else is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny import SETTINGS, tiny_pairs

import matchlight as ml
from matchlight import files
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.runs.card import CARD, noise_found, stated, write_card
from matchlight.runs.evaluation import split_scores
from matchlight.runs.hub_runs import write_shareable
from tests.runs.hub_server import FakeHub, serving

pytest.importorskip("huggingface_hub")
SMALL = {name: SETTINGS[name] for name in ("dim", "hidden", "word_dim", "batch")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ml.train("vse_infty", tiny_pairs(), tmp_path_factory.mktemp("runs") / "one", epochs=1, **SMALL).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(monkeypatch, str(tmp_path / "cache")) as served:
        yield served


def head(folder: Path) -> dict:
    """The part of a card that programs read."""
    return yaml.safe_load((folder / CARD).read_text().split("---\n")[1])


# ---- there and back --------------------------------------------------------------------------------------------------


def test_a_run_comes_back_from_the_hub_with_the_same_bytes_of_scores(run: Path, hub: FakeHub) -> None:
    first = ml.load(run)
    assert first.push_to_hub("me/model", licence="mit") == f"{hub.address}/me/model"
    again = ml.load("hf:me/model")
    before, after = (split_scores(one, tiny_pairs(), "test") for one in (first, again))
    assert before.tobytes() == after.tobytes() and np.isfinite(before).all()
    assert "models--me--model/snapshots" in str(again.folder)


def test_only_what_using_the_model_needs_is_sent(run: Path, hub: FakeHub) -> None:
    (run / "notes.txt").write_text("mine")
    ml.load(run).push_to_hub("me/model")
    sent = set(hub.repositories["me/model"])
    assert sent == {
        "recipe.json", "model.safetensors", "vocab.json", "labels.json", "metrics.json", "log.jsonl", "README.md",
    }  # fmt: skip
    assert {"seen.npy", "evidence.npy", "state"} <= {path.name for path in run.iterdir()}


def test_without_a_network_the_copy_on_this_machine_is_used(
    run: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ml.load(run).push_to_hub("me/model")
    folder = ml.load("hf:me/model").folder
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(hub.asked)
    assert ml.load("hf:me/model").folder == folder and len(hub.asked) == asked
    with pytest.raises(BadInput, match="hf:me/other is not on this machine, and the hub cannot be reached"):
        ml.load("hf:me/other")


def test_a_newer_version_is_fetched_and_an_older_one_by_its_name(run: Path, hub: FakeHub) -> None:
    ml.load(run).push_to_hub("me/model")
    first = ml.load("hf:me/model").folder
    hub.repositories["me/model"]["metrics.json"] = b"{}"
    assert ml.load("hf:me/model").folder != first
    assert ml.load(f"hf:me/model@{first.name}").folder == first


def test_pickles_and_code_in_a_repository_are_not_fetched(run: Path, hub: FakeHub) -> None:
    ml.load(run).push_to_hub("me/model")
    hub.repositories["me/model"] |= {"run.py": b"raise SystemExit", "pretrained/pytorch_model.bin": b"\x80\x04."}
    folder = ml.load("hf:me/model").folder
    assert not [path for path in folder.rglob("*") if path.suffix in (".py", ".bin")]
    assert not [path for _, path in hub.asked if path.endswith((".py", ".bin"))]


def test_a_hostile_recipe_of_the_hub_is_one_line(run: Path, hub: FakeHub) -> None:
    ml.load(run).push_to_hub("me/model")
    recipe = json.loads(hub.repositories["me/model"]["recipe.json"])
    recipe["method_file"] = {"path": "/tmp/evil.py", "sha256": "0" * 64}
    hub.repositories["me/model"]["recipe.json"] = json.dumps(recipe).encode()
    with pytest.raises(BadInput, match="never used here"):
        ml.load("hf:me/model")


@pytest.mark.parametrize("name", ["hf:me/nothing", "hf:a/b/c", "hf:me/nothing@v1"])
def test_a_name_that_the_hub_does_not_know_is_one_line(name: str, hub: FakeHub) -> None:
    with pytest.raises(BadInput, match="written hf:OWNER/NAME"):
        ml.load(name)


def test_another_kind_of_model_says_what_would_read_it(hub: FakeHub) -> None:
    hub.repositories["some/clip"] = {"config.json": b"{}"}
    with pytest.raises(BadInput, match="`matchlight import hf:some/clip`"):
        ml.load("hf:some/clip")


def test_a_hub_that_refuses_is_one_line(run: Path, hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.refuse = 403
    assert main(["push", str(run), "me/model"]) == 2
    said = capsys.readouterr().err
    assert "hf:me/model: you may not write there" in said and said.count("\n") == 1


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_pushes_and_every_command_takes_the_name(
    run: Path, hub: FakeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(run), "me/model", "--license", "apache-2.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"address": f"{hub.address}/me/model", "run": "hf:me/model"}
    assert b"license: apache-2.0" in hub.repositories["me/model"]["README.md"]


def test_what_would_be_pushed_can_be_looked_at_in_a_folder(run: Path, tmp_path: Path) -> None:
    assert main(["push", str(run), "me/model", "--into", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(write_shareable(run, tmp_path / "two"))
    scores = [split_scores(ml.load(folder), tiny_pairs(), "test").tobytes() for folder in (run, tmp_path / "out")]
    assert scores[0] == scores[1]
    with pytest.raises(BadInput, match="not empty"):
        write_shareable(run, tmp_path / "out")


def test_a_run_that_others_could_not_open_is_not_pushed(run: Path, tmp_path: Path) -> None:
    recipe = json.loads((run / "recipe.json").read_text())
    files.write_json(run / "recipe.json", recipe | {"method_file": {"path": "/home/me/own.py", "sha256": "0"}})
    with pytest.raises(BadInput, match="its method is a file of yours"):
        write_shareable(run, tmp_path / "out")
    (run / "model.safetensors").unlink()
    with pytest.raises(BadInput, match="no model.safetensors"):
        write_shareable(run, tmp_path / "out")


# ---- the card --------------------------------------------------------------------------------------------------------


def test_a_finished_run_has_a_card_with_its_figures_and_their_intervals(run: Path) -> None:
    text, said = (run / CARD).read_text(), head(run)
    recall = json.loads((run / "metrics.json").read_text())["val"]["t2i"]["r1"]
    (result,) = said["model-index"][0]["results"]
    assert said["license"] == "other" and said["library_name"] == "matchlight"
    assert result["metrics"][0] == {"type": "recall", "name": "pictures for words, R@1", "value": round(recall, 2)}
    assert f"| pictures for words, R@1 | {recall:.1f}% | " in text and " to " in text
    assert "24 training pairs of 12 pictures" in text and 'ml.load("hf:OWNER/NAME")' in text


def test_a_method_of_labels_has_intervals_in_its_card_too(tmp_path: Path) -> None:
    run = ml.train("dscmr", tiny_pairs(), tmp_path / "run", epochs=1, dim=8, batch=8)
    rows = [
        line
        for line in (run.folder / CARD).read_text().splitlines()
        if line.startswith("| ") and "mean average" in line
    ]
    assert len(rows) == 2 and all(" to " in row for row in rows)


def test_a_licence_is_stated_and_the_rest_of_a_card_stays(run: Path, tmp_path: Path) -> None:
    (run / CARD).write_text((run / CARD).read_text() + "\nA line of mine.\n")
    write_shareable(run, tmp_path / "out", licence="cc-by-4.0")
    assert stated(tmp_path / "out") == "cc-by-4.0" and "license_name" not in head(tmp_path / "out")
    assert (tmp_path / "out" / CARD).read_text().endswith("A line of mine.\n")
    with pytest.raises(BadInput, match="apache-2.0"):
        write_shareable(run, tmp_path / "two", licence="My own: terms")
    write_card(run)
    assert stated(run) == "cc-by-4.0"


def test_the_share_of_wrong_pairs_that_training_found_is_told(run: Path) -> None:
    assert noise_found(run) is None and "does not estimate" in (run / CARD).read_text()
    files.write_npz(run / "division.npz", {"noise": np.array([0.31, 0.29])})
    write_card(run)
    assert "estimated that 29% of the training pairs" in (run / CARD).read_text()
    files.write_npz(run / "division.npz", {"clean_A": np.array([0.5, np.nan, 0.9]), "clean_B": np.array([0.7, 0.7])})
    assert noise_found(run) == pytest.approx(0.3)


def test_names_out_of_the_data_cannot_break_the_card(run: Path) -> None:
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["data"]["root"] = 'a"b: [x]\n---\n<script>|'
    files.write_json(run / "recipe.json", recipe)
    write_card(run)
    assert head(run)["model-index"][0]["results"][0]["dataset"]["name"] == 'a"b: x --- script'
    assert "<script>" not in (run / CARD).read_text()
