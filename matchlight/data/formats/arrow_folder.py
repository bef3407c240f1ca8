"""A folder of Hugging Face `datasets` (`save_to_disk`): Arrow files with the columns of the CSV, read as plain data.

Nothing of the folder is run. Pictures are inside as {"bytes", "path"}; neighbouring rows with one path and the same
bytes are one picture. Files are mapped into memory, so that a picture costs its own bytes; compressed ones, which
`save_to_disk` does not write, are refused. Splits (`dataset_dict.json` with train/ and test/) are folders, see
`split_folders.py`. `hub_data.py` reads such folders through `datasets` itself, and writes them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, split_of
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.csv_tables import Columns
from matchlight.data.formats.hub_features import class_names, named_classes
from matchlight.data.formats.parquet import captions_of, holds_bytes, other_columns
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.data.formats.sources import RowPictures
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    import pyarrow as pa

HEADER, COMPRESSION = 2, 3  # fields of a message and of a batch in it, as the format of Arrow numbers them


class ArrowFolder(Format):
    """A folder with .arrow files, or one of them."""

    name = "arrow"

    def fits(self, path: Path) -> bool:
        """By name."""
        return any(path.glob("*.arrow")) if path.is_dir() else path.suffix.lower() == ".arrow"

    def read(self, path: Path, options: Options) -> Pairs:
        """All files of a folder in order of name."""
        names = sorted(file.name for file in path.glob("*.arrow")) if path.is_dir() else []
        files = [inside(path, name) for name in names] if path.is_dir() else [path]
        if not files:
            raise BadInput(f"{path}: no .arrow files")
        root = path if path.is_dir() else path.parent
        return arrow_pairs([(file, split_of(file)) for file in files], self.name, root, options)


def arrow_pairs(files: Sequence[tuple[Path, str | None]], name: str, root: Path, options: Options) -> Pairs:
    """The rows of Arrow files, each with the split of rows that say none themselves; `name` is that of the format."""
    table = Annotations(root)
    places: list[tuple[int, int]] = []
    column, embedded = "", False
    for number, (file, split) in enumerate(files):
        rows = _Rows(file)
        column, embedded = rows.image, rows.embedded
        for row, (picture, record, key) in enumerate(rows.records()):
            before = len(table.names)
            table.add(
                picture,
                captions_of(record, rows.columns, rows.header),
                split=rows.cell(record, rows.columns.split) or split,
                labels=rows.labels(record),
                caption_labels=rows.cell(record, rows.columns.caption_labels),
                where=f"{file} row {row}",
                key=None if key is None else f"{number} {key}",  # files of several splits may share their names
            )
            if len(table.names) > before:
                places.append((number, row))
    if not embedded:
        return with_pictures_beside(table, name, root, options)
    where, paths = np.array(places, dtype=np.int64).reshape(-1, 2), [file for file, _ in files]
    return table.pairs(
        name,
        root,
        options,
        lambda names, kept: ArrowPictures(paths, column, names, where[kept], max_pixels=options.max_pixels),
    )


class ArrowPictures(RowPictures):
    """Pictures inside Arrow files."""

    def bytes_at(self, path: Path, row: int) -> bytes | None:
        """The picture inside a row; None where the row has none."""
        return _mapped(path).bytes_at(self.column, row)


class _Mapped:
    """The batches of one file, mapped; the file may be a stream (as `save_to_disk` writes) or have a foot."""

    def __init__(self, path: Path):
        import pyarrow as pa

        try:
            self.batches = _batches(path)
            self.schema: pa.Schema = self.batches[0].schema
            self.header: list[str] = self.schema.names
        except BadInput:
            raise
        except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
            raise BadInput(f"{path}: not an Arrow file, damaged or empty ({str(error)[:60]})") from error
        self.starts = np.cumsum([0] + [batch.num_rows for batch in self.batches])

    def bytes_at(self, column: str, row: int) -> bytes | None:
        """The picture inside a row; None where the row has none."""
        part = int(np.searchsorted(self.starts, row, side="right")) - 1
        value = self.batches[part].column(column)[row - int(self.starts[part])].as_py()
        found = value.get("bytes") if isinstance(value, dict) else value
        return found if isinstance(found, bytes) else None


def _mapped(path: Path) -> _Mapped:
    return _opened(str(path), os.stat(path).st_mtime_ns)


@lru_cache(maxsize=64)
def _opened(path: str, changed: int) -> _Mapped:
    """One mapping a file and process; `changed` is part of the key, so that a rewritten file is mapped afresh."""
    return _Mapped(Path(path))


def _batches(path: Path) -> list[pa.RecordBatch]:
    import pyarrow as pa

    mapped = pa.memory_map(str(path))
    if mapped.read(6) == b"ARROW1":
        mapped.seek(8)  # a file with a foot is a stream behind its first eight bytes
    else:
        mapped.seek(0)
    schema: pa.Schema | None = None
    found: list[pa.RecordBatch] = []
    for message in pa.ipc.MessageReader.open_stream(mapped):
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif message.type == "record batch" and schema is not None:
            if _is_compressed(message.metadata.to_pybytes()):
                raise BadInput(f"{path}: a compressed Arrow file; write it again without compression")
            found.append(pa.ipc.read_record_batch(message, schema))
    for batch in found:
        batch.validate(full=True)  # offsets of a damaged file would lead out of it
    return found


def _is_compressed(metadata: bytes) -> bool:
    """Whether a batch is packed, which could unpack to anything; read from the head of the message."""
    root = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, root, HEADER)
    if header is None:
        return False
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _field(metadata, batch, COMPRESSION) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table lies; None where it is left out (its list of fields stands elsewhere)."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, fields)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, fields + place)[0] if place < size else 0
    return table + offset if offset else None


class _Rows:
    """The rows of one file without their pictures."""

    def __init__(self, file: Path):
        import pyarrow as pa

        self.file, self.mapped = file, _mapped(file)
        schema = self.mapped.schema
        self.header = self.mapped.header
        self.columns = Columns(self.header, str(file))
        assert self.columns.image is not None
        kind = schema.field(self.columns.image).type
        self.image = self.header[self.columns.image]
        self.embedded = not pa.types.is_string(kind) and not pa.types.is_large_string(kind)
        if self.embedded and not holds_bytes(kind):
            raise BadInput(f"{file}: column {self.image} holds {kind}; file names or the pictures' bytes would do")

    def cell(self, record: dict[str, object], place: int | None) -> object:
        """A value by its column; None where there is no such column."""
        return None if place is None else record[self.header[place]]

    def labels(self, record: dict[str, object]) -> object:
        """The classes of a row; numbers become names where the file knows them."""
        place = self.columns.labels
        value = self.cell(record, place)
        return value if place is None else named_classes(value, class_names(self.mapped.schema, self.header[place]))

    def records(self) -> Iterator[tuple[str, dict[str, object], str | None]]:
        """Name, values and what tells the picture of each row apart."""
        wanted = [self.header[place] for place in other_columns(self.columns)]
        last, first, row = None, 0, -1
        for batch in self.mapped.batches:
            names = self._names(batch)
            for name, record in zip(names, batch.select(wanted).to_pylist(), strict=True):
                row += 1
                if not self.embedded:
                    yield str(name or ""), record, None
                    continue
                if name is None or name != last or not self._same(row, first):
                    last, first = name, row
                yield name or f"{self.file.stem}-{row:06d}", record, f"{self.file.name}:{first}"

    def _names(self, batch: pa.RecordBatch) -> list[str | None]:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = batch.column(self.image)
        if pa.types.is_struct(values.type):
            has_path = values.type.get_field_index("path") >= 0
            return pc.struct_field(values, "path").to_pylist() if has_path else [None] * len(values)
        return [None] * len(values) if self.embedded else values.to_pylist()

    def _same(self, row: int, first: int) -> bool:
        own = self.mapped.bytes_at(self.image, row)
        return own is None or own == self.mapped.bytes_at(self.image, first)
