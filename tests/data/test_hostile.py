"""What users get wrong and attackers try, typed as commands: exit 2, one clear line, nothing left half written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from matchlight import files
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.runs.folder import Run
from matchlight.training import checkpoints
from tests.tiny import tiny_pairs

SMALL = ["preset=small", "epochs=1", "dim=8", "--device", "cpu"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return formats.write(tiny_pairs(), tmp_path / "data.npz", to="npz")


def refused(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Exit 2, nothing on stdout, and the first line on stderr."""
    assert main([str(word) for word in words]) == 2
    out = capsys.readouterr()
    assert not out.out and "Traceback" not in out.err
    return out.err.splitlines()[0]


@pytest.mark.parametrize(
    ("slip", "hint"),
    [
        ("seed=3", "written --seed"),
        ("device=cpu", "written --device"),
        ("save_minutes=1", "written --save-minutes"),
        ("pairs=3", "no method takes"),
        ("batch=0", "at least 2"),
        ("epochs=0", "at least 1"),
        ("epochs=-1", "at least 1"),
        ("dim=0", "at least 1"),
        ("rate=nan", "finite"),
        ("rate=-1", "above 0"),
        ("margin=inf", "finite"),
    ],
)
def test_an_argument_no_method_can_use_is_told_and_leaves_no_run(
    slip: str, hint: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert hint in refused(["train", "vse++", "--data", data, "-o", out, slip], capsys)
    assert not out.exists()


@pytest.mark.parametrize("seed", ["-1", str(10**25)])
def test_a_seed_out_of_range_is_told(seed: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seed" in refused(["train", "vse++", "--data", data, "-o", tmp_path / "run", "--seed", seed], capsys)


def test_dropout_above_one_is_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "vse_infty", "--data", data, "-o", tmp_path / "run", "dropout=1.5"]
    assert "below 1" in refused(words, capsys)


def test_scores_in_an_archive_are_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "s.npz", np.zeros((6, 12), np.float32))
    assert "one .npy matrix" in refused(["evaluate", "--from-scores", tmp_path / "s.npz", "--data", data], capsys)


def test_scores_are_not_kept_of_scores(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "s.npy", np.zeros((6, 12), np.float32))
    words = ["evaluate", "--from-scores", tmp_path / "s.npy", "--data", data, "--scores", tmp_path / "t.npy"]
    assert "--from-scores" in refused(words, capsys) and not (tmp_path / "t.npy").exists()


def test_a_parquet_image_column_of_numbers_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [1, 2], "caption": ["a", "b"]}), file)
    assert "holds int64" in refused(["data", "info", file], capsys)
    pq.write_table(pa.table({"image": [{"path": "a.png"}], "caption": ["a"]}), file)
    assert "bytes would do" in refused(["data", "info", file], capsys)


def test_a_folder_with_an_old_mac_table_is_read(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "mine.csv").write_bytes(b"image,caption,split\ra.png,one,train\rb.png,two,test\r")
    assert formats.read(tmp_path).captions == ["one", "two"]


def test_a_run_without_its_words_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["train", "vse++", "--data", str(data), "-o", str(run), *SMALL]) == 0
    capsys.readouterr()
    (run / "vocab.json").unlink()
    assert "vocab.json" in refused(["evaluate", run, "--data", data], capsys)
    with pytest.raises(BadInput):
        Run.load(run)


def test_weights_that_cannot_be_written_are_told_and_leave_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "model.safetensors"
    target.mkdir()
    with pytest.raises((BadInput, OSError)):
        checkpoints.save_weights(target, {"a": torch.zeros(2)})
    with pytest.raises(OSError):
        files.write_array(target, np.zeros(3))
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
