"""Tables of captions and addresses (Conceptual Captions, LAION), with or without a header. Nothing is fetched.

A row whose picture lies below the table's folder, under the last part of its address, is read where no other row or
picture has that name; rows without one are counted as not fetched. Without any picture one line says how to get them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, problem, split_of
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.csv_lines import LONGEST_CELL
from matchlight.data.formats.csv_tables import IMAGE, ONE, SEPARATORS, encoding_of, first_lines
from matchlight.data.formats.folder_walk import is_hidden, walk
from matchlight.data.formats.parquet import records
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import stays_inside
from matchlight.pairs import Pairs

URL = ("url", "image_url", "image url", "img_url", "imageurl", "link")
TEXT = (*ONE, "top_caption", "alt_text", "alt text", "title")
KINDS = (".tsv", ".csv", ".txt", ".parquet")


@dataclass(frozen=True)
class Table:
    """Where the addresses and the captions of a table are."""

    path: Path
    url: int
    text: int
    separator: str = "\t"
    header: bool = True

    def rows(self) -> Iterator[tuple[int, str, str]]:
        """(line or row, address, caption)."""
        return self._parquet() if self.path.suffix.lower() == ".parquet" else self._lines()

    def _lines(self) -> Iterator[tuple[int, str, str]]:
        limit = csv.field_size_limit(LONGEST_CELL)
        try:
            with open(self.path, encoding=encoding_of(self.path), newline="") as file:
                lines = (line.rstrip("\r\n").split("\t") for line in file)  # quotes mean nothing between tabs
                rows = lines if self.separator == "\t" else csv.reader(file, delimiter=self.separator)
                for number, cells in enumerate(rows, 1):
                    if len(cells) > max(self.url, self.text) and (number > 1 or not self.header):
                        yield number, cells[self.url].strip(), cells[self.text]
        except (csv.Error, UnicodeError) as error:
            raise BadInput(f"{self.path}: not a readable UTF-8 table ({str(error)[:80]})") from error
        finally:
            csv.field_size_limit(limit)

    def _parquet(self) -> Iterator[tuple[int, str, str]]:
        import pyarrow.parquet as pq

        opened = pq.ParquetFile(self.path)
        names = [opened.schema_arrow.names[place] for place in (self.url, self.text)]
        for row, record in enumerate(records(opened, self.path, names)):
            yield row, str(record[names[0]] or ""), str(record[names[1]] or "")


class UrlTables(Format):
    """The table, or a folder of such tables."""

    name = "urls"

    def fits(self, path: Path) -> bool:
        """By the header, or by an address in the first line."""
        return bool(found(path)) if path.is_dir() else table_of(path) is not None

    def read(self, path: Path, options: Options) -> Pairs:
        """The rows whose pictures are there."""
        tables = found(path) if path.is_dir() else [one for one in [table_of(path)] if one is not None]
        if not tables:
            raise BadInput(f"{path}: no table of addresses and captions")
        root = path if path.is_dir() else path.parent
        there = Counter(one.place.rpartition("/")[2] for one in walk(root) if one.is_picture and not one.outside)
        if not there:
            raise _nothing(path, tables)
        rows = [(table, number, _last(url), text) for table in tables for number, url, text in table.rows()]
        named = Counter(name for _, _, name, _ in rows)
        lines, absent = Annotations(path), []
        for table, number, name, text in rows:
            at = f"{table.path} {'row' if table.path.suffix.lower() == '.parquet' else 'line'} {number}"
            if there[name] == 1 and named[name] == 1:
                lines.add(name, text, split=split_of(table.path) if len(tables) > 1 else None, where=at)
            else:
                absent.append(f"{at}: {name[:80]}")
        if not lines.names:
            raise _nothing(path, tables)
        pairs = with_pictures_beside(lines, self.name, root, options)
        return replace(pairs, problems=pairs.problems + problem("not fetched", absent))


def _nothing(path: Path, tables: list[Table]) -> BadInput:
    count = sum(1 for table in tables for _ in table.rows())
    return BadInput(
        f"{path}: {count:,} captions with addresses, and none of their pictures beside them; nothing is fetched here: "
        "fetch them first (img2dataset writes folders that are read as they are)"
    )


def _last(url: str) -> str:
    try:
        return unquote(urlsplit(url).path.rpartition("/")[2])
    except ValueError:
        return ""


def found(folder: Path) -> list[Table]:
    """The tables of addresses directly in a folder."""
    beside = {one.name for one in folder.iterdir() if not is_hidden(one.name)}
    files = (folder / name for name in sorted(beside) if not _is_a_list(name, beside))
    tables = (table_of(file) for file in files if file.suffix.lower() in KINDS and stays_inside(folder, file))
    return [table for table in tables if table is not None]


def _is_a_list(name: str, beside: set[str]) -> bool:
    """Whether it is what img2dataset writes of its work beside 00000.tar or 00000/."""
    stem = name.rpartition(".")[0]
    return name.lower().endswith(".parquet") and (stem in beside or f"{stem}.tar" in beside)


def table_of(path: Path) -> Table | None:
    """The table in a file; None where it is none of addresses, or names pictures of its own."""
    suffix = path.suffix.lower()
    if suffix not in KINDS or not path.is_file():
        return None
    if suffix == ".parquet":
        return _by_header(path, _parquet_columns(path), "")
    line = next(iter(first_lines(path)), "")
    for separator in ("\t", *(one for one in SEPARATORS if one != "\t")):
        cells = next(csv.reader([line], delimiter=separator), [])
        if (table := _by_header(path, cells, separator) or _by_address(path, cells, separator)) is not None:
            return table
    return None


def _parquet_columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names: list[str] = pq.ParquetFile(path).schema_arrow.names
        return names
    except (pa.ArrowException, OSError, ValueError):
        return []


def _by_header(path: Path, cells: Sequence[str], separator: str) -> Table | None:
    plain = [cell.strip().lower() for cell in cells]
    if any(name in plain for name in IMAGE):
        return None
    url, text = (next((plain.index(name) for name in names if name in plain), None) for names in (URL, TEXT))
    return None if url is None or text is None else Table(path, url, text, separator)


def _by_address(path: Path, cells: Sequence[str], separator: str) -> Table | None:
    """Without a header: one cell is an address, and the other is not."""
    places = [place for place, cell in enumerate(cells) if cell.strip().lower().startswith(("http://", "https://"))]
    if len(cells) != 2 or len(places) != 1:
        return None
    return Table(path, places[0], 1 - places[0], separator, header=False)
