"""The model commands as a user types them: exit codes, one clear line, one JSON object."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.pairs import Pairs
from matchlight.runs.evaluation import evaluate
from matchlight.runs.folder import Run
from tests.tiny import tiny_pairs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return formats.write(tiny_pairs(), tmp_path / "data.npz", to="npz")


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    out = capsys.readouterr()
    return out.out, [line for line in out.err.splitlines() if line.strip()]


def test_train_then_evaluate_then_embed(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    small = ["preset=small", "epochs=1", "dim=8", "--device", "cpu"]
    assert main(["train", "vse++", "--data", str(data), "-o", run, *small, "--json"]) == 0
    assert json.loads(said(capsys)[0])["epoch"] == 0
    scores = tmp_path / "new" / "s.npy"
    assert main(["evaluate", run, "--data", str(data), "--scores", str(scores), "--json"]) == 0
    report = json.loads(said(capsys)[0])
    assert set(report) >= {"i2t", "t2i", "rsum", "pictures", "captions"} and np.load(scores).dtype == np.float32
    assert main(["evaluate", "--from-scores", str(scores), "--data", str(data), "--json"]) == 0
    assert json.loads(said(capsys)[0]) == report
    assert main(["embed", run, "--data", str(data), "-o", str(tmp_path / "more" / "v.npz"), "--json"]) == 0
    vectors = np.load(tmp_path / "more" / "v.npz")
    assert vectors["image"].shape == (24, 1, 8) and vectors["picture"].tolist()[:4] == [0, 0, 1, 1]


def test_scores_are_written_over_nothing_but_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, place = str(tmp_path / "run"), tmp_path / "set"
    place.mkdir()
    data = formats.write(tiny_pairs(), place / "data.npz", to="npz")
    assert main(["train", "vse++", "--data", str(data), "-o", run, "preset=small", "epochs=1", "--device", "cpu"]) == 0
    captions, kept, among = place / "captions.jsonl", tmp_path / "kept", place / "scores.txt"
    captions.write_text("mine")
    for file, hint in ((captions, "no .npy file"), (place, "no .npy file"), (among, "data folder")):
        with monkeypatch.context() as patch, pytest.raises(BadInput, match=hint):
            patch.setattr("matchlight.runs.evaluation.encode_both", _slow)
            evaluate(Run.load(run, device="cpu"), Pairs.read(data), scores=file)
        capsys.readouterr()
        assert main(["evaluate", run, "--data", str(data), "--scores", str(file)]) == 2
        assert hint in said(capsys)[1][-1]
    assert captions.read_text() == "mine" and not among.exists()
    for file in (kept, place / "s.npy"):
        for _ in range(2):  # the second time it is there already, and is replaced
            assert main(["evaluate", run, "--data", str(data), "--scores", str(file)]) == 0
        assert np.load(file).shape == (6, 12)


def _slow(*_: object, **__: object) -> None:
    raise AssertionError("nothing may be encoded before a file is refused")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "vse+++"], "vse++"),
        (["train", "vse++", "epchs=1"], "epochs"),
        (["train", "vse++", "epochs=many"], "whole number"),
        (["train", "vse++", "epochs"], "name=value"),
        (["train", "vse++", "epochs=0"], "at least 1"),
        (["train", "vse++", "siblings=cousins"], "masked"),
        (["train", "vse++", "--device", "quantum"], "auto, cpu or cuda"),
        (["train", "vse++", "--precision", "fp8"], "bf16"),
        (["evaluate"], "--from-scores"),
    ],
)
def test_a_slip_is_one_clear_line(
    words: list[str], hint: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "run")] if words[0] == "train" else []
    assert main([*words, "--data", str(data), *out]) == 2
    stdout, lines = said(capsys)
    assert not stdout and len(lines) <= 2 and hint in lines[-1]
    assert not (tmp_path / "run").exists()


def test_scores_of_the_wrong_shape_are_told_both_shapes(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "s.npy", np.zeros((3, 4), dtype=np.float32))
    assert main(["evaluate", "--from-scores", str(tmp_path / "s.npy"), "--data", str(data)]) == 2
    assert "3 x 4" in said(capsys)[1][-1]


def test_methods_are_listed_with_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    listed = json.loads(said(capsys)[0])
    assert {"name", "paper", "needs", "defaults"} <= set(listed[0])
    assert {"vse++", "vse_infty"} <= {method["name"] for method in listed}


def test_one_method_is_shown_with_its_arguments_and_what_presets_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "dive"]) == 0
    shown = said(capsys)[0]
    assert "smooth" in shown and "f30k" in shown and "diversity" in shown
    assert main(["methods", "lantern", "--json"]) == 0  # what it is built on has presets too
    assert {"tuned", "f30k"} <= set(json.loads(said(capsys)[0])["presets"])
    assert main(["methods", "dive", "--json"]) == 0
    assert json.loads(said(capsys)[0])["defaults"]["slots"] == 4
    assert main(["methods", "dove"]) == 2 and "did you mean 'dive'" in said(capsys)[1][-1]
