"""Parquet: the columns of the CSV, with pictures beside it or inside as {"bytes", "path"}.

Written files hold one row a picture (a list of captions) and the picture's bytes, in small row groups: a picture is
read by decoding its row group, the last few of which are kept. Splits come from a `split` column or from file names
(`train-00000-of-00002.parquet`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, split_of
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.csv_tables import Columns
from matchlight.data.formats.export import entries_with_bytes, write_relevance
from matchlight.data.formats.folder_walk import is_hidden
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.data.formats.sources import RowPictures
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

AT_ONCE = 256  # rows of captions unpacked together
MOST_UNPACKED, MOST_TIMES = 1 << 30, 4  # bytes of a row group, and of all captions; or so many times the file
MOST_GROUP = 4 << 30  # bytes of pictures that are read together
MOST_HELD = 1 << 29  # bytes of row groups that are kept for the next pictures
GROUP = 64  # pictures a row group: what reading one picture costs
OURS = b"matchlight"


class Line(TypedDict):
    """One row, as `Annotations.add` takes it."""

    image: object
    captions: object
    split: object
    labels: object
    caption_labels: object
    key: str | None


class Parquet(Format):
    """A Parquet file, or a folder of them."""

    name = "parquet"

    def fits(self, path: Path) -> bool:
        """By name."""
        return bool(_tables(path)) if path.is_dir() else path.suffix.lower() == ".parquet"

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a Parquet file, or all of a folder in order of name."""
        files = [one for one in self.shards(path) if one.name not in options.without] if path.is_dir() else [path]
        table = Annotations(path)
        where: list[tuple[int, int]] = []
        column, embedded = "", False
        for number, file in enumerate(files):
            column, embedded, rows = _rows(file)
            for row, entry in enumerate(rows):
                before = len(table.names)
                table.add(where=f"{file} row {row}", **entry)
                if len(table.names) > before:
                    where.append((number, row))
        root = path if path.is_dir() else path.parent
        if not embedded:
            return with_pictures_beside(table, self.name, root, options)
        places = np.array(where, dtype=np.int64).reshape(-1, 2)
        return table.pairs(
            self.name,
            root,
            options,
            lambda names, kept: ParquetPictures(files, column, names, places[kept], max_pixels=options.max_pixels),
        )

    def shards(self, path: Path) -> list[Path]:
        """Its tables."""
        return _tables(path)

    def write(self, pairs: Pairs, out: Path) -> None:
        """pairs.parquet: one row a picture, its bytes inside; a picture met again carries its name alone."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = pa.list_(pa.string())
        fields = [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("captions", texts)]
        fields += [("split", pa.string()), ("labels", texts), ("caption_labels", pa.list_(texts))]
        schema = pa.schema(fields, metadata={OURS: b"1"})
        with pq.ParquetWriter(out / "pairs.parquet", schema) as writer:
            part: list[dict[str, object]] = []
            for entry, blob in entries_with_bytes(pairs):
                part.append({**entry, "image": {"bytes": blob, "path": entry["image"]}})
                if len(part) == GROUP:
                    writer.write_table(pa.Table.from_pylist(part, schema=schema))
                    part = []
            if part:
                writer.write_table(pa.Table.from_pylist(part, schema=schema))
        write_relevance(pairs, out)


def _tables(folder: Path) -> list[Path]:
    """The files of a folder in order of name; lists that img2dataset writes beside 00000.tar or 00000/ are none."""
    files = [file for file in sorted(folder.glob("*.parquet")) if not is_hidden(file.name)]
    return [
        inside(folder, file.name)
        for file in files
        if not file.with_suffix(".tar").is_file() and not file.with_suffix("").is_dir()
    ]


class ParquetPictures(RowPictures):
    """Pictures inside Parquet files."""

    def bytes_at(self, path: Path, row: int) -> bytes | None:
        """The picture inside a row; None where the row has none."""
        return _bytes(path, self.column, row)

    def blocks(self) -> np.ndarray:
        """(N,) which pictures are read together: the row group of each, counted over all files."""
        starts = [_starts(str(file), os.stat(file).st_mtime_ns) for file in self.files]
        before = np.cumsum([0] + [len(groups) for groups in starts])
        out = np.empty(len(self), dtype=np.int64)
        for number, groups in enumerate(starts):
            mine = self.where[:, 0] == number
            out[mine] = before[number] + np.searchsorted(groups, self.where[mine, 1], side="right") - 1
        return out


def _bytes(path: Path, column: str, row: int) -> bytes | None:
    """The picture inside a row; None where the row has none."""
    changed = os.stat(path).st_mtime_ns
    starts = _starts(str(path), changed)
    group = int(np.searchsorted(starts, row, side="right")) - 1
    value: bytes | None = HELD.get(str(path), changed, column, group)[row - int(starts[group])].as_py()
    return value


def _again(path: Path, column: str, row: int, first: int) -> bool:
    """True if a row of the same name has the same picture, or none of its own."""
    try:
        own = _bytes(path, column, row)
        return own is None or own == _bytes(path, column, first)
    except (OSError, ValueError):  # told when the picture is read
        return True


@lru_cache(maxsize=64)
def _starts(path: str, changed: int) -> np.ndarray:
    import pyarrow.parquet as pq

    about = pq.ParquetFile(path).metadata
    return np.cumsum([0] + [about.row_group(i).num_rows for i in range(about.num_row_groups)])[:-1]


class HeldGroups:
    """Row groups that were read, the last used of them up to MOST_HELD bytes; threads that want the same one wait."""

    def __init__(self) -> None:
        self.groups: OrderedDict[tuple[str, int, str, int], pa.Array] = OrderedDict()
        self.coming: dict[tuple[str, int, str, int], threading.Lock] = {}
        self.lock = threading.Lock()

    def get(self, path: str, changed: int, column: str, group: int) -> pa.Array:
        """The pictures of a row group, from the file where they are not held."""
        key = path, changed, column, group
        with self.lock:
            turn = self.coming.setdefault(key, threading.Lock())
        with turn:
            with self.lock:
                if key in self.groups:
                    self.groups.move_to_end(key)
                    return self.groups[key]
            found = _group(path, column, group)
            with self.lock:
                self.groups[key] = found
                while len(self.groups) > 1 and sum(one.nbytes for one in self.groups.values()) > MOST_HELD:
                    self.groups.popitem(last=False)
                self.coming.pop(key, None)
            return found


HELD = HeldGroups()


def _group(path: str, column: str, group: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(path)
    about = opened.metadata.row_group(group)
    if (size := about.total_byte_size) > MOST_GROUP:
        raise ValueError(f"a row group of {size} bytes")
    table = opened.read_row_group(group, columns=[column])
    values = table.column(0).combine_chunks()
    return pc.struct_field(values, "bytes") if pa.types.is_struct(values.type) else values


def _rows(file: Path) -> tuple[str, bool, Iterator[Line]]:
    """The image column, whether it holds bytes, and one entry a row (the bytes are left in the file)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        schema = opened.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{file}: not a Parquet file, or damaged") from error
    columns = Columns(schema.names, str(file))
    assert columns.image is not None
    image = schema.field(columns.image)
    embedded = not pa.types.is_string(image.type) and not pa.types.is_large_string(image.type)
    if embedded and not holds_bytes(image.type):
        raise BadInput(f"{file}: column {image.name} holds {image.type}; file names or the pictures' bytes would do")
    wanted = [schema.names[place] for place in other_columns(columns)]
    if pa.types.is_struct(image.type) and image.type.get_field_index("path") >= 0:
        wanted.append(f"{image.name}.path")
    elif not embedded:
        wanted.append(image.name)
    ours = OURS in (schema.metadata or {})
    return image.name, embedded, _entries(opened, file, columns, schema.names, wanted, embedded and not ours)


