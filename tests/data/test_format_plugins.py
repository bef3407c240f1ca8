"""Formats: another package adds one by a class in a file; one rule says which format a command writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchlight import plugins
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.formats.detection import all_formats
from matchlight.pairs import Pairs

PICTIONARY = """
from pathlib import Path
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.array_values import text_lines
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.export import copy_pictures
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.pairs import Pairs

FILE = "pictionary.txt"

class Pictionary(Format):
    name = "pictionary"

    def fits(self, path: Path) -> bool:
        return path.is_dir() and (path / FILE).is_file()

    def read(self, path: Path, options: Options) -> Pairs:
        lines = Annotations(path / FILE)
        for number, line in enumerate(text_lines(path / FILE), 1):
            image, split, caption = line.split(maxsplit=2)
            lines.add(image, caption, split=split, where=number)
        return with_pictures_beside(lines, self.name, path, options)

    def write(self, pairs: Pairs, out: Path) -> None:
        names = copy_pictures(pairs, out / "images")
        rows = zip(pairs.picture.tolist(), pairs.captions)
        lines = [f"{names[number]} {pairs.splits[number]} {caption}" for number, caption in rows]
        (out / FILE).write_text("\\n".join(lines) + "\\n")
"""
OTHER = "class NotAFormat: pass"


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    folder = tmp_path / "drawn"
    (folder / "images").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(folder / "images" / f"{number}.png")
    lines = [
        f"{number}.png {'train' if number else 'test'} drawing {k} of {number}" for number in range(3) for k in "ab"
    ]
    (folder / "pictionary.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def pictionary(install_plugin) -> None:
    install_plugin("pictionary", PICTIONARY, {"matchlight.formats": {"pictionary": "pictionary:Pictionary"}})


def test_a_format_of_another_package_is_read_like_ours(pictionary, drawn):
    pairs = Pairs.read(drawn)
    assert (pairs.format, len(pairs), pairs.split_names) == ("pictionary", 6, ["train", "test"])
    assert pairs.captions[2] == "drawing a of 1" and formats.detect(drawn) == "pictionary"
    assert pairs.pictures.open(2).getpixel((0, 0)) == (160, 0, 0)


def test_without_that_package_the_folder_is_one_of_pictures_alone(drawn):
    pairs = Pairs.read(drawn)
    assert (pairs.format, len(pairs.names), len(pairs)) == ("pictures", 3, 0)
    assert [(one.kind, one.examples) for one in pairs.problems] == [("not read", ["pictionary.txt"])]


def test_a_format_of_another_package_is_written_by_the_commands(pictionary, drawn, tmp_path, capsys):
    jsonl = formats.write(Pairs.read(drawn), tmp_path / "jsonl")
    assert main(["data", "convert", str(jsonl), "-o", str(tmp_path / "back"), "--to", "pictionary"]) == 0
    assert sorted((tmp_path / "back" / "pictionary.txt").read_text().split("\n")) == sorted(
        (drawn / "pictionary.txt").read_text().split("\n")
    )
    capsys.readouterr()
    assert main(["data", "noise", str(drawn), "-o", str(tmp_path / "noisy"), "--mismatch", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "pictionary"  # a changed copy keeps its format


def test_a_plug_in_that_is_no_format_is_one_line_and_the_others_are_asked_all_the_same(install_plugin, drawn, capsys):
    install_plugin("other", OTHER, {"matchlight.formats": {"other": "other:NotAFormat"}})
    install_plugin("pictionary", PICTIONARY, {"matchlight.formats": {"pictionary": "pictionary:Pictionary"}})
    assert Pairs.read(drawn).format == formats.detect(drawn) == "pictionary"
    assert Pairs.read(drawn / "images").format == "pictures"  # asks them all
    line = "the plug-in 'other' of matchlight.formats is no Format"
    assert capsys.readouterr().err.count(line) == 1
    with pytest.raises(BadInput, match=line):
        Pairs.read(drawn, format="other")


def test_every_format_of_ours_goes_by_the_name_in_the_table():
    assert [format.name for format in all_formats()] == list(plugins.BUILT_IN["formats"])
    known = {format.name for format in all_formats() if format.writes}
    from matchlight.cli.data import FORMATS

    assert known == set(FORMATS)


# ---- one rule for what a command writes ----------------------------------------------------------------------------


def scan_folder(path: Path) -> Path:
    """Five pictures of features, two captions each."""
    path.mkdir()
    np.save(path / "train_ims.npy", np.arange(30, dtype=np.float32).reshape(5, 2, 3))
    (path / "train_caps.txt").write_text("".join(f"caption {row}\n" for row in range(10)))
    return path


def test_clean_rows_of_a_scan_folder_alone_are_written_where_captions_may_differ_in_number(tmp_path, capsys):
    """`data noise SCAN --drop` asked for --to, which `data noise` does not have."""
    source, out = scan_folder(tmp_path / "scan"), tmp_path / "out"
    arguments = ["data", "noise", str(source), "-o", str(out), "--mismatch", "0.4", "--drop", "--seed", "3", "--json"]
    assert main(arguments) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["format"] == "npz"
    assert len(Pairs.read(out)) == 6


def test_a_changed_copy_keeps_its_format_where_that_can_hold_it(tmp_path, drawn, pictionary):
    scan = Pairs.read(scan_folder(tmp_path / "scan"))
    assert formats.format_for_copy(scan) == "scan"
    assert formats.format_for_copy(scan.select(np.arange(5), np.arange(1, 10))) == "npz"  # one picture has one caption
    for name in ("jsonl", "csv", "parquet", "webdataset"):
        copy = Pairs.read(formats.write(Pairs.read(drawn), tmp_path / name, to=name))
        assert formats.format_for_copy(copy) == name
        assert formats.format_for_copy(replace(copy, pictures=None, features=scan.features.take(np.arange(3)))) == "npz"
    assert formats.format_for_copy(replace(scan, format="karpathy")) == "npz"  # read, never written
    assert formats.format_for_copy(Pairs.read(drawn), keep=False) == "jsonl"  # a conversion that names no format
    assert formats.format_for_copy(scan, keep=False) == "npz"


def test_a_format_forced_on_a_folder_without_it_is_one_line(tmp_path):
    for name in plugins.BUILT_IN["formats"]:
        with pytest.raises(BadInput):
            Pairs.read(tmp_path, format=name)
