"""clip-retrieval's folders: metadata/metadata_0.parquet with img_emb/img_emb_0.npy and text_emb/ beside it.

Names, captions and, where the files lie below the folder, the pictures are read. Where no picture is there, the vectors
of the pictures stand in for them, row for row.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.parquet import records
from matchlight.data.formats.picture_files import find_pictures
from matchlight.data.formats.pictures_alone import without_captions
from matchlight.data.formats.safety import inside
from matchlight.data.formats.sources import NpyFeatures
from matchlight.pairs import Pairs, PictureSource, Problem

METADATA, VECTORS = "metadata", "img_emb"
NAME, CAPTION = ("image_path", "url", "key"), "caption"


class ClipRetrieval(Format):
    """A folder that `clip-retrieval inference` wrote."""

    name = "clip-retrieval"

    def fits(self, path: Path) -> bool:
        """By its two folders."""
        return path.is_dir() and bool(numbered(path, METADATA, "parquet")) and bool(numbered(path, VECTORS, "npy"))

    def read(self, path: Path, options: Options) -> Pairs:
        """A row of its tables is a picture."""
        table = Annotations(path)
        if not (files := numbered(path, METADATA, "parquet")):
            raise BadInput(f"{path}: no {METADATA}/{METADATA}_0.parquet")
        for file in files:
            for row, (name, caption) in enumerate(_rows(file)):
                said = [] if caption is None else [caption]
                table.add(name, said, where=f"{file} row {row}", key=f"{file.name}:{row}")
        pictures, problems = find_pictures(path, table.names, options)
        if any(place is not None for place in getattr(pictures, "places", ())):
            return _with(table, path, options, pictures, problems)
        features = NpyFeatures(numbered(path, VECTORS, "npy"))
        if len(features) != len(table.names):
            raise BadInput(
                f"{path}: {len(features)} vectors in {VECTORS}/ and {len(table.names)} rows in {METADATA}/; "
                "they are of other runs, or a part is missing"
            )
        return replace(_with(table, path, options, pictures, []), pictures=None, features=features)


def _with(table: Annotations, path: Path, options: Options, pictures: PictureSource, problems: list[Problem]) -> Pairs:
    if not table.captions:
        return without_captions(table.names, pictures, ClipRetrieval.name, path, options, problems)
    pairs = table.pairs(ClipRetrieval.name, path, options, lambda names, kept: pictures.take(kept), keep=True)
    return replace(pairs, problems=pairs.problems + problems)


def numbered(path: Path, folder: str, suffix: str) -> list[Path]:
    """The files FOLDER/FOLDER_0.SUFFIX, FOLDER_1.SUFFIX, ... in order of their numbers."""
    pattern = re.compile(rf"{folder}_(\d+)\.{suffix}")
    found = [(match, file) for file in (path / folder).glob(f"*.{suffix}") if (match := pattern.fullmatch(file.name))]
    return [inside(path, f"{folder}/{file.name}") for _, file in sorted(found, key=lambda one: int(one[0][1]))]


def _rows(file: Path) -> list[tuple[str, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        header: list[str] = opened.schema_arrow.names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{file}: not a Parquet file, or damaged") from error
    name = next((one for one in NAME if one in header), None)
    wanted = [one for one in (name, CAPTION if CAPTION in header else None) if one is not None]
    if not wanted:
        raise BadInput(f"{file}: no column image_path or caption; it has {', '.join(header)[:80]!r}")
    rows = enumerate(records(opened, file, wanted))
    return [(_named(record.get(name or ""), file, row), record.get(CAPTION)) for row, record in rows]


def _named(value: object, file: Path, row: int) -> str:
    return str(value) if value not in (None, "") else f"{file.stem}-{row:06d}"