def holds_bytes(kind: pa.DataType) -> bool:
    """Whether a column is of bytes, or of {"bytes", ...}."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and holds_bytes(kind.field(place).type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def other_columns(columns: Columns) -> list[int]:
    """Places of the columns beside the picture's."""
    places = [columns.one, columns.many, columns.split, columns.labels, columns.caption_labels, *columns.several]
    return [place for place in places if place is not None]


def records(opened: pq.ParquetFile, file: Path, wanted: list[str]) -> Iterator[dict[str, object]]:
    """The rows of some columns; what is damaged behind the header is one line too."""
    import pyarrow as pa

    try:
        for batch in _bounded(opened, file, wanted):
            yield from batch.to_pylist()
    except BadInput:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{file}: damaged ({str(error).splitlines()[0][:60]}); copy it again") from error


def _bounded(opened: pq.ParquetFile, file: Path, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows a few at a time; a small file that unpacks to gigabytes is refused on the way."""
    about, seen = opened.metadata, 0
    most = max(MOST_UNPACKED, MOST_TIMES * os.stat(file).st_size)
    # Of whole groups: a damaged column's own size cannot be asked for, Arrow ends the process.
    if (promised := max((about.row_group(i).total_byte_size for i in range(about.num_row_groups)), default=0)) > most:
        raise _bomb(file, promised)
    for batch in opened.iter_batches(batch_size=AT_ONCE, columns=wanted):
        seen += batch.nbytes
        if seen > most:
            raise _bomb(file, seen)
        yield batch


def _bomb(file: Path, size: int) -> BadInput:
    return BadInput(f"{file}: its names, captions and labels unpack to {size / 1e9:.1f} GB or more; split the file")


def _entries(
    opened: pq.ParquetFile, file: Path, columns: Columns, header: list[str], wanted: list[str], apart: bool
) -> Iterator[Line]:
    """`apart`: names there are no places; only the row before's name with the same picture is one picture."""
    split = split_of(file)
    last, number, row = None, -1, -1
    for record in records(opened, file, wanted):
        row += 1
        image = record.get(header[columns.image or 0])
        name = image.get("path") if isinstance(image, dict) else image
        if name is None or name != last or (apart and not _again(file, header[columns.image or 0], row, number)):
            last, number = name, row
        yield {
            "image": name or f"{file.stem}-{row:06d}",
            "captions": captions_of(record, columns, header),
            "split": record.get(header[columns.split]) if columns.split is not None else split,
            "labels": record.get(header[columns.labels]) if columns.labels is not None else None,
            "caption_labels": record.get("caption_labels"),
            "key": f"{file.name}:{number}" if apart else None,
        }


def captions_of(record: dict[str, object], columns: Columns, header: list[str]) -> object:
    """The captions of a row; a null is an empty caption, skipped and counted."""
    place = columns.many if columns.many is not None else columns.one
    if place is None:
        return [record[header[i]] for i in columns.several]
    said = record[header[place]]
    return [None] if said is None else said
