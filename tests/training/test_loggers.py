"""Curves reach the tools that were asked for, and no other; a tool that is missing is told before training."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tiny import SETTINGS, tiny_pairs

import matchlight as ml
from matchlight.core import BadInput
from matchlight.training import loggers
from matchlight.training.loggers import flat

SMALL = {name: SETTINGS[name] for name in ("dim", "hidden", "word_dim", "batch")}


def trained(folder: Path, log: str | list[str]) -> list[dict]:
    ml.train("vse_infty", tiny_pairs(), folder, epochs=2, log=log, **SMALL)
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_numbers_of_a_report_get_their_paths() -> None:
    report = {"i2t": {"r1": 50.0}, "rsum": 300, "good": True, "folds": [1], "name": "x"}
    assert flat(report, "val") == {"val/i2t/r1": 50.0, "val/rsum": 300.0}


def test_tensorboard_gets_what_the_log_says(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    lines = trained(tmp_path / "run", "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    seen = [(one.step, one.value) for one in board.Scalars("val/t2i/r1")]
    assert seen == [(line["epoch"], pytest.approx(line["val"]["t2i"]["r1"])) for line in lines]
    assert [one.value for one in board.Scalars("loss")] == [pytest.approx(line["loss"]) for line in lines]


def test_nothing_is_opened_unless_it_is_asked_for(tmp_path: Path) -> None:
    before = set(sys.modules)
    trained(tmp_path / "run", [])
    assert not {"tensorboard", "wandb", "mlflow"} & (set(sys.modules) - before)
    assert not [path for path in (tmp_path / "run").iterdir() if path.name in ("tensorboard", "wandb", "mlruns")]


@pytest.mark.parametrize(("name", "extra"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "logs")])
def test_a_tool_that_is_not_installed_is_told_before_training(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match=rf"--log {name} needs one more package: pip install 'matchlight\[{extra}\]'"):
        trained(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def test_a_tool_that_is_not_known_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--log comet: no logger of that name; tensorboard, wandb, mlflow"):
        trained(tmp_path / "run", ["tensorboard", "comet"])


@pytest.mark.full
def test_mlflow_gets_what_the_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    lines = trained(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "run" / "mlruns").as_uri())
    (kept,) = client.search_runs([client.get_experiment_by_name("matchlight").experiment_id])
    assert kept.info.run_name == "run" and kept.info.status == "FINISHED"
    assert kept.data.params["method"] == "vse_infty" and kept.data.params["dim"] == "16"
    history = client.get_metric_history(kept.info.run_id, "val.rsum")
    assert [(one.step, one.value) for one in history] == [(line["epoch"], line["val"]["rsum"]) for line in lines]


@pytest.mark.full
def test_wandb_gets_what_the_log_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off line: nothing is sent, and the file that would be synchronised holds the numbers."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    lines = trained(tmp_path / "run", "wandb")
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    content = kept.read_bytes()
    assert b"val/t2i/r1" in content and b"vse_infty" in content
    assert all(f"{line['val']['rsum']:.6g}"[:5].encode() in content for line in lines)
