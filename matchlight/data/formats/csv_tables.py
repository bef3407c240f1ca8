"""CSV: a header with an image column and a caption column; optional split, labels, caption_labels.

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
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from matchlight.core import BadInput
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.csv_lines import LONGEST_CELL, CsvRows
from matchlight.data.formats.export import copy_pictures, entries, write_relevance
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.pairs import Pairs

IMAGE = ("image", "image_name", "file_name", "filename", "filepath")
ONE = ("caption", "text", "comment")
MANY = ("captions", "raw")
SEVERAL = re.compile(r"(caption|text|comment)_?\d+")
SEPARATORS = (",", "\t", ";", "|")


class Csv(Format):
    """A table of captions: the file, or a folder with captions.csv or one table whose header says what it is."""

    name = "csv"

    def fits(self, path: Path) -> bool:
        """By name, where that says little by its header."""
        if path.is_dir():
            return find(path) is not None
        return path.suffix.lower() in (".csv", ".tsv") or (path.suffix.lower() == ".txt" and recognised(path))

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a CSV file, or the one in a folder."""
        if path.is_dir():
            found = find(path)
            if found is None:
                raise BadInput(f"{path}: no CSV with the columns image and caption")
            path = found
        table = Annotations(path)
        with _opened(path) as (columns, rows, file):
            for number, cells in rows.read(file):
                table.add(
                    _cell(cells, columns.image),
                    _captions(cells, columns, f"{path} line {number}"),
                    split=_cell(cells, columns.split) or None,
                    labels=_labels(_cell(cells, columns.labels), f"{path} line {number}"),
                    caption_labels=_json(_cell(cells, columns.caption_labels) or "null", f"{path} line {number}"),
                    where=number,
                )
        pairs = with_pictures_beside(table, self.name, path.parent, options)
        return replace(pairs, problems=pairs.problems + rows.problems())

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


def recognised(path: Path) -> bool:
    """True if the file's first line is a header we know."""
    with open(path, "rb") as file:
        line = file.readline(1 << 16)
    first = re.split(rb"[\r\n]", line, maxsplit=1)[0]  # old Mac files end their lines with \r alone
    return known_header(first.decode("utf-8-sig", "replace")) is not None


def find(folder: Path) -> Path | None:
    """The table of a folder: captions.csv, or the only one with a known header."""
    for name in ("captions.csv", "captions.tsv"):
        if (folder / name).is_file():
            return inside(folder, name)
    files = [path for suffix in ("csv", "tsv") for path in sorted(folder.glob(f"*.{suffix}"))]
    files += [path for path in [folder / "captions.txt"] if path.is_file()]
    known = [path for path in files if recognised(inside(folder, path.name))]
    if len(known) > 1:
        raise BadInput(f"{folder}: several tables ({', '.join(path.name for path in known[:3])}); name the file itself")
    return known[0] if known else None


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Columns, CsvRows, TextIO]]:
    """The columns of a table, its reader, and the file behind the header."""
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            first = file.readline().rstrip("\r\n")
            separator = known_header(first) or ","
            header = next(csv.reader([first], delimiter=separator), [])
            columns = Columns(header, f"{path} line 1")
            caption = columns.many if columns.many is not None else columns.one
            yield columns, CsvRows(path, separator, len(header), columns.image or 0, caption), file
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not a readable UTF-8 table ({str(error)[:80]})") from error
    finally:
        csv.field_size_limit(limit)


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
