"""CSV: a header with an image column and a caption column; optional split, labels, caption_labels.

A table of two columns without a header is read where one of them holds names of pictures. UTF-8 and, as a spreadsheet
writes it, UTF-16 are read, and a first line that says `sep=;`. Tables called train.csv and test.csv are splits.

One row a caption (`caption`), or one row a picture (`captions`, a JSON list; or `caption_0`, `caption_1`, ...). A cell
of labels is a JSON list, or names set apart by `;`. Comma, tab, semicolon or bar separates columns: the header decides.
Written files have one row a caption. Newlines, quotes and a leading `=` are kept as they are (cells are quoted where
needed), so a spreadsheet may take a caption that starts with `=` for a formula.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from matchlight.console import BadInput, say
from matchlight.data.formats.annotations import Annotations, split_of
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.csv_lines import LONGEST_CELL, CsvRows
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.export import copy_pictures, entries, write_relevance
from matchlight.data.formats.folder_walk import is_hidden
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.pairs import Pairs, Problem

IMAGE = ("image", "image_name", "file_name", "filename", "filepath", "image_path", "img", "file", "jpg", "png", "webp")
ONE = ("caption", "text", "comment", "sentence", "description")
MANY = ("captions", "raw")
SEVERAL = re.compile(r"(caption|text|comment)_?\d+")
SEPARATORS = (",", "\t", ";", "|")
SEP = re.compile("sep=(.)")  # the first line of a table that a spreadsheet is told how to open


class Csv(Format):
    """A table of captions: the file, or a folder with captions.csv or one table whose header says what it is."""

    name = "csv"

    def fits(self, path: Path) -> bool:
        """By name, where that says little by its header."""
        if path.is_dir():
            return bool(find(path))
        return path.suffix.lower() in (".csv", ".tsv") or (path.suffix.lower() == ".txt" and recognised(path))

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a CSV file, or the one in a folder."""
        files = find(path) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"{path}: no CSV with the columns image and caption")
        table = Annotations(files[0] if len(files) == 1 else path)
        problems = [one for file in files for one in _add(table, file, split_of(file) if len(files) > 1 else None)]
        pairs = with_pictures_beside(table, self.name, files[0].parent, options)
        return replace(pairs, problems=pairs.problems + problems)

    def write(self, pairs: Pairs, out: Path) -> None:
        """captions.csv, one row a caption, and images/ beside it."""
        names = copy_pictures(pairs, out / "images")
        header = ["image", "caption", "split"] + ([] if pairs.labels is None else ["labels", "caption_labels"])
        with open(out / "captions.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for entry in entries(pairs, names):
                for place, caption in enumerate(entry["captions"]):
                    row = [entry["image"], caption, entry["split"]]
                    if pairs.labels is not None:
                        marks = entry.get("caption_labels")
                        row += [json.dumps(entry["labels"]), json.dumps([marks[place]]) if marks else ""]
                    writer.writerow(row)
        write_relevance(pairs, out)


def _add(table: Annotations, path: Path, split: str | None) -> list[Problem]:
    """The rows of a table; `split` is that of a table without such a column."""
    with _opened(path) as (columns, rows, file):
        for number, cells in rows.read(file):
            at = f"{path} line {number}"
            if rows.separator == "|":  # Flickr30k's has blanks around its bars
                cells = [cell.strip() for cell in cells]
            table.add(
                _cell(cells, columns.image),
                _captions(cells, columns, at),
                split=_cell(cells, columns.split) or split,
                labels=_labels(_cell(cells, columns.labels), at),
                caption_labels=_json(_cell(cells, columns.caption_labels) or "null", at),
                where=at if split else number,
            )
    return rows.problems()


class Columns:
    """Which column is what, by the header's names."""

    def __init__(self, header: Sequence[str], where: str):
        plain = [name.strip().lower() for name in header]
        self.image = _find(plain, IMAGE)
        self.one = _find(plain, ONE)
        self.many = _find(plain, MANY)
        self.several = [place for place, name in enumerate(plain) if SEVERAL.fullmatch(name)]
        self.split = _find(plain, ("split",))
        self.labels = _find(plain, ("labels", "label"))
        self.caption_labels = _find(plain, ("caption_labels",))
        if self.image is None or (self.one is None and self.many is None and not self.several):
            columns = ", ".join(header)[:80] or "nothing"
            raise BadInput(f"{where}: no columns image and caption (or captions); its header has {columns!r}")


def _find(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def known_header(line: str) -> str | None:
    """The separator of a header that names an image and a caption column; None if it is no such header."""
    for separator in SEPARATORS:
        cells = next(csv.reader([line], delimiter=separator), [])
        try:
            Columns(cells, "")
        except BadInput:
            continue
        return separator
    return None


@dataclass(frozen=True)
class Start:
    """How a table begins: what separates its columns, what they are called, and the line of its first row."""

    separator: str
    header: list[str]
    first: int

    @staticmethod
    def of(lines: Sequence[str]) -> Start | None:
        """By the first lines of a file; None if they are none of a table we know."""
        said = SEP.fullmatch(lines[0].strip()) if len(lines) > 1 else None
        line, number = (lines[1], 2) if said else (lines[0] if lines else "", 1)
        if (separator := known_header(line)) is not None:
            return Start(separator, _cells(line, separator), number + 1)
        for separator in (said[1],) if said else SEPARATORS:
            cells = _cells(line, separator)
            names = [cell.strip().lower().endswith(SUFFIXES) for cell in cells]
            if len(cells) == 2 and sum(names) == 1 and all(map(str.strip, cells)):
                return Start(separator, ["image" if name else "caption" for name in names], number)
        return None


def encoding_of(path: Path) -> str:
    """UTF-16 where the file begins with its mark, as a spreadsheet's "Unicode text" does, else UTF-8."""
    with open(path, "rb") as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def first_lines(path: Path) -> list[str]:
    """The first two lines of a text file."""
    encoding = encoding_of(path)
    with open(path, "rb") as file:
        start = file.read(1 << 16)
    return re.split(r"\r\n|\r|\n", start.decode(encoding, "replace"))[:2]  # old Mac files have \r alone


def recognised(path: Path) -> bool:
    """True if the file begins like a table we know."""
    return Start.of(first_lines(path)) is not None


def find(folder: Path) -> list[Path]:
    """The table of a folder: captions.csv, the only one that begins like one, or one a split; none: []."""
    for name in ("captions.csv", "captions.tsv"):
        if (folder / name).is_file():
            return [inside(folder, name)]
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv") and path.is_file())
    tables += [path for path in [folder / "captions.txt"] if path.is_file()]
    known = [path for path in tables if not is_hidden(path.name) and recognised(inside(folder, path.name))]
    splits = {split_of(path) for path in known}
    if len(known) > 1 and (None in splits or len(splits) < len(known)):
        raise BadInput(f"{folder}: several tables ({', '.join(path.name for path in known[:3])}); name the file itself")
    return known


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Columns, CsvRows, TextIO]]:
    """The columns of a table, its reader, and the file behind the header."""
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with open(path, encoding=encoding_of(path), newline="") as file:
            lines = [file.readline(), file.readline()]
            start = Start.of(lines) or Start(",", _cells(lines[0], ","), 2)
            columns = Columns(start.header, f"{path} line 1")
            if start.first == 1:
                say(f"{path}: has no header; its columns are taken for {' and '.join(start.header)}")
            file.seek(0)
            for _ in range(start.first - 1):
                file.readline()
            caption = columns.many if columns.many is not None else columns.one
            place = columns.image or 0
            yield columns, CsvRows(path, start.separator, len(start.header), place, caption, start.first), file
    except UnicodeError as error:
        fix = 'save it again as "CSV UTF-8"'
        raise BadInput(f"{path}: not a readable UTF-8 table; {fix} ({str(error)[:60]})") from error
    except csv.Error as error:
        raise BadInput(f"{path}: not a readable UTF-8 table ({str(error)[:80]})") from error
    finally:
        csv.field_size_limit(limit)


def _cells(line: str, separator: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")], delimiter=separator), [])


def _cell(cells: list[str], place: int | None) -> str:
    return cells[place] if place is not None and place < len(cells) else ""


def _captions(cells: list[str], columns: Columns, at: str) -> object:
    if columns.many is not None:
        cell = _cell(cells, columns.many)
        return _json(cell, at) if cell.lstrip().startswith("[") else [cell]
    if columns.one is not None:
        return [_cell(cells, columns.one)]
    return [_cell(cells, place) for place in columns.several]


def _labels(cell: str, at: str) -> object:
    if cell.startswith("["):
        return _json(cell, at)
    return [name.strip() for name in cell.split(";") if name.strip()] or None


def _json(cell: str, at: str) -> object:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{at}: {cell[:40]!r} is no JSON list") from error
