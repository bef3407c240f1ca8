"""Data from strangers: what is wrong is one clear line or a counted problem, and nothing outside the folder is read."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csr_matrix, save_npz

from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.pairs import BadPicture, Pairs

SECRET = b"the secret of another folder"


def picture(kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, kind)
    return out.getvalue()


def data_set(folder: Path, *images: str) -> Path:
    """captions.jsonl that names these pictures; those that are plain names exist."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"image": image, "captions": [f"about {n}"], "split": "test"}) for n, image in enumerate(images)
    ]
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n")
    for image in images:
        if "/" not in image and "\0" not in image:
            (folder / "images" / image).write_bytes(picture())
    return folder


def kinds(pairs: Pairs) -> dict[str, int]:
    return {problem.kind: problem.count for problem in pairs.problems}


def complaint(path: Path, **options: Any) -> str:
    """The one line a user sees."""
    with pytest.raises(BadInput) as caught:
        pairs = formats.read(path, **options)
        if pairs.features is not None:
            pairs.features.gather(np.arange(len(pairs.names)))
    line = str(caught.value)
    assert "\n" not in line and line
    return line


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_missing_picture_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = data_set(tmp_path, "a.jpg", "b.jpg")
    (folder / "images" / "b.jpg").unlink()
    pairs = formats.read(folder)
    assert len(pairs) == 2 and kinds(pairs) == {"missing": 1}
    assert pairs.pictures is not None and pairs.pictures.open(0).size == (60, 40)
    with pytest.raises(BadPicture, match="'b.jpg': no such picture") as caught:
        pairs.pictures.open(1)
    assert caught.value.kind == "missing"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_cut_picture_of_any_kind_is_refused_never_half_decoded(tmp_path: Path, kind: str) -> None:
    folder = data_set(tmp_path, "a.jpg")
    for keep in (0, 10, len(picture(kind)) // 2):
        (folder / "images" / "a.jpg").write_bytes(picture(kind)[:keep])
        pairs = formats.read(folder)
        assert pairs.pictures is not None
        with pytest.raises(BadPicture):
            pairs.pictures.open(0)
        assert {p["kind"]: p["count"] for p in formats.info(pairs)["problems"]} == {"unreadable": 1}


def test_a_picture_with_a_giant_size_in_its_header_is_refused_unopened(tmp_path: Path) -> None:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    folder = data_set(tmp_path, "a.png")
    for side in (9_000, 60_000):  # above our limit; above Pillow's as well
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
        (folder / "images" / "a.png").write_bytes(bomb)
        pairs = formats.read(folder)
        assert pairs.pictures is not None
        with pytest.raises(BadPicture, match="64 megapixels") as caught:
            pairs.pictures.open(0)
        assert caught.value.kind == "too large"


def test_the_limit_of_pixels_is_an_option(tmp_path: Path) -> None:
    pairs = formats.read(data_set(tmp_path, "a.jpg"), max_pixels=60 * 40 - 1)
    assert pairs.pictures is not None
    with pytest.raises(BadPicture, match="60x40 pixels"):
        pairs.pictures.open(0)


def test_kinds_off_the_list_are_not_decoded(tmp_path: Path) -> None:
    folder = data_set(tmp_path, "a.jpg")
    (folder / "images" / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    pairs = formats.read(folder)
    assert pairs.pictures is not None
    with pytest.raises(BadPicture, match="no readable picture"):
        pairs.pictures.open(0)


def test_a_pipe_among_the_pictures_does_not_block(tmp_path: Path) -> None:
    folder = data_set(tmp_path, "a.jpg")
    (folder / "images" / "a.jpg").unlink()
    os.mkfifo(folder / "images" / "a.jpg")
    pairs = formats.read(folder)
    assert pairs.pictures is not None
    with pytest.raises(BadPicture, match="not a regular file"):
        pairs.pictures.read(0)


# --- names that lead out ---------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret.jpg"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


@pytest.mark.parametrize("name", ["../outside/secret.jpg", "images/../../outside/secret.jpg", "..\\outside\\secret.jpg",
                                  "x\0.jpg", "ABSOLUTE"])  # fmt: skip
def test_names_that_climb_out_are_counted_and_never_read(tmp_path: Path, secret: Path, name: str) -> None:
    name = str(secret) if name == "ABSOLUTE" else name
    pairs = formats.read(data_set(tmp_path / "set", "a.jpg", name))
    assert kinds(pairs) == {"outside": 1}
    assert pairs.pictures is not None
    with pytest.raises(BadPicture) as caught:
        pairs.pictures.read(1)
    assert caught.value.kind == "outside" and "\n" not in str(caught.value)
    formats.write(pairs, tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy" / "images").rglob("*")) == ["a.jpg"]


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path, secret: Path) -> None:
    folder = data_set(tmp_path / "set", "a.jpg", "b.jpg", "c.jpg")
    for name, goal in (("b.jpg", secret), ("c.jpg", folder / "images" / "a.jpg")):
        (folder / "images" / name).unlink()
        (folder / "images" / name).symlink_to(goal)
    pairs = formats.read(folder)
    assert kinds(pairs) == {"outside": 1} and pairs.pictures is not None
    with pytest.raises(BadPicture, match="leads out"):
        pairs.pictures.read(1)
    assert pairs.pictures.read(2) == picture()  # a link that stays inside is a picture like any other


def test_a_linked_folder_or_file_that_leaves_is_not_followed(tmp_path: Path, secret: Path) -> None:
    folder = data_set(tmp_path / "set", "secret.jpg")
    (folder / "images" / "secret.jpg").unlink()
    (folder / "images").rmdir()
    (folder / "images").symlink_to(secret.parent)
    pairs = formats.read(folder)
    assert kinds(pairs) == {"outside": 1} and pairs.pictures is not None
    with pytest.raises(BadPicture, match="leads out"):
        pairs.pictures.read(0)
    lines = tmp_path / "outside" / "lines"
    lines.write_bytes((folder / "captions.jsonl").read_bytes())
    (folder / "captions.jsonl").unlink()
    (folder / "captions.jsonl").symlink_to(lines)
    assert "leaves the data folder" in complaint(folder)


def test_a_link_made_after_opening_is_not_followed_either(tmp_path: Path, secret: Path) -> None:
    pairs = formats.read(folder := data_set(tmp_path / "set", "a.jpg"))
    (folder / "images" / "a.jpg").unlink()
    (folder / "images" / "a.jpg").symlink_to(secret)
    assert pairs.pictures is not None
    with pytest.raises(BadPicture, match="leads out"):
        pairs.pictures.read(0)


def tar_of(path: Path, *members: tuple[str, bytes, str]) -> None:
    """A tar of (name, type, link target or content)."""
    with tarfile.open(path, "w") as packed:
        for name, kind, text in members:
            about = tarfile.TarInfo(name)
            about.type, about.linkname = kind, text if kind != tarfile.REGTYPE else ""
            about.size = len(text) if kind == tarfile.REGTYPE else 0
            packed.addfile(about, io.BytesIO(text.encode()) if kind == tarfile.REGTYPE else None)


def test_tar_members_that_are_links_devices_or_climb_out_are_ignored_and_counted(tmp_path: Path, secret: Path) -> None:
    folder = data_set(tmp_path / "set", "good.jpg", "link.jpg", "hard.jpg", "dev.jpg", "up.jpg")
    for path in (folder / "images").iterdir():
        path.unlink()
    (folder / "images").rmdir()
    tar_of(
        folder / "images.tar",
        ("images", tarfile.DIRTYPE, ""),
        ("images/link.jpg", tarfile.SYMTYPE, str(secret)),
        ("images/hard.jpg", tarfile.LNKTYPE, "../outside/secret.jpg"),
        ("images/dev.jpg", tarfile.CHRTYPE, ""),
        ("../up.jpg", tarfile.REGTYPE, "x"),
        ("/up.jpg", tarfile.REGTYPE, "x"),
        ("images/good.jpg", tarfile.REGTYPE, "plain"),
    )
    pairs = formats.read(folder)
    assert kinds(pairs) == {"missing": 4, "refused in tar": 5}
    assert pairs.pictures is not None and pairs.pictures.read(0) == b"plain"


def test_shards_with_hostile_members_give_only_their_good_samples(tmp_path: Path) -> None:
    tar_of(
        tmp_path / "train-0.tar",
        ("../a.jpg", tarfile.REGTYPE, "x"),
        ("b.txt", tarfile.SYMTYPE, "/etc/passwd"),
        ("c.jpg", tarfile.REGTYPE, "x"),
        ("c.txt", tarfile.REGTYPE, "fine"),
    )
    pairs = formats.read(tmp_path)
    assert list(pairs.captions) == ["fine"] and kinds(pairs) == {"refused in tar": 2}


def test_a_cut_tar_is_one_clear_line(tmp_path: Path) -> None:
    tar_of(tmp_path / "train-0.tar", ("a.jpg", tarfile.REGTYPE, "x" * 5000), ("a.txt", tarfile.REGTYPE, "a"))
    whole = (tmp_path / "train-0.tar").read_bytes()
    (tmp_path / "train-0.tar").write_bytes(whole[:2000])
    assert "cut" in complaint(tmp_path)
    (tmp_path / "train-0.tar").write_bytes(b"no tar" * 200)
    assert "no tar header" in complaint(tmp_path / "train-0.tar")


def test_hdf5_never_opens_another_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.ones((2, 3))
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.ones((2, 3)).tobytes())
    (tmp_path / "sets").mkdir()

    def refused(name: str, make: Any) -> str:
        path = tmp_path / "sets" / f"{name}.h5"
        with h5py.File(path, "w") as file:
            file["train_text"] = np.ones((2, 3))
            make(file)
        return complaint(path)

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((2, 3), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (2, 3))
        file.create_virtual_dataset("train_img", layout)

    outside = h5py.ExternalLink(str(tmp_path / "other.h5"), "x")
    assert "is a link" in refused("external", lambda file: file.__setitem__("train_img", outside))
    assert "is a link" in refused("soft", lambda file: file.__setitem__("train_img", h5py.SoftLink("/train_text")))
    assert "another file" in refused("virtual", virtual)
    stored = [(str(raw), 0, 48)]
    assert "another file" in refused("raw", lambda f: f.create_dataset("train_img", (2, 3), "f8", external=stored))
    assert "no array" in refused("group", lambda file: file.create_group("train_img"))


# --- captions --------------------------------------------------------------------------------------------------------


def test_an_empty_caption_is_skipped_and_counted(tmp_path: Path) -> None:
    folder = data_set(tmp_path, "a.jpg", "b.jpg")
    lines = [{"image": "a.jpg", "captions": ["x", "", " \t", None]}, {"image": "b.jpg", "captions": []}]
    (folder / "captions.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    pairs = formats.read(folder)
    assert list(pairs.captions) == ["x"] and list(pairs.names) == ["a.jpg"]
    assert kinds(pairs) == {"empty": 4}  # three captions and a picture without any


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no usable pair"),
        ('{"image": "a.jpg", "captions": [""]}', "no usable pair"),
        ('{"image": "a.jpg", "captions": ["x"]}\n{"image": ', "line 2: not a JSON object"),
        ("[1]", "line 1: not a JSON object"),
        ('{"captions": ["x"]}', "line 1: no picture"),
        ('{"image": 5, "captions": ["x"]}', "line 1: no picture"),
        ('{"image": "a.jpg"}', "line 1: no captions"),
        ('{"image": "a.jpg", "captions": [5]}', "line 1: a caption must be a text"),
        ('{"image": "a.jpg", "captions": ["x"], "split": "../up"}', "line 1: '../up' is no split"),
        ('{"image": "a.jpg", "captions": ["x"], "labels": {"a": 1}}', 'line 1: "labels"'),
        ('{"image": "a.jpg", "captions": ["x"], "caption_labels": []}', 'line 1: "caption_labels"'),
        ("[" * 100_000, "line 1: not a JSON object (nested too deeply"),
    ],
)  # fmt: skip
def test_a_broken_captions_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "captions.jsonl").write_text(text)
    line = complaint(tmp_path)
    assert says in line and str(tmp_path / "captions.jsonl") in line


