"""The folders people have are read as what they are, with every caption at its own picture; hostile ones are told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from matchlight import plugins
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.content import stamps
from matchlight.pairs import Pairs
from tests.data import layouts
from tests.data.layouts import COUNT, LAYOUTS, blob, put, rows, said, table, write

DOCS = Path(__file__).parents[2] / "docs" / "results" / "layouts.md"


def documented() -> dict[str, str]:
    lines = [line.strip("| ").split(" | ") for line in DOCS.read_text(encoding="utf-8").splitlines()]
    return {line[0]: line[2] for line in lines if len(line) == 3 and line[0] in LAYOUTS}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp("layout")) for name, make in LAYOUTS.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_as_the_page_of_results_says(made: dict[str, Path], name: str) -> None:
    assert said(made[name]) == documented()[name]


def test_the_page_of_results_names_every_layout() -> None:
    assert set(documented()) == set(LAYOUTS) and len(LAYOUTS) >= 20


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_caption_of_a_layout_stays_with_its_own_picture(made: dict[str, Path], name: str) -> None:
    if said(made[name]).startswith("refused"):
        with pytest.raises(BadInput):
            Pairs.read(made[name])
        return
    pairs = Pairs.read(made[name])
    if pairs.pictures is None:
        assert pairs.features is not None and len(pairs.features) == COUNT
        return
    numbers = [int(found[1]) for caption in pairs.captions if (found := re.search(r"number (\d)", caption))]
    if not numbers:
        assert len(pairs) == 0 or "ambiguous" in said(made[name])
        return
    of_row = [int(pairs.picture[row]) for row, text in enumerate(pairs.captions) if "number" in text]
    assert [pairs.pictures.read(place) for place in of_row] == [blob(number) for number in numbers]
    assert len(set(stamps(pairs.pictures))) == len(pairs.names) or pairs.format == "splits"
    last = pairs.select(pairs.pictures_of()[-1:], pairs.rows()[pairs.picture[pairs.rows()] == len(pairs.names) - 1])
    assert last.pictures.read(0) == pairs.pictures.read(len(pairs.names) - 1)


def test_two_layouts_in_one_folder_are_told_and_one_is_read(made: dict[str, Path], capsys) -> None:
    plugins.warn_once.cache_clear()
    assert main(["data", "info", str(made["`captions.csv` and `a.txt` beside `a.jpg`: two layouts"])]) == 0
    assert "read as csv; what it holds as texts is not read" in " ".join(capsys.readouterr().err.split())


def test_the_same_names_in_split_folders_are_two_pictures(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(put(tmp_path / split, "0.jpg") / "metadata.csv", table([["file_name", "text"], ["0.jpg", split]]))
    (tmp_path / "test" / "0.jpg").write_bytes(blob(5))
    pairs = Pairs.read(tmp_path)
    assert pairs.names == ["train/0.jpg", "test/0.jpg"] and pairs.split_names == ["train", "test"]
    assert [pairs.pictures.read(k) for k in pairs.picture] == [blob(0), blob(5)]
    copy = Pairs.read(formats.write(pairs, tmp_path / "copy"))
    assert [copy.pictures.read(k) for k in copy.picture] == [blob(0), blob(5)] and copy.captions == ["train", "test"]


def test_two_folders_of_one_split_are_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, "train/0.jpg", "val/1.jpg", "valid/2.jpg")
    with pytest.raises(BadInput, match="val/ and valid/ are both val"):
        Pairs.read(tmp_path)


def test_captions_of_absent_images_and_damaged_files_of_coco_are_told(tmp_path: Path) -> None:
    put(tmp_path, "0.jpg")
    whole = {"images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}
    whole["annotations"].append({"image_id": 2, "caption": "of nothing"})
    path = write(tmp_path / "captions_train.json", json.dumps(whole))
    pairs = Pairs.read(tmp_path)
    assert pairs.captions == ["a"] and [one.kind for one in pairs.problems] == ["empty"]
    write(path, json.dumps({**whole, "images": [{"id": 1, "caption": "x"}]}))
    with pytest.raises(BadInput, match="image 0: needs id and file_name"):
        Pairs.read(tmp_path)
    write(path, json.dumps(whole)[:-1])
    with pytest.raises(BadInput, match="not JSON"):
        Pairs.read(path)


def test_two_years_of_coco_in_one_folder_need_the_file_itself(tmp_path: Path) -> None:
    folder = layouts.coco(tmp_path)
    text = (folder / "annotations" / "captions_val2017.json").read_text()
    write(folder / "annotations" / "captions_val2014.json", text)
    with pytest.raises(BadInput, match="several files of one split .*captions_val2014.json.*name the file itself"):
        Pairs.read(folder)


def test_a_compressed_or_damaged_arrow_file_is_one_line(tmp_path: Path) -> None:
    import pyarrow as pa

    data = pa.table({"image": pa.array([{"bytes": b"x" * 9000, "path": "a"}]), "caption": ["a"]})
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "data.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, data.schema, options=packed) as to:
        to.write_table(data)
    with pytest.raises(BadInput, match="a compressed Arrow file"):
        Pairs.read(tmp_path)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, data.schema) as to:  # with a foot
        to.write_table(data)
    assert Pairs.read(tmp_path).pictures.read(0) == b"x" * 9000
    for content in (b"", b"nonsense" * 40, path.read_bytes()[:300]):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="not an Arrow file, damaged or empty"):
            Pairs.read(tmp_path)


def test_texts_without_pictures_and_links_out_are_counted(tmp_path: Path) -> None:
    folder = layouts.texts(tmp_path / "mine")
    write(folder / "README.txt", "what this is")
    write(tmp_path / "secret.txt", "secret")
    (folder / "5.txt").symlink_to(tmp_path / "secret.txt")
    pairs = Pairs.read(folder)
    found = {one.kind: one.count for one in pairs.problems}
    assert found == {"without caption": 1, "text without picture": 1, "outside": 1}
    assert "secret" not in " ".join(pairs.captions)
    write(folder / "0.txt", "caf\xe9", "latin-1")
    with pytest.raises(BadInput, match=r"0.txt: its text is not UTF-8; save it as UTF-8"):
        Pairs.read(folder)


def test_a_row_of_an_address_takes_no_picture_whose_name_others_have(tmp_path: Path) -> None:
    put(tmp_path, "one/a.jpg", "two/a.jpg", "b.jpg", "c.jpg")
    addresses = ["http://x/a.jpg", "http://x/b.jpg", "http://y/b.jpg", "https://z/c.jpg?size=2", "http://[bad"]
    write(tmp_path / "cc.tsv", "".join(f"caption {k}\t{url}\n" for k, url in enumerate(addresses)))
    pairs = Pairs.read(tmp_path)
    assert (pairs.names, pairs.captions) == (["c.jpg"], ["caption 3"])
    assert {one.kind: one.count for one in pairs.problems} == {"not fetched": 4}


def test_a_table_that_is_not_utf8_says_how_to_save_it(tmp_path: Path) -> None:
    write(put(tmp_path, "a.jpg") / "captions.csv", "image,caption\na.jpg,caf\xe9\n", "latin-1")
    with pytest.raises(BadInput, match='save it again as "CSV UTF-8"'):
        Pairs.read(tmp_path)


def test_a_picture_is_found_below_in_letters_of_either_case(tmp_path: Path) -> None:
    put(tmp_path, "Pictures/Rome/A.JPG", "Pictures/b.jpg")
    write(tmp_path / "captions.csv", table([["image", "caption"], *rows(["rome/a.jpg", "b.jpg", "other/b.jpg"])]))
    pairs = Pairs.read(tmp_path)
    assert [one.kind for one in pairs.problems] == ["missing"]  # other/b.jpg is not Pictures/b.jpg
    assert isinstance(pairs.pictures.open(0), Image.Image)


def test_vectors_that_are_not_of_the_rows_are_refused(tmp_path: Path) -> None:
    import numpy as np

    folder = layouts.clip_retrieval(tmp_path)
    np.save(folder / "img_emb" / "img_emb_0.npy", np.ones((COUNT - 1, 8), np.float16))
    with pytest.raises(BadInput, match="5 vectors in img_emb/ and 6 rows in metadata/"):
        Pairs.read(folder)


def test_a_folder_that_is_nothing_says_what_was_seen_and_the_two_nearest(tmp_path: Path) -> None:
    write(tmp_path / "prices.xlsx", "x")
    write(tmp_path / "deep" / "more.h5", "x")
    with pytest.raises(BadInput, match=r"seen are 1 .xlsx, 1 .h5; nearest to it are a table .* and label sets"):
        Pairs.read(tmp_path)


@pytest.mark.parametrize(
    "name", ["Hugging Face `save_to_disk`", "LAION: Parquet with URL and TEXT, two of six pictures there"]
)
def test_damaged_tables_of_columns_are_read_or_told_and_never_fail(tmp_path: Path, name: str) -> None:
    folder = LAYOUTS[name](tmp_path)
    file = next(one for one in folder.iterdir() if one.suffix in (".arrow", ".parquet"))
    whole = file.read_bytes()
    told = 0
    for place in range(8, len(whole), len(whole) // 60):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xA2]) + whole[place + 1 :])
        try:
            assert Pairs.read(folder).names
        except BadInput as error:
            told += str(file) in str(error) or str(folder) in str(error)
    assert told
