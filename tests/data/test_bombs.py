"""Small files that would fill the memory: one line each; a caption of any length is read by its beginning."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchlight.core import BadInput
from matchlight.data.formats import annotations
from matchlight.data.formats import parquet as parquet_format
from matchlight.data.tokenising import MOST_WORDS
from matchlight.inputs.text import Captions, Vocabulary
from matchlight.pairs import Pairs


def test_a_caption_of_any_length_is_read_by_its_beginning_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    long = " ".join(f"w{number}" for number in range(120_000))
    captions = ["a dog", long, "x" * 840_000, " ".join(["cat"] * MOST_WORDS)]
    vocabulary = Vocabulary.build(captions)
    read = Captions.encode(captions, vocabulary)
    assert read.lengths.max() == MOST_WORDS + 2 and read[0] == vocabulary.encode("a dog") and len(vocabulary) < 600
    told = capsys.readouterr().err
    assert f"longer than {MOST_WORDS} words or 10,000 letters: 2;" in told and told.count("\n") == 1
    assert vocabulary.decode(read[1]).startswith("w0 w1 w2 ")
    Captions.encode(captions[::3], vocabulary)
    assert capsys.readouterr().err == ""


def lines(folder: Path, count: int, **more: list[str]) -> None:
    (folder / "images").mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save(folder / "images" / "a.png")
    found = [{"image": f"{row}.png", "captions": ["a"], "labels": [f"l{row}"], **more} for row in range(count)]
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))


def test_as_many_labels_as_pictures_are_refused_before_their_table_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(tmp_path, 40)
    assert Pairs.read(tmp_path).labels is not None
    assert annotations.MOST_LABELLED < 60_000 * 2 * 60_000  # what sixty thousand would take
    monkeypatch.setattr(annotations, "MOST_LABELLED", 40 * 2 * 39)
    with pytest.raises(BadInput, match="40 different labels for 40 captions"):
        Pairs.read(tmp_path)


def test_a_small_parquet_file_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    captions = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), pa.array(["b" * 10_000]))
    table = pa.table({"image": pa.array(["a.png"] * 4_000), "caption": captions.cast(pa.string())})
    parquet.write_table(table, tmp_path / "pairs.parquet")
    assert (tmp_path / "pairs.parquet").stat().st_size < 40_000
    assert len(Pairs.read(tmp_path)) == 4_000
    monkeypatch.setattr(parquet_format, "MOST_UNPACKED", 10_000_000)
    with pytest.raises(BadInput, match="unpack to 0.0 GB or more; split the file"):
        Pairs.read(tmp_path)


def test_relevance_that_unpacks_to_more_than_a_whole_matrix_is_refused(tmp_path: Path) -> None:
    lines(tmp_path, 3)
    shape = {"shape": np.array([3, 3]), "format": np.array(b"coo")}
    zeros = np.zeros(3_000_000, dtype=np.int32)
    np.savez_compressed(tmp_path / "relevance.npz", row=zeros, col=zeros, data=zeros, **shape)
    with pytest.raises(BadInput, match="unpacks to"):
        Pairs.read(tmp_path)
    few, huge = np.zeros(1, dtype=np.int64), np.array([10**12, 3])
    np.savez_compressed(tmp_path / "relevance.npz", row=few, col=few, data=few, **{**shape, "shape": huge})
    with pytest.raises(BadInput, match="1000000000000 x 3; captions x pictures is 3 x 3"):
        Pairs.read(tmp_path)