def test_captions_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_bytes(b'{"image": "a.jpg", "captions": ["x"]}\n{"image": "\xff.jpg"}\n')
    assert "line 2" in complaint(tmp_path)


def test_half_a_surrogate_pair_can_be_written_again(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "set", "a.jpg")
    (folder / "captions.jsonl").write_text('{"image": "a.jpg", "captions": ["x \\ud83d y"], "split": "test"}')
    for to in ("jsonl", "csv", "parquet", "webdataset"):
        assert list(formats.read(formats.write(formats.read(folder), tmp_path / to, to=to)).captions) == ["x ? y"]


FILES = [
    "captions.jsonl",
    "captions.csv",
    "x.parquet",
    "x.tar",
    "x.npz",
    "x.mat",
    "x.h5",
    "dataset_x.json",
    "test_caps.txt",
]


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=200), name=st.sampled_from(FILES))
def test_random_bytes_are_answered_with_one_line(
    content: bytes, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    (folder / name).write_bytes(content)
    np.save(folder / "test_ims.npy", np.ones((1, 2), np.float32))
    for place in (folder, folder / name):
        try:
            formats.read(place)
        except BadInput as error:
            assert "\n" not in str(error)


# --- arrays ----------------------------------------------------------------------------------------------------------


def precomputed(folder: Path, pictures: int = 3, captions: int = 6) -> Path:
    np.save(folder / "test_ims.npy", np.ones((pictures, 4), np.float32))
    (folder / "test_caps.txt").write_text("".join(f"caption {n}\n" for n in range(captions)))
    return folder


@pytest.mark.parametrize("captions", [2, 5, 7])
def test_captions_that_do_not_divide_evenly_are_refused_with_both_counts(tmp_path: Path, captions: int) -> None:
    line = complaint(precomputed(tmp_path, captions=captions))
    assert f"{captions} captions for 3 pictures of test_ims.npy" in line and "test_caps.txt" in line


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_named_by_file_and_row(tmp_path: Path, value: float) -> None:
    precomputed(tmp_path)
    features = np.ones((3, 4), np.float32)
    features[2, 1] = value
    np.save(tmp_path / "test_ims.npy", features)
    pairs = formats.read(tmp_path)
    assert pairs.features is not None
    assert pairs.features.gather(np.array([0, 1])).shape == (2, 4)  # the good rows can be used
    assert f"{tmp_path / 'test_ims.npy'}: row 2 holds NaN or infinite values" in complaint(tmp_path)


def test_a_pickled_array_is_refused_unread(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    precomputed(tmp_path)
    np.save(tmp_path / "test_ims.npy", np.array([Trap()] * 3, dtype=object), allow_pickle=True)
    assert "never read" in complaint(tmp_path)
    trap = {"train_img": np.array([[Trap()]], dtype=object), "train_txt": np.ones((1, 2))}
    np.savez(tmp_path / "set.npz", allow_pickle=True, **trap)
    assert "pickled" in complaint(tmp_path / "set.npz")
    assert not (tmp_path / "sprung").exists()


def test_a_cut_or_lengthened_npy_is_refused(tmp_path: Path) -> None:
    whole = (precomputed(tmp_path) / "test_ims.npy").read_bytes()
    for content in (whole[:-4], whole + b"more"):
        (tmp_path / "test_ims.npy").write_bytes(content)
        assert "cut or damaged" in complaint(tmp_path)
    for content in (b"", whole[:20], b"\x93NUMPY\x09\x00" + whole[8:], whole.replace(b"(3, 4)", b"(9,-4)")):
        (tmp_path / "test_ims.npy").write_bytes(content)
        assert "test_ims.npy" in complaint(tmp_path)


def test_word_ids_and_ids_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    precomputed(tmp_path)
    (tmp_path / "test_precaps.txt").write_text("1,2\n")
    assert "1 lines, but test_caps.txt has 6" in complaint(tmp_path)
    (tmp_path / "test_precaps.txt").write_text("1,2\n" * 5 + "1,x\n")
    assert "test_precaps.txt line 6" in complaint(tmp_path)
    (tmp_path / "test_precaps.txt").unlink()
    (tmp_path / "test_ids.txt").write_text("1\n2\n")
    assert "2 ids for 3 pictures" in complaint(tmp_path)


def test_captions_without_their_features_say_which_file_is_missing(tmp_path: Path) -> None:
    (precomputed(tmp_path) / "test_ims.npy").unlink()
    assert "neither test_ims.npy nor test_feat.npy" in complaint(tmp_path)


def test_label_sets_of_unequal_sides_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_img=np.ones((3, 2)), train_txt=np.ones((2, 2)))
    assert "3 pictures but 2 texts" in complaint(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", train_img=np.ones((3, 2)), train_txt=np.ones((3, 2)), train_img_lab=np.arange(2))
    assert "2 labels for 3 items" in complaint(tmp_path / "a.npz")
    np.savez(
        tmp_path / "a.npz", train_img=np.ones((3, 2)), train_txt=np.full((3, 2), np.nan), train_img_lab=np.arange(3)
    )
    assert "row 0 holds NaN" in complaint(tmp_path / "a.npz")
    savemat(tmp_path / "a.mat", {"train_img": np.array([["text", 5]], dtype=object), "other": np.ones(3)})
    assert "no arrays of pictures and texts" in complaint(tmp_path / "a.mat")


def test_relevance_of_another_shape_or_with_indices_outside_is_refused(tmp_path: Path) -> None:
    folder = data_set(tmp_path, "a.jpg", "b.jpg")
    save_npz(folder / "relevance.npz", csr_matrix((3, 2), dtype=bool))
    assert "is 3 x 2; captions x pictures is 2 x 2" in complaint(folder)
    outside = csr_matrix(np.eye(2, dtype=bool))
    outside.indices[:] = 10**6
    save_npz(folder / "relevance.npz", outside)
    assert "not a sparse matrix" in complaint(folder)


# --- where to read and write -----------------------------------------------------------------------------------------


def test_what_is_no_data_set_is_told_what_would_be(tmp_path: Path) -> None:
    assert "no such file or folder" in complaint(tmp_path / "nowhere")
    assert "is empty" in complaint(tmp_path)
    (tmp_path / "notes.md").write_text("hello")
    assert "captions.jsonl" in complaint(tmp_path) and "not a data set" in complaint(tmp_path / "notes.md")
    (tmp_path / "a.jpg").write_bytes(picture())
    assert Pairs.read(tmp_path).format == "pictures"
    np.savez(tmp_path / "loss.npz", scores=np.ones(3))
    assert Pairs.read(tmp_path).format == "pictures"


def test_unknown_options_and_formats_are_answered_with_the_known(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "set", "a.jpg")
    assert "known: format, seed" in complaint(folder, colour="red")
    assert "known: jsonl, npz" in complaint(folder, format="xml")
    with pytest.raises(BadInput, match="known: jsonl, npz, scan, csv"):
        formats.write(formats.read(folder), tmp_path / "out", to="xml")


def test_a_format_that_cannot_hold_the_data_says_which_can(tmp_path: Path) -> None:
    pixels = formats.read(data_set(tmp_path / "set", "a.jpg"))
    for to in ("scan", "npz"):
        with pytest.raises(BadInput, match="--to jsonl, csv, parquet or webdataset can"):
            formats.write(pixels, tmp_path / "out", to=to)
    (tmp_path / "arrays").mkdir()
    arrays = formats.read(precomputed(tmp_path / "arrays"))
    for to in ("jsonl", "csv", "parquet", "webdataset"):
        with pytest.raises(BadInput, match="--to npz can"):
            formats.write(arrays, tmp_path / "out", to=to)
    uneven = arrays.select(np.arange(3), np.array([0, 1, 2, 4]))
    with pytest.raises(BadInput, match="same number of captions"):
        formats.write(uneven, tmp_path / "out", to="scan")
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    pairs = formats.read(data_set(tmp_path / "set", "a.jpg"))
    (tmp_path / "file").write_text("here")
    for out in (tmp_path / "file" / "below", tmp_path / "file"):
        with pytest.raises(BadInput) as caught:
            formats.write(pairs, out)
        assert str(out) in str(caught.value)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    with pytest.raises(BadInput, match="already holds files"):
        formats.write(pairs, tmp_path / "full")
    assert (tmp_path / "full" / "mine").read_text() == "keep"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "set"]


def test_a_crash_while_writing_leaves_no_half_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = formats.read(data_set(tmp_path / "set", "a.jpg"))
    boom = (_ for _ in ()).throw
    monkeypatch.setattr("matchlight.data.formats.jsonl.entries", lambda *_: boom(RuntimeError("crash")))
    with pytest.raises(RuntimeError):
        formats.write(pairs, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_missing_pictures_do_not_stop_a_conversion(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "set", "a.jpg", "b.jpg")
    (folder / "images" / "a.jpg").unlink()
    for to in ("jsonl", "csv", "parquet", "webdataset"):
        again = formats.read(formats.write(formats.read(folder), tmp_path / to, to=to))
        assert list(again.captions) == ["about 0", "about 1"]
        assert {p["kind"]: p["count"] for p in formats.info(again)["problems"]} == {"missing": 1}
        assert again.pictures is not None and again.pictures.read(1) == picture()
