"""A named pipe in the place of a file: one clear line, at once. A reader that opened it would wait for ever."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchlight.core import BadInput
from matchlight.data.decisions import read_decisions
from matchlight.data.findings import read_findings
from matchlight.data.noise.truth import Truth
from matchlight.files import read_json, read_npz
from matchlight.indexing import Index
from matchlight.inputs.text.vocabulary import _read
from matchlight.measuring.referee import _score_file
from matchlight.pairs import Pairs
from matchlight.training.checkpoints import load_tree, load_weights

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
NAMES = [
    *("captions.jsonl", "pairs.csv", "pairs.tsv", "pairs.parquet", "a-000.tar", "dataset_f.json", "pairs.npz"),
    *("train_caps.txt", "train_ims.npy", "set.mat", "set.h5", "images.tar", "relevance.npz"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_place_of_a_data_sets_file_is_one_line(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(BadInput, match="named pipe"):
            Pairs.read(path)


def test_a_pipe_in_place_of_a_picture_is_one_broken_picture(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    os.mkfifo(tmp_path / "images" / "a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "b.png")
    lines = ('{"image": "a.png", "captions": ["a"]}', '{"image": "b.png", "captions": ["b"]}')
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    pictures = Pairs.read(tmp_path).pictures
    assert pictures is not None and np.asarray(pictures.open(1)).shape == (8, 8, 3)
    with pytest.raises(BadInput):
        pictures.open(0)


READERS: dict[str, Callable[[Path], object]] = {
    "json": lambda path: read_json(path, "x"),
    "npz": lambda path: read_npz(path, "x"),
    "decisions": lambda path: read_decisions(path, 3),
    "findings": read_findings,
    "truth": Truth.load,
    "vocabulary": _read,
    "scores": _score_file,
    "weights": load_weights,
    "state of training": load_tree,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_in_place_of_another_file_is_one_line(tmp_path: Path, reader: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="named pipe"):
        READERS[reader](tmp_path / "pipe")


def test_a_pipe_in_place_of_an_indexs_files_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "CURRENT")
    with pytest.raises(BadInput, match="named pipe"):
        Index.load(tmp_path)
    os.unlink(tmp_path / "CURRENT")
    (tmp_path / "v0001").mkdir()
    (tmp_path / "CURRENT").write_text("v0001 abc")
    os.mkfifo(tmp_path / "v0001" / "manifest.json")
    with pytest.raises(BadInput, match="named pipe"):
        Index.load(tmp_path)
