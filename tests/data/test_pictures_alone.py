"""Pictures without captions: folders, tars and zips as people have them, and what must not come of hostile ones."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.content import stamps
from matchlight.pairs import Pairs


def picture(colour: int = 0, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (24, 16), (colour, 128, 255 - colour)).save(file, kind)
    return file.getvalue()


def put(folder: Path, *places: str) -> Path:
    """A picture of its own colour at each place."""
    for number, place in enumerate(places):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(picture(9 * number, "JPEG" if place.lower().endswith("jpg") else "PNG"))
    return folder


def problems(pairs: Pairs) -> dict[str, int]:
    return {one.kind: one.count for one in pairs.problems}


def test_a_nested_folder_of_mixed_types_is_a_data_set_without_captions(tmp_path: Path) -> None:
    pairs = Pairs.read(put(tmp_path, "b.JPG", "2019/rome/a.png", "2019/a.png", "2020/a.png"))
    assert pairs.names == ["b.JPG", "2019/a.png", "2019/rome/a.png", "2020/a.png"]
    assert (pairs.format, len(pairs), pairs.split_names) == ("pictures", 0, ["all"])
    assert [pairs.pictures.open(k).getpixel((0, 0))[0] for k in (1, 2, 3)] == [18, 9, 27]  # by place, not by name
    facts = formats.info(pairs)
    assert (facts["pictures"], facts["captions"], facts["problems"]) == (4, 0, [])


def test_what_a_system_hides_is_passed_over_and_other_files_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "__MACOSX/._a.png", ".thumbs/a.png", "._a.png", "@eaDir/a.png")
    for name in (".DS_Store", "Thumbs.db", "film.mov", "notes.doc"):
        (tmp_path / name).write_bytes(b"x")
    pairs = Pairs.read(tmp_path)
    assert pairs.names == ["a.png"] and problems(pairs) == {"not read": 2}


def test_links_out_of_the_folder_are_counted_and_never_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "secret.png")
    folder = put(tmp_path / "mine", "a.png", "sub/b.png")
    (folder / "out.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    (folder / "round").symlink_to(folder)  # a circle
    (folder / "again.png").symlink_to(folder / "a.png")
    pairs = Pairs.read(folder)
    assert pairs.names == ["a.png", "again.png", "sub/b.png"] and problems(pairs) == {"outside": 2}
    alone = tmp_path / "links"
    alone.mkdir()
    (alone / "out.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    with pytest.raises(BadInput, match="links leave it, and are not followed: copy the files there"):
        Pairs.read(alone)


def test_a_link_in_a_circle_and_a_folder_that_may_not_be_opened_stop_nothing(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "closed/b.png")
    for name in ("circle", "circle.png"):
        (tmp_path / name).symlink_to(tmp_path / name)
    (tmp_path / "closed").chmod(0)
    try:
        pairs = Pairs.read(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o755)
    there = [name for name in pairs.names if not name.startswith("closed/")]  # nothing is closed to an administrator
    assert there == ["a.png", "circle.png"]
    assert [one["kind"] for one in formats.info(pairs)["problems"]] == ["unreadable"]


def test_a_backup_beside_photos_does_not_stand_for_them(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "2019/c.png")
    with tarfile.open(tmp_path / "backup.tar", "w") as tar:
        tar.add(tmp_path / "a.png", "a.png")
    pairs = Pairs.read(tmp_path)
    assert (pairs.format, len(pairs.names), problems(pairs)) == ("pictures", 3, {"not read": 1})


def test_photos_beside_a_folder_called_train_are_read_with_it(tmp_path: Path) -> None:
    pairs = Pairs.read(put(tmp_path, "train/a.png", "train/b.png", "rome/c.png", "d.png"))
    assert (pairs.format, pairs.names) == ("pictures", ["d.png", "rome/c.png", "train/a.png", "train/b.png"])
    (tmp_path / "d.png").unlink()
    (tmp_path / "rome" / "c.png").unlink()
    assert Pairs.read(tmp_path).split_names == ["train"]


def test_a_name_that_is_not_utf8_is_read_by_its_place(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.png", "wb") as file:
        file.write(picture(7))
    pairs = Pairs.read(tmp_path)
    assert pairs.names == ["caf?.png"] and pairs.pictures.open(0).getpixel((0, 0))[0] == 7
    assert "missing" not in stamps(pairs.pictures)[0]


def test_broken_pictures_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    (tmp_path / "cut.png").write_bytes(picture()[:60])
    (tmp_path / "empty.jpg").write_bytes(b"")
    found = {one["kind"]: one["count"] for one in formats.info(Pairs.read(tmp_path))["problems"]}
    assert found["unreadable"] == 2


def test_a_tar_and_a_zip_of_pictures_read_like_their_folder(tmp_path: Path) -> None:
    folder = put(tmp_path / "mine", "a.b.png", "sub/a.png", "sub/deep/a.png", "__MACOSX/._a.png")
    with tarfile.open(tmp_path / "mine.tar", "w") as tar:
        tar.add(folder, arcname=".")
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        for number, one in enumerate(sorted(folder.rglob("*.png"))):
            packed = zipfile.ZIP_STORED if number % 2 else zipfile.ZIP_DEFLATED
            archive.write(one, one.relative_to(folder), compress_type=packed)
    by_folder, by_tar, by_zip = (Pairs.read(tmp_path / name) for name in ("mine", "mine.tar", "mine.zip"))
    assert sorted(by_zip.names) == sorted(by_folder.names)
    assert sorted(name.removeprefix("mine/") for name in by_tar.names) == sorted(by_folder.names)
    colours = [sorted(one.pictures.open(k).getpixel((0, 0)) for k in range(3)) for one in (by_folder, by_tar, by_zip)]
    assert colours[0] == colours[1] == colours[2]
    assert len(set(stamps(by_zip.pictures))) == 3
    some = by_zip.pictures.take(np.array([2]))
    assert some.read(0) == by_zip.pictures.read(2) and by_zip.pictures.size_in_bytes(0) > 0


def test_a_zip_with_captions_or_without_pictures_is_told_to_be_unpacked(tmp_path: Path) -> None:
    for name, inside in (("table.zip", ["a.png", "captions.csv"]), ("nested.zip", ["more.zip"])):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for one in inside:
                archive.writestr(one, picture())
    with pytest.raises(BadInput, match="captions.csv beside 1 pictures.*unpack the zip"):
        Pairs.read(tmp_path / "table.zip")
    with pytest.raises(BadInput, match="no pictures in this zip .1 other files.; unpack it"):
        Pairs.read(tmp_path / "nested.zip")
    (tmp_path / "cut.zip").write_bytes((tmp_path / "table.zip").read_bytes()[:-30])
    with pytest.raises(BadInput, match="not a zip, or damaged"):
        Pairs.read(tmp_path / "cut.zip")


def test_a_zip_bomb_and_what_cannot_be_unpacked_are_told_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good.png", picture())
        archive.writestr("bomb.bmp", bytes(80 << 20))  # packs to a thousandth
        archive.writestr("../out.png", picture())
        archive.writestr("other.zip", b"PK")
        archive.writestr("odd.png", picture(), compress_type=zipfile.ZIP_BZIP2)
    pairs = Pairs.read(path)
    assert pairs.names == ["good.png", "bomb.bmp"] and problems(pairs) == {"refused in zip": 2, "not read": 1}
    assert {one["kind"]: one["count"] for one in formats.info(pairs)["problems"]}["too large"] == 1
    raw = bytearray(path.read_bytes())
    place = raw.find(b"good.png") + len("good.png")
    raw[place : place + 20] = bytes(20)
    path.write_bytes(raw)
    with pytest.raises(BadInput, match="the zip is damaged"):
        Pairs.read(path).pictures.read(0)


@pytest.mark.parametrize("what", ["training", "an audit", "--to jsonl"])
def test_what_needs_captions_says_so_in_a_line(tmp_path: Path, what: str) -> None:
    from matchlight.auditing import audit
    from matchlight.runs.train_run import train

    pairs = Pairs.read(put(tmp_path / "mine", "a.png", "b.png"))
    asked = {
        "training": lambda: train("vse_infty", pairs, tmp_path / "run"),
        "an audit": lambda: audit(None, pairs, tmp_path / "audit"),
        "--to jsonl": lambda: formats.write(pairs, tmp_path / "copy"),
    }
    with pytest.raises(BadInput, match=f"2 pictures without captions; {what} needs some: put a.txt beside"):
        asked[what]()
