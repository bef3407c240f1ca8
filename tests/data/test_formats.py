"""Every format: what is written is read again, and the layouts of others are understood."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csr_matrix, save_npz

from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.formats.export import FileNames
from matchlight.data.formats.scan_writer import _line
from matchlight.data.formats.splits import deal
from matchlight.data.near_duplicates import groups_of
from matchlight.pairs import Labels, Pairs


def picture(seed: int = 0, kind: str = "PNG", size: tuple[int, int] = (12, 9), **options: Any) -> bytes:
    """A picture file of smooth random colours."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(out, kind, **options)
    return out.getvalue()


def jsonl(folder: Path, *lines: dict[str, Any]) -> Path:
    """A captions.jsonl with the pictures it names."""
    (folder / "images").mkdir(parents=True)
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for seed, line in enumerate(lines):
        (folder / "images" / line["image"].removeprefix("images/")).write_bytes(picture(seed))
    return folder


def same(one: Pairs, other: Pairs) -> None:
    """Equal rows in equal order: captions, pictures' names and splits, labels by name, relevance."""
    assert list(other.captions) == list(one.captions)
    assert [other.names[i] for i in other.picture] == [one.names[i] for i in one.picture]
    assert [other.splits[i] for i in other.picture] == [one.splits[i] for i in one.picture]
    assert (one.labels is None) == (other.labels is None)
    if one.labels is not None and other.labels is not None:
        assert spelled(one.labels, one.labels.image[one.picture]) == spelled(
            other.labels, other.labels.image[other.picture]
        )
        assert spelled(one.labels, one.labels.text) == spelled(other.labels, other.labels.text)


def spelled(labels: Labels, hot: np.ndarray) -> list[set[str]]:
    return [{labels.names[place] for place in np.flatnonzero(row)} for row in hot]


# --- round trips -----------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), min_size=1, max_size=12)
CAPTION = (TEXT | st.sampled_from(['=1+1, "x"', "a\tb", "two\nlines", "naïve 犬 🐕", "'; --", "x,y;z|w"])).filter(
    lambda text: bool(text.strip())
)


