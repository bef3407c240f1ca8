"""Small files that would fill the memory: one line each; a caption of any length is read by its beginning."""

from __future__ import annotations

import json
import subprocess
import sys
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
    assert annotations.MOST_OF_ONE < 60_000 * 60_000  # a label a caption, all of one picture
    monkeypatch.setattr(annotations, "MOST_OF_ONE", 40 * 2 * 39)
    with pytest.raises(BadInput, match="40 different labels for 40 captions"):
        Pairs.read(tmp_path)


def test_labels_that_many_share_may_take_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "MOST_OF_ONE", 2 * 80 - 1)
    lines(tmp_path, 40, labels=["one", "two"])
    assert Pairs.read(tmp_path).labels is not None
    monkeypatch.setattr(annotations, "MOST_LABELLED", 2 * 80 - 1)
    with pytest.raises(BadInput, match="2 different labels for 40 captions"):
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


DAMAGED = """
import sys
from pathlib import Path
from matchlight.core import BadInput
from matchlight.pairs import Pairs
folder = Path(sys.argv[1])
file, told = folder / "pairs.parquet", 0
whole = file.read_bytes()
foot = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for place in range(foot, len(whole) - 8, 3):
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 3]) + whole[place + 1 :])
    try:
        Pairs.read(folder)
    except BadInput:
        told += 1
print(told)
"""


def test_no_damaged_byte_of_a_parquet_files_last_part_ends_the_process(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(
        pa.table({"image": ["a.png", "b.png"], "caption": ["a", "b"]}), tmp_path / "pairs.parquet", store_schema=False
    )
    ended = subprocess.run([sys.executable, "-c", DAMAGED, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0 and int(ended.stdout.split()[-1]) > 20, ended.stderr[-500:]