@st.composite
def tables(draw: st.DrawFn) -> Pairs:
    """A few pictures, rows in any order, with or without labels that differ between the sides."""
    count = draw(st.integers(1, 4))
    rows = draw(st.lists(st.integers(0, count - 1), min_size=0, max_size=6)) + list(range(count))
    texts = draw(st.lists(CAPTION, min_size=len(rows), max_size=len(rows)))
    splits = draw(st.lists(st.sampled_from(["train", "val", "test", "testall"]), min_size=count, max_size=count))
    names = [f"p{number}.png" for number in range(count)]
    labels = None
    if draw(st.booleans()):
        hot = st.lists(st.booleans(), min_size=2, max_size=2)
        image = np.array([[True, False]] + [draw(hot) for _ in range(count - 1)], dtype=bool)
        text = np.array([draw(hot) for _ in rows], dtype=bool)
        labels = Labels(['a "b"; c', "[d]"], image, text)
    blobs = formats.BytePictures(names, [picture(number) for number in range(count)])
    return Pairs(names, texts, np.array(rows), np.array(splits), pictures=blobs, labels=labels)


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet", "webdataset"])
@settings(deadline=None, max_examples=25)
@given(pairs=tables())
def test_pictures_and_words_come_back_as_they_were(
    to: str, pairs: Pairs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = formats.write(pairs, tmp_path_factory.mktemp("out") / "set", to=to)
    again = formats.read(out)
    assert formats.detect(out) == to
    same(pairs, again)
    assert pairs.pictures is not None and again.pictures is not None
    for row, number in enumerate(again.picture):
        assert again.pictures.read(number) == pairs.pictures.read(pairs.picture[row])


@st.composite
def arrays(draw: st.DrawFn) -> Pairs:
    """Features, k captions a picture, splits, word ids, boxes, labels of both sides, relevance."""
    count, each = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    texts = draw(st.lists(CAPTION, min_size=count * each, max_size=count * each))
    kept = rng.random((count * each, count)) < 0.5
    return Pairs(
        names=[f"id {number}" for number in range(count)],
        captions=texts,
        picture=np.arange(count).repeat(each),
        splits=np.sort(rng.choice(["test", "testall", "train"], count)),
        features=formats.ArrayFeatures(rng.standard_normal((count, 3, 2)).astype(np.float32)),
        tokens=rng.integers(0, 9, (count * each, 2)).tolist() if draw(st.booleans()) else None,
        boxes=rng.random((count, 3, 4)).astype(np.float32) if draw(st.booleans()) else None,
        labels=Labels(["x", "y"], rng.random((count, 2)) < 0.5, rng.random((count * each, 2)) < 0.5),
        relevance=csr_matrix(kept) if draw(st.booleans()) else None,
    )


@settings(deadline=None, max_examples=25)
@given(pairs=arrays())
def test_arrays_come_back_from_npz_to_the_last_bit(pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> None:
    again = formats.read(formats.write(pairs, tmp_path_factory.mktemp("out") / "set", to="npz"))
    same(pairs, again)
    every = np.arange(len(pairs.names))
    assert again.features is not None and pairs.features is not None
    assert np.array_equal(again.features.gather(every), pairs.features.gather(every))
    assert again.tokens == pairs.tokens
    assert (again.boxes is None) == (pairs.boxes is None)
    if pairs.relevance is not None:
        assert again.relevance is not None and (again.relevance != pairs.relevance).nnz == 0


@settings(deadline=None, max_examples=25)
@given(pairs=arrays())
def test_arrays_come_back_from_scan_with_captions_as_lines(
    pairs: Pairs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = formats.read(formats.write(pairs, tmp_path_factory.mktemp("out") / "set", to="scan"))
    ordered = pairs.select(  # SCAN's folder is read split by split
        np.concatenate([pairs.pictures_of(name) for name in pairs.split_names]),
        np.concatenate([pairs.rows(name) for name in pairs.split_names]),
    )
    same(Pairs(ordered.names, [_line(text) for text in ordered.captions], ordered.picture, ordered.splits,
               labels=ordered.labels), again)  # fmt: skip
    every = np.arange(len(pairs.names))
    assert again.features is not None and ordered.features is not None
    assert np.array_equal(again.features.gather(every), ordered.features.gather(every))
    assert again.tokens == ordered.tokens
    if pairs.relevance is not None:
        assert again.relevance is not None and (again.relevance != ordered.relevance).nnz == 0


def test_a_label_set_with_disagreeing_sides_survives_npz(tmp_path: Path) -> None:
    image, text = np.eye(2, dtype=bool)[[0, 1]], np.eye(2, dtype=bool)[[1, 1]]
    pairs = Pairs(
        ["a", "b"], ["", ""], np.array([0, 1]), np.array(["train", "test"]),
        features=formats.ArrayFeatures(np.ones((2, 4), np.float32)), text_features=np.ones((2, 3), np.float32),
        labels=Labels(["art", "war"], image, text),
    )  # fmt: skip
    again = formats.read(formats.write(pairs, tmp_path / "set.npz", to="npz"))
    assert again.labels is not None and again.labels.names == ["art", "war"]
    assert again.labels.image.tolist() == image.tolist() and again.labels.text.tolist() == text.tolist()
    assert again.text_features is not None and again.text_features.shape == (2, 3)
    assert again.splits.tolist() == ["train", "test"]


def test_converting_never_encodes_a_picture_again(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in", {"image": "a.jpg", "captions": ["x"], "split": "train"})
    (source / "images" / "a.jpg").write_bytes(blob := picture(3, "JPEG", quality=40))
    for to in ("jsonl", "csv"):
        formats.write(formats.read(source), tmp_path / to, to=to)
        assert (tmp_path / to / "images" / "a.jpg").read_bytes() == blob
    formats.write(formats.read(source), tmp_path / "shards", to="webdataset")
    with tarfile.open(tmp_path / "shards" / "pairs-000000.tar") as shard:
        member = shard.extractfile("00000000.jpg")
        assert member is not None and member.read() == blob


# --- captions.jsonl --------------------------------------------------------------------------------------------------


def test_rows_keep_file_order_when_pictures_are_named_again(tmp_path: Path) -> None:
    folder = jsonl(
        tmp_path / "set",
        {"image": "b.png", "captions": ["b0"], "split": "train"},
        {"image": "images/a.png", "captions": ["a0", "a1"], "split": "dev"},
        {"image": "b.png", "captions": ["b1"], "split": "train"},
        {"image": "a.png", "captions": ["a2"], "split": "val"},
    )
    pairs = formats.read(folder)
    assert list(pairs.captions) == ["b0", "a0", "a1", "b1", "a2"]
    assert pairs.picture.tolist() == [0, 1, 1, 0, 1]
    assert list(pairs.names) == ["b.png", "images/a.png"]
    assert pairs.splits.tolist() == ["train", "val"]  # dev reads as val


def test_pictures_are_found_in_a_tar_as_in_a_folder(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "set", *({"image": f"{i}.png", "captions": ["x"], "split": "test"} for i in range(3)))
    blobs = {path.name: path.read_bytes() for path in (folder / "images").iterdir()}
    for path in (folder / "images").iterdir():
        path.unlink()
    (folder / "images").rmdir()
    with tarfile.open(folder / "images.tar", "w") as packed:
        for name, blob in blobs.items():
            about = tarfile.TarInfo(f"images/{name}")
            about.size = len(blob)
            packed.addfile(about, io.BytesIO(blob))
    pairs = formats.read(folder)
    assert pairs.problems == []
    assert pairs.pictures is not None
    assert [pairs.pictures.read(i) for i in range(3)] == [blobs[name] for name in pairs.names]


@pytest.mark.parametrize("layout", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_in_tars_of_every_layout_are_read(tmp_path: Path, layout: int) -> None:
    name = "folder" * 8 + "/" + "name" * (12 if layout == tarfile.USTAR_FORMAT else 40) + ".png"
    (tmp_path / "captions.jsonl").write_text(json.dumps({"image": name, "captions": ["x"], "split": "test"}))
    with tarfile.open(tmp_path / "images.tar", "w", format=layout) as packed:
        for member in ("other.png", f"images/{name}", "last.png"):
            about = tarfile.TarInfo(member)
            about.size = 5
            packed.addfile(about, io.BytesIO(b"right" if name in member else b"wrong"))
    pictures = formats.read(tmp_path).pictures
    assert pictures is not None and pictures.read(0) == b"right"


def v7(name: str, content: bytes) -> bytes:
    """A member as the oldest tars have it: no magic, type 0, a folder is a name with a slash behind."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = f"{len(content):011o} ".encode()
    header[156:157], header[257:512] = b"\0", bytes(255)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + content + bytes(-len(content) % 512)


def test_members_of_the_oldest_tars_are_read(tmp_path: Path) -> None:
    samples = [(f"a/{i}.png", picture(i)) for i in range(3)] + [("a/", b"")]
    lines = [(f"a/{i}.txt", f"text {i}".encode()) for i in range(3)]
    members = sorted([*samples, *lines])
    (tmp_path / "train.tar").write_bytes(b"".join(v7(*member) for member in members) + bytes(1024))
    pairs = formats.read(tmp_path)
    assert shown(pairs) == [(f"text {i}", picture(i)) for i in range(3)] and not pairs.problems


def test_a_tar_that_is_cut_is_told_wherever_it_is_cut(tmp_path: Path) -> None:
    members = [("a.png", picture(0)), ("a.txt", b"one"), ("b.png", picture(1)), ("b.txt", b"two")]
    parts = [v7(*member) for member in members]
    whole, file = b"".join(parts) + bytes(1024), tmp_path / "train.tar"
    for at in range(len(parts[0] + parts[1]), len(b"".join(parts)) + 1, 128):
        file.write_bytes(whole[:at])
        try:
            pairs = formats.read(file)
        except BadInput as refusal:
            assert "the tar is cut" in str(refusal)
        else:
            assert [one.kind for one in pairs.problems if "no end mark" in one.examples[0]] == ["tar without end"]
    file.write_bytes(whole)
    assert not formats.read(file).problems


def test_sources_can_be_pickled_and_read_by_many_threads(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "set", *({"image": f"{i}.png", "captions": ["x"], "split": "test"} for i in range(8)))
    for to in ("jsonl", "webdataset", "parquet"):
        pairs = formats.read(formats.write(formats.read(folder), tmp_path / to, to=to))
        again = pickle.loads(pickle.dumps(pairs.pictures)).take(np.arange(8)[::-1])
        with ThreadPoolExecutor(4) as pool:
            read = list(pool.map(again.read, range(8)))
        assert read == [picture(7 - i) for i in range(8)]


def test_a_changed_picture_changes_its_stamp(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "set", {"image": "a.png", "captions": ["x"], "split": "test"})
    pictures = formats.read(folder).pictures
    assert pictures is not None
    before = pictures.stamp(0)
    assert pictures.stamp(0) == before
    (folder / "images" / "a.png").write_bytes(picture(5, size=(20, 20)))
    assert pictures.stamp(0) != before


def test_relevance_beside_captions_is_attached_and_truth_is_not(tmp_path: Path) -> None:
    folder = jsonl(
        tmp_path / "set", *({"image": f"{i}.png", "captions": ["x", " "], "split": "test"} for i in range(2))
    )
    save_npz(folder / "relevance.npz", csr_matrix(np.array([[1, 0], [1, 1], [0, 1], [1, 1]])))
    (folder / "truth.json").write_text(json.dumps({"moved": [0]}))
    pairs = formats.read(folder)
    assert pairs.relevance is not None  # rows of the empty captions 1 and 3 are gone with them
    assert pairs.relevance.toarray().tolist() == [[True, False], [False, True]]
    assert "truth" not in str(pairs.notes) and "moved" not in str(pairs.notes)


def test_labels_of_captions_may_differ_from_the_pictures(tmp_path: Path) -> None:
    line = {
        "image": "a.png",
        "captions": ["x", "y"],
        "split": "test",
        "labels": ["dog"],
        "caption_labels": [["cat"], []],
    }
    labels = formats.read(jsonl(tmp_path / "set", line)).labels
    assert labels is not None and labels.names == ["cat", "dog"]
    assert labels.image.tolist() == [[False, True]]
    assert labels.text.tolist() == [[True, False], [False, False]]


def test_a_picture_named_in_two_splits_stays_in_the_first_and_is_counted(tmp_path: Path) -> None:
    lines = ({"image": "a.png", "captions": ["x"], "split": split} for split in ("train", "test"))
    pairs = formats.read(jsonl(tmp_path / "set", *lines))
    assert pairs.splits.tolist() == ["train"]
    assert [(p.kind, p.count) for p in pairs.problems] == [("two splits", 1)]


def test_pictures_are_upright_and_see_through_parts_are_white(tmp_path: Path) -> None:
    folder = jsonl(
        tmp_path / "set", *({"image": name, "captions": ["x"], "split": "test"} for name in ("a.jpg", "b.png"))
    )
    turned = Image.new("RGB", (40, 20))
    turned.getexif()[0x0112] = 6
    turned.save(folder / "images" / "a.jpg", exif=turned.getexif())
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(folder / "images" / "b.png")
    pictures = formats.read(folder).pictures
    assert pictures is not None
    assert pictures.open(0).size == (20, 40)
    assert pictures.open(1).mode == "RGB" and pictures.open(1).getpixel((0, 0)) == (255, 255, 255)


# --- splits ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 60), min_size=3, max_size=200), st.integers(0, 5))
def test_a_dealt_split_is_whole_groups_seeded_and_about_90_5_5(groups: list[int], seed: int) -> None:
    numbers = np.unique(groups, return_inverse=True)[1]
    splits = deal(numbers, seed=seed)
    for group in range(numbers.max() + 1):
        assert len(set(splits[numbers == group])) == 1
    assert np.array_equal(splits, deal(numbers, seed=seed))
    for name in ("val", "test"):
        assert (splits == name).sum() <= max(1, round(0.05 * len(groups)))
    if len(set(groups)) == len(groups):
        assert (splits == "val").sum() == (splits == "test").sum() == max(1, round(0.05 * len(groups)))


def test_copies_resized_or_saved_again_are_twins_and_other_pictures_are_not() -> None:
    wide = [picture(seed, "PNG", (200, 150)) for seed in range(6)]
    again = [picture(0, "JPEG", (200, 150), quality=60), picture(1, "PNG", (100, 75)), wide[2]]
    flat = [picture_of(colour) for colour in ("red", "green", "blue")]
    blobs = [*wide, *again, *flat]
    groups = groups_of(formats.BytePictures([str(i) for i in range(len(blobs))], blobs))
    assert groups[6:9].tolist() == groups[:3].tolist()
    assert len(set(groups.tolist())) == 9


def picture_of(colour: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (60, 40), colour).save(out, "PNG")
    return out.getvalue()


def test_data_without_splits_gets_90_5_5_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = jsonl(tmp_path / "set", *({"image": f"{i}.png", "captions": ["x"]} for i in range(40)))
    for copy in ("38.png", "39.png"):
        (folder / "images" / copy).write_bytes(picture(0))  # copies of 0.png
    pairs = formats.read(folder)
    assert pairs.splits[0] == pairs.splits[38] == pairs.splits[39]
    assert [int((pairs.splits == name).sum()) for name in ("train", "val", "test")] == [36, 2, 2]
    assert "90/5/5" in (said := capsys.readouterr().err) and "3 pictures that look alike" in said
    assert formats.read(folder).splits.tolist() == pairs.splits.tolist()
    assert formats.read(folder, seed=1).splits.tolist() != pairs.splits.tolist()


# --- tables and shards of others -------------------------------------------------------------------------------------


def test_a_csv_may_hold_a_row_a_picture_and_other_separators(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text('filename;captions;split;labels\na.png;"[""x"", ""y; z""]";test;dog;\n')
    pairs = formats.read(tmp_path)
    assert list(pairs.captions) == ["x", "y; z"]
    assert pairs.labels is not None and pairs.labels.names == ["dog"]
    (tmp_path / "captions.csv").write_text("image_name| comment_number| comment\na.png| 0| A dog .\n")
    assert [caption.strip() for caption in formats.read(tmp_path).captions] == ["A dog ."]


def table(folder: Path, text: str) -> Pairs:
    folder.mkdir()
    (folder / "captions.csv").write_text(text)
    return formats.read(folder)


def found(pairs: Pairs, kind: str) -> tuple[int, list[str]]:
    """How often a problem was found, and the lines named."""
    (one,) = [one for one in pairs.problems if one.kind == kind]
    return one.count, [re.findall(r"line (\d+)", example)[0] for example in one.examples]


def test_a_stray_quote_in_a_csv_loses_no_row_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i}.png,picture {i},train" for i in range(12)]
    lines[2] = '2.png,"a dog,train'
    lines[9] = '9.png,"a ""small"" cat, asleep",train'
    pairs = table(tmp_path / "one", "image,caption,split\n" + "\n".join(lines))
    assert len(pairs) == 12 and pairs.captions[2] == '"a dog' and pairs.captions[9] == 'a "small" cat, asleep'
    assert found(pairs, "stray quote") == (1, ["4"]) and "line 4: 2.png" in capsys.readouterr().err
    lines[9] = '9.png,"so" it said,train'
    pairs = table(tmp_path / "two", "image,caption,split\n" + "\n".join(lines))
    assert len(pairs) == 12 and pairs.captions[9] == '"so" it said'
    assert found(pairs, "stray quote") == (2, ["4", "11"])


def test_rows_that_two_stray_quotes_enclose_are_counted(tmp_path: Path) -> None:
    pairs = table(tmp_path / "set", 'image,caption\na.png,"one\nb.png,two\nc.png,three"\nd.png,"four\nlines"\n')
    assert found(pairs, "rows inside a quote") == (2, ["3", "4"]) and pairs.captions[-1] == "four\nlines"


def test_commas_without_quotes_stay_in_the_caption_and_are_counted(tmp_path: Path) -> None:
    text = "image,caption,split\na.png,a dog, a cat,and a bird,test\nb.png,plain,test,,\n"
    pairs = table(tmp_path / "one", text)
    assert list(pairs.captions) == ["a dog, a cat,and a bird", "plain"] and pairs.splits.tolist() == ["test"] * 2
    assert found(pairs, "unquoted separator") == (1, ["2"])
    with pytest.raises(BadInput, match="line 2: 4 cells below 3 columns; put"):
        table(tmp_path / "two", "image,caption_0,caption_1\na.png,one, two,three\n")


def test_captions_txt_with_a_header_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text("image,caption\na.jpg,one\na.jpg,two\nb.jpg,three\n")
    pairs = formats.read(tmp_path)
    assert formats.detect(tmp_path) == "csv" and pairs.picture.tolist() == [0, 0, 1]


def test_parquet_of_others_with_pictures_inside_and_splits_in_file_names(tmp_path: Path) -> None:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for number, split in enumerate(("train", "validation")):
        rows = {
            "image": pa.array([{"bytes": picture(10 * number + i), "path": f"{i}.png"} for i in range(2)], image),
            "caption_0": [f"{split} {i}" for i in range(2)],
            "caption_1": ["more", "words"],
        }
        pq.write_table(pa.table(rows), tmp_path / f"{split}-00000-of-00001.parquet")
    pairs = formats.read(tmp_path)
    assert list(pairs.captions)[:2] == ["train 0", "more"]
    assert pairs.splits.tolist() == ["train", "train", "val", "val"]  # equal names in two files: two pictures
    assert pairs.pictures is not None and pairs.pictures.read(3) == picture(11)


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def shards_with_equal_names(folder: Path) -> Pairs:
    """Two Parquet shards of ten pictures whose names are 00000010.png to 00000019.png in both."""
    folder.mkdir()
    for shard in range(2):
        images = [{"bytes": picture(10 * shard + i), "path": f"{10 + i:08d}.png"} for i in range(10)]
        rows = {"image": pa.array(images, IMAGE), "caption": [f"picture {10 * shard + i}" for i in range(10)]}
        pq.write_table(pa.table(rows), folder / f"train-{shard:05d}-of-00002.parquet")
    return formats.read(folder)


def shown(pairs: Pairs) -> list[tuple[str, bytes]]:
    """Each caption with the bytes of its picture."""
    assert pairs.pictures is not None
    return [(text, pairs.pictures.read(place)) for text, place in zip(pairs.captions, pairs.picture, strict=True)]


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet", "webdataset"])
def test_a_copy_keeps_every_picture_where_names_repeat(tmp_path: Path, to: str) -> None:
    pairs = shards_with_equal_names(tmp_path / "shards")
    again = formats.read(formats.write(pairs, tmp_path / "copy", to=to))
    assert len(again.names) == 20
    assert shown(again) == [(f"picture {i}", picture(i)) for i in range(20)]


def test_a_noisy_copy_keeps_every_picture_where_names_repeat(tmp_path: Path) -> None:
    shards_with_equal_names(tmp_path / "shards")
    words = ["data", "noise", tmp_path / "shards", "-o", tmp_path / "noisy", "--mismatch", "0"]
    assert main([str(word) for word in words]) == 0
    assert shown(formats.read(tmp_path / "noisy")) == [(f"picture {i}", picture(i)) for i in range(20)]


def test_names_in_a_copy_are_told_apart_by_any_disk() -> None:
    names, blob = FileNames(), picture(0)
    given = [names.give(name, 4, blob) for name in ("a.png", "A.PNG", "./a.png", "00000004-3.png", "a.png/b.png")]
    assert given == ["a.png", "00000004.png", "00000004-2.png", "00000004-3.png", "00000004-4.png"]
    assert names.give("c.png/d.png", 5, blob) == "c.png/d.png"
    assert names.give("c.png", 6, blob) == "00000006.png"  # c.png is a folder by now
    assert names.give("a.png", 7, None) == "00000007.jpg"  # unreadable: it must not come back as the first a.png
    assert names.give("../a.png", 8, None) == "../a.png"


def test_rows_that_share_a_name_and_not_the_picture_are_two_pictures(tmp_path: Path) -> None:
    images = [{"bytes": picture(i), "path": "image.png"} for i in (0, 0, 1)] + [{"bytes": None, "path": "image.png"}]
    rows = {"image": pa.array(images, IMAGE), "caption": ["one", "one again", "two", "two again"]}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    assert formats.read(tmp_path).picture.tolist() == [0, 0, 1, 1]


def test_samples_that_share_a_key_are_pictures_of_their_own(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "train.tar", "w") as packed:
        for number, key in enumerate("aabaa"):
            for suffix, content in (("png", picture(number)), ("txt", f"text {number}".encode())):
                about = tarfile.TarInfo(f"{key}.{suffix}")
                about.size = len(content)
                packed.addfile(about, io.BytesIO(content))
    assert shown(formats.read(tmp_path)) == [(f"text {i}", picture(i)) for i in range(5)]


def test_webdataset_shards_of_others_with_txt_captions(tmp_path: Path) -> None:
    for shard in ("train-000000.tar", "train-000001.tar", "test-000000.tar"):
        with tarfile.open(tmp_path / shard, "w") as packed:
            for key in ("000", "001"):
                for suffix, content in (("webp", picture(len(shard), "WEBP")), ("txt", f"{shard} {key}\n".encode())):
                    about = tarfile.TarInfo(f"{key}.{suffix}")
                    about.size = len(content)
                    packed.addfile(about, io.BytesIO(content))
    pairs = formats.read(tmp_path)
    assert len(pairs) == len(pairs.names) == 6  # keys repeat between shards and are different pictures
    assert pairs.captions[0] == "test-000000.tar 000" and pairs.captions[5] == "train-000001.tar 001"
    assert pairs.splits.tolist() == ["test"] * 2 + ["train"] * 4


def test_karpathy_json_reads_restval_as_train(tmp_path: Path) -> None:
    images = [
        {
            "filename": f"{i}.png",
            "filepath": "val2014",
            "split": split,
            "sentences": [{"raw": f"c {i}"}, {"tokens": ["a", "b"]}],
        }
        for i, split in enumerate(("train", "restval", "val", "test"))
    ]
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    (tmp_path / "images" / "val2014").mkdir(parents=True)
    (tmp_path / "images" / "val2014" / "2.png").write_bytes(picture(2))
    pairs = formats.read(tmp_path)
    assert pairs.splits.tolist() == ["train", "train", "val", "test"]
    assert list(pairs.captions)[:3] == ["c 0", "a b", "c 1"]
    assert pairs.pictures is not None and pairs.pictures.read(2) == picture(2)
    assert [(p.kind, p.count) for p in pairs.problems] == [("missing", 3)]


# --- precomputed folders ---------------------------------------------------------------------------------------------


def precomputed(folder: Path, split: str, pictures: int, each: int, *, suffix: str = "ims") -> None:
    folder.mkdir(exist_ok=True)
    features = np.arange(pictures * 6, dtype=np.float32).reshape(pictures, 3, 2)
    np.save(folder / f"{split}_{suffix}.npy", features)
    lines = [f"{split} picture {p} caption {c}" for p in range(pictures) for c in range(each)]
    (folder / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")


def test_scan_folder_divides_captions_evenly_and_orders_splits(tmp_path: Path) -> None:
    precomputed(tmp_path, "test", 2, 5)
    precomputed(tmp_path, "dev", 3, 5)
    precomputed(tmp_path, "train", 4, 1)
    pairs = formats.read(tmp_path)
    assert pairs.split_names == ["train", "val", "test"]
    assert pairs.picture.tolist() == [0, 1, 2, 3] + [4] * 5 + [5] * 5 + [6] * 5 + [7] * 5 + [8] * 5
    assert pairs.captions[9] == "dev picture 1 caption 0"
    assert pairs.features is not None and pairs.features.shape == (9, 3, 2)
    rows = pairs.features.gather(np.array([8, 0, 4]))
    assert rows[:, 0, 0].tolist() == [6.0, 0.0, 0.0]  # second of test, first of train, first of dev
    assert pairs.subset("test").features.gather(np.array([1]))[0, 0, 0] == 6.0  # type: ignore[union-attr]


def test_scan_variants_word_ids_feat_names_ids_boxes_and_labels(tmp_path: Path) -> None:
    precomputed(tmp_path, "test", 2, 2, suffix="feat")
    (tmp_path / "test_precaps.txt").write_text("1,5,2\n1,6,2\n1,7,2\n1,8,9,2\n")
    (tmp_path / "test_ids.txt").write_text("391895\n60623\n")
    np.save(tmp_path / "test_box.npy", np.array([[[0, 0, 50, 20]] * 3, [[10, 10, 20, 30]] * 3], dtype=np.float32))
    np.save(tmp_path / "test_hw.npy", np.array([[100, 40], [40, 60]]))
    np.save(tmp_path / "test_labels.npy", np.array([[0.0, 1.0], [1.0, 1.0]]))
    pairs = formats.read(tmp_path)
    assert pairs.tokens == [[1, 5, 2], [1, 6, 2], [1, 7, 2], [1, 8, 9, 2]]
    assert list(pairs.names) == ["391895", "60623"]
    assert pairs.boxes is not None  # corners and area in parts of width and height
    assert pairs.boxes[:, 0].tolist() == pytest.approx(
        np.array([[0, 0, 0.5, 0.5, 0.25], [0.25, 1 / 6, 0.5, 0.5, 1 / 12]])
    )
    assert pairs.labels is not None and pairs.labels.text.tolist() == [[False, True]] * 2 + [[True, True]] * 2


def test_word_ids_alone_are_spelled_by_the_vocabulary_beside_them(tmp_path: Path) -> None:
    np.save(tmp_path / "test_ims.npy", np.ones((2, 4), np.float32))
    (tmp_path / "test_precaps.txt").write_text("1,4,5,2\n1,5,2\n")
    words = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "red": 4, "dog": 5}
    (tmp_path / "vocab.json").write_text(json.dumps({"word2idx": words}))
    assert list(formats.read(tmp_path).captions) == ["red dog", "dog"]


def test_cc152k_tsv_gives_ids_and_captions(tmp_path: Path) -> None:
    np.save(tmp_path / "dev_ims.npy", np.ones((2, 4), np.float32))
    (tmp_path / "dev_caps.tsv").write_text('100\ta dog\n200\t"say ""hi"""\n')
    pairs = formats.read(tmp_path)
    assert list(pairs.names) == ["100", "200"] and list(pairs.captions) == ["a dog", 'say "hi"']
    assert pairs.splits.tolist() == ["val", "val"]


def test_equal_ids_in_test_and_testall_are_told_apart(tmp_path: Path) -> None:
    for split in ("test", "testall"):
        precomputed(tmp_path, split, 2, 1)
        (tmp_path / f"{split}_ids.txt").write_text("7\n8\n")
    assert list(formats.read(tmp_path).names) == ["test/7", "test/8", "testall/7", "testall/8"]


def test_an_empty_caption_line_is_skipped_without_shifting_the_others(tmp_path: Path) -> None:
    precomputed(tmp_path, "test", 2, 2)
    (tmp_path / "test_caps.txt").write_text("a\n\nb\nc\n")
    pairs = formats.read(tmp_path)
    assert list(pairs.captions) == ["a", "b", "c"] and pairs.picture.tolist() == [0, 1, 1]
    assert [(p.kind, p.count) for p in pairs.problems] == [("empty", 1)]


def test_a_folder_whose_only_data_is_below_data_is_opened(tmp_path: Path) -> None:
    precomputed(tmp_path / "data", "test", 2, 2)
    (tmp_path / "checkpoint.pth.tar").write_bytes(b"no tar at all" * 100)
    assert len(formats.read(tmp_path)) == 4


def test_regions_with_tags_become_words(tmp_path: Path) -> None:
    np.save(tmp_path / "train_preim.npy", np.ones((3, 2, 4), np.float32))
    savemat(tmp_path / "train_tag.mat", {"feat": np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)})
    savemat(tmp_path / "train_label.mat", {"feat": np.array([[1, 0], [0, 1], [1, 1]], np.int32)})
    (tmp_path / "common_tags.txt").write_text("sky 12\nsea 9\nsun 4\n")
    pairs = formats.read(tmp_path)
    assert list(pairs.captions) == ["sky sun", "sea"]  # the third has no tags
    assert pairs.labels is not None and pairs.labels.image.tolist() == [[True, False], [False, True]]


# --- label sets ------------------------------------------------------------------------------------------------------


def wikipedia(folder: Path, train: int = 2173, test: int = 693) -> Path:
    rng = np.random.default_rng(0)
    sizes = {"tr": train, "te": test}
    savemat(
        folder / "raw_features.mat", {f"{side}_{part}": rng.random((sizes[part], 3)) for side in "IT" for part in sizes}
    )
    for part, name in (("tr", "train"), ("te", "test")):
        lines = [f"text{name}{i}\timage{name}{i}\t{i % 10 + 1}\n" for i in range(sizes[part])]
        (folder / f"{name}set_txt_img_cat.list").write_text("".join(lines))
    (folder / "categories.list").write_text("\n".join(f"class {i}" for i in range(10)) + "\n")
    return folder


def test_wikipedias_first_231_test_rows_are_val(tmp_path: Path) -> None:
    pairs = formats.read(wikipedia(tmp_path))
    assert {name: len(pairs.rows(name)) for name in pairs.split_names} == {"train": 2173, "val": 231, "test": 462}
    assert pairs.names[2173] == "imagetest0" and pairs.splits[2173] == "val"
    assert pairs.names[2173 + 231] == "imagetest231" and pairs.splits[2173 + 231] == "test"
    assert pairs.labels is not None and pairs.labels.single and pairs.labels.names[0] == "class 0"
    assert pairs.labels.image[2173 + 3].argmax() == 3  # row 3 of test says class 4, counted from 1


@pytest.mark.parametrize("suffix", ["h5", "npz", "mat"])
def test_label_sets_of_each_kind_of_file(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for part, rows in (("train", 6), ("test", 4)):
        found[f"{part}_imgs_deep"] = rng.random((rows, 5))
        found[f"{part}_text"] = rng.random((rows, 3))
        found[f"{part}_imgs_labels"] = np.arange(rows) % 3 + 1
    found["train_texts_labels"] = np.array([3, 2, 3, 1, 2, 3])
    path = tmp_path / f"set.{suffix}"
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            file.update(found)
    elif suffix == "npz":
        np.savez(path, **found)
    else:
        savemat(path, found)
    for place in (path, tmp_path):
        pairs = formats.read(place, validation=1)
        assert pairs.splits.tolist() == ["train"] * 6 + ["val"] + ["test"] * 3
        assert pairs.labels is not None and pairs.labels.names == ["1", "2", "3"]
        assert pairs.labels.text.argmax(1).tolist() == [2, 1, 2, 0, 1, 2, 0, 1, 2, 0]
        assert pairs.features is not None
        assert np.allclose(pairs.features.gather(np.array([6])), found["test_imgs_deep"][:1])


def test_a_label_set_whose_counts_disagree_is_refused(tmp_path: Path) -> None:
    """35 and 45 texts for 40 and 40 pictures are 80 for 80, all but the first of them of another picture."""
    arrays = {"train_img": np.ones((40, 5)), "test_img": np.ones((40, 5))}
    np.savez(tmp_path / "a.npz", **arrays, train_txt=np.ones((35, 3)), test_txt=np.ones((45, 3)))
    with pytest.raises(BadInput, match="train has 40 pictures but 35 texts; there must be one text for each picture"):
        formats.read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **arrays, test_txt=np.ones((40, 3)))
    with pytest.raises(BadInput, match="train has no texts, only arrays of image"):
        formats.read(tmp_path / "b.npz")


def test_a_sparse_matrix_does_not_lose_its_split(tmp_path: Path) -> None:
    arrays = {f"{part}_{kind}": np.ones((4, 3)) for part in ("train", "test") for kind in ("img", "txt")}
    savemat(tmp_path / "a.mat", {**arrays, "train_txt": csr_matrix(np.eye(4, 3))})
    with pytest.raises(BadInput, match="train_txt is a sparse matrix; save it in full"):
        formats.read(tmp_path / "a.mat")


def test_pascal_sentences_one_mat_an_array(tmp_path: Path) -> None:
    for part, rows in (("train", 4), ("test", 2)):
        savemat(tmp_path / f"{part}_img.mat", {f"{part}_img": np.ones((rows, 5), np.float32)})
        savemat(tmp_path / f"{part}_txt.mat", {f"{part}_txt": np.ones((rows, 3), np.float32)})
        savemat(tmp_path / f"{part}_img_lab.mat", {f"{part}_img_lab": np.arange(rows)[:, None] % 2})
    pairs = formats.read(tmp_path)
    assert pairs.splits.tolist() == ["train"] * 4 + ["test"] * 2
    assert pairs.labels is not None and pairs.labels.text.argmax(1).tolist() == [0, 1, 0, 1, 0, 1]


def test_xmedia_tests_on_the_first_500_and_validates_on_the_rest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {"A_tr": np.ones((3, 2))}
    for part, rows in (("tr", 3), ("te", 502)):
        found |= {f"I_{part}_CNN": rng.random((rows, 4)), f"T_{part}_BOW": rng.random((rows, 6))}
        found |= {f"{part}ImgCat": np.arange(rows) % 3 + 1, f"{part}TxtCat": np.arange(rows) % 3 + 1}
    savemat(tmp_path / "XMediaFeatures.mat", found)
    pairs = formats.read(tmp_path)
    assert pairs.splits.tolist() == ["train"] * 3 + ["val"] * 2 + ["test"] * 500
    assert pairs.features is not None
    assert np.allclose(pairs.features.gather(np.array([3, 5])), found["I_te_CNN"][[500, 0]])
    assert pairs.labels is not None and pairs.labels.image[3:6].argmax(1).tolist() == [500 % 3, 501 % 3, 0]


# --- info ------------------------------------------------------------------------------------------------------------


def test_info_counts_what_is_there_and_what_is_wrong(tmp_path: Path) -> None:
    lines = [{"image": f"{i}.png", "captions": ["x", "y"], "split": "train"} for i in range(5)]
    lines[4]["captions"] = ["x", "x", " "]
    lines[1]["split"] = "test"
    folder = jsonl(tmp_path / "set", *lines)
    (folder / "images" / "1.png").write_bytes(picture(0))  # the same as 0.png, which is in train
    (folder / "images" / "2.png").write_bytes(picture(2)[:-60])
    (folder / "images" / "3.png").unlink()
    found = formats.info(formats.read(folder))
    assert found["format"] == "jsonl"
    assert found["splits"] == {"train": {"pictures": 4, "captions": 8}, "test": {"pictures": 1, "captions": 2}}
    assert found["captions_per_picture"] == {"min": 2, "mean": 2.0, "max": 2}
    assert found["picture_sizes"]["width"] == {"min": 12, "median": 12.0, "max": 12}
    kinds = {problem["kind"]: problem["count"] for problem in found["problems"]}
    assert kinds == {
        "empty": 1,
        "missing": 1,
        "unreadable": 1,
        "duplicate": 1,
        "in two splits": 1,
        "duplicate caption": 1,
    }
    assert all(problem["examples"] for problem in found["problems"])
    json.dumps(found)


def test_info_of_features_says_their_shape_and_finds_nan(tmp_path: Path) -> None:
    precomputed(tmp_path, "test", 3, 2)
    features = np.load(tmp_path / "test_ims.npy")
    features[1, 0, 0] = np.nan
    np.save(tmp_path / "test_ims.npy", features)
    found = formats.info(formats.read(tmp_path))
    assert found["features"] == [3, 3, 2] and found["regions"] == 3
    assert found["problems"] == [{"kind": "not finite", "count": 1, "examples": ["features row 1: test/1"]}]


def test_info_without_check_looks_at_a_sample_only(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "set", *({"image": f"{i}.png", "captions": ["x"], "split": "test"} for i in range(3)))
    (folder / "images" / "2.png").write_bytes(b"")
    assert formats.info(formats.read(folder), check=False)["problems"] == []


# --- speed -----------------------------------------------------------------------------------------------------------


def test_opening_does_not_touch_pictures_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = jsonl(tmp_path / "set", *({"image": f"{i}.png", "captions": ["x"], "split": "test"} for i in range(50)))
    asked: list[str] = []
    for name in ("picture_files.is_inside", "sources.is_inside", "sources.read_regular"):
        monkeypatch.setattr(f"matchlight.data.formats.{name}", lambda *path: asked.append(str(path)) or True)
    assert len(formats.read(folder)) == 50
    assert len(asked) < 5  # each folder once


def test_csv_cells_that_start_with_an_equals_sign_are_kept(tmp_path: Path) -> None:
    folder = jsonl(tmp_path / "set", {"image": "a.png", "captions": ["=SUM(A1)"], "split": "test"})
    formats.write(formats.read(folder), tmp_path / "out", to="csv")
    with open(tmp_path / "out" / "captions.csv", newline="", encoding="utf-8") as file:
        assert [row[1] for row in csv.reader(file)] == ["caption", "=SUM(A1)"]
