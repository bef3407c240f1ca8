"""Features in Parquet shards: what `matchlight data features --engine ray` writes, and other tools read as a table.

A row is a picture: `name`, `split`, `captions`, `rows` (which pairs of the source they are), `labels`, and `features`,
a list of float32 whose shape stands in the file's metadata. `feature-shards.json` says which files belong together, in
which order, and which were left out. Rows are read a small group at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.parquet import records
from matchlight.data.formats.safety import bad_rows, inside
from matchlight.data.formats.sources import FeatureFiles
from matchlight.files import Json, read_json
from matchlight.pairs import Labels, Pairs

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LIST = "feature-shards.json"
MARK = b"matchlight_shard"
GROUP_BYTES = 1 << 20  # of features in a row group: what reading one picture costs


class FeatureShards(Format):
    """A folder with feature-shards.json."""

    name = "feature-shards"
    content = "features"

    def fits(self, path: Path) -> bool:
        """By its list."""
        return path.is_dir() and (path / LIST).is_file()

    def read(self, path: Path, options: Options) -> Pairs:
        """All shards on the list, their rows in the order of the source."""
        files = [inside(path, name) for name in _listed(path)]
        table, order, shapes = Annotations(path / LIST), [], set()
        for file in files:
            opened, about = open_shard(file)
            shapes.add(_shape(about["shape"], file))
            wanted = [name for name in opened.schema_arrow.names if name != "features"]
            for number, line in enumerate(records(opened, file, wanted)):
                order += _numbers(line.pop("rows"), line["captions"], f"{file} row {number}")
                table.add(
                    line.pop("name"), line.pop("captions"), where=f"{file} row {number}", key=f"{file}:{number}", **line
                )  # type: ignore[arg-type]
        if len(shapes) != 1:
            raise BadInput(f"{path}: its shards hold features of several shapes ({', '.join(map(str, shapes))})")
        whole = table.pairs(self.name, path, options, lambda names, kept: None, keep=True)
        if len(order) != len(whole):
            raise BadInput(f"{path}: holds empty captions, and its rows cannot be put in order; make it again")
        whole = whole.select(np.arange(len(whole.names)), np.argsort(order, kind="stable"))
        return replace(whole, features=ParquetFeatures(files, shapes.pop()), notes={})


def _listed(path: Path) -> list[str]:
    about = read_json(path / LIST, "a list of feature shards")
    if not isinstance(about, dict) or not about.get("finished"):
        raise BadInput(f"{path}: unfinished; run the command that began it again")
    names = about.get("shards")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadInput(f"{path / LIST}: names no shards; `matchlight data features --engine ray` writes it")
    return names


def _shape(value: Json, file: Path) -> tuple[int, ...]:
    sizes = [size for size in value if isinstance(size, int) and size > 0] if isinstance(value, list) else []
    if len(sizes) not in (1, 2):
        raise BadInput(f"{file}: features of shape {value!r:.40}; (dim) or (regions, dim) a picture is needed")
    return tuple(sizes)


def _numbers(rows: object, captions: object, where: str) -> list[int]:
    if not isinstance(rows, list) or not isinstance(captions, list) or len(rows) != len(captions):
        raise BadInput(f"{where}: captions and their numbers do not fit; make the shard again")
    return rows


def open_shard(file: Path) -> tuple[pq.ParquetFile, dict[str, Json]]:
    """A shard and what its metadata says of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        about = json.loads((opened.schema_arrow.metadata or {}).get(MARK, b"null"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{file}: not a Parquet file, or damaged ({str(error).splitlines()[0][:80]})") from None
    if not isinstance(about, dict) or not isinstance(about.get("shape"), list):
        raise BadInput(f"{file}: no shard of features")
    return opened, about


def count_of(file: Path, name: str) -> int:
    """A number that a shard's metadata holds."""
    value = open_shard(file)[1].get(name)
    return value if isinstance(value, int) else 0


class ParquetFeatures(FeatureFiles):
    """Features of every picture, by place: file after file, a row group at a time."""

    def __init__(self, files: Sequence[Path], tail: tuple[int, ...], rows: np.ndarray | None = None):
        self.files, self.tail = tuple(files), tail
        self.starts = np.cumsum([0, *(_groups(str(file), _changed(file))[-1] for file in self.files)])
        self.rows = np.arange(self.starts[-1]) if rows is None else rows
        self.shape: tuple[int, ...] = (len(self.rows), *tail)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows as float32, in this order; each row group is read once."""
        wanted = self.rows[index]
        out = np.empty((len(wanted), *self.tail), dtype=np.float32)
        part_of = np.searchsorted(self.starts, wanted, side="right") - 1
        for part in np.unique(part_of).tolist():
            mine, file = np.flatnonzero(part_of == part), self.files[part]
            local, groups = wanted[mine] - self.starts[part], _groups(str(file), _changed(file))
            group_of = np.searchsorted(groups, local, side="right") - 1
            for group in np.unique(group_of).tolist():
                some = group_of == group
                found = _group(str(file), _changed(file), group)[local[some] - groups[group]]
                out[mine[some]] = found.reshape(-1, *self.tail)
        if len(bad := bad_rows(out)):
            place = int(wanted[bad[0]])
            raise BadInput(f"{self.files[int(part_of[bad[0]])]}: picture {place} has NaN or infinite values")
        return out

    def take(self, index: np.ndarray) -> ParquetFeatures:
        """Some of the rows, in this order."""
        return ParquetFeatures(self.files, self.tail, self.rows[index])


def _changed(file: Path) -> int:
    return os.stat(file).st_mtime_ns


@lru_cache(maxsize=4096)
def _groups(path: str, changed: int) -> np.ndarray:
    """Where each row group begins, and at the end how many rows there are."""
    about = open_shard(Path(path))[0].metadata
    return np.cumsum([0, *(about.row_group(number).num_rows for number in range(about.num_row_groups))])


@lru_cache(maxsize=64)
def _group(path: str, changed: int, group: int) -> np.ndarray:
    import pyarrow as pa

    try:
        column = open_shard(Path(path))[0].read_row_group(group, columns=["features"]).column(0).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"{path}: damaged ({str(error).splitlines()[0][:80]}); make it again") from None
    return column.values.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def write_shard(draft: Path, pairs: Pairs, features: np.ndarray, rows: np.ndarray, about: dict[str, Json]) -> None:
    """Features (N, ...) of some pictures with their captions; `rows` are the pairs' places in the whole data set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    mine = [np.flatnonzero(pairs.picture == place) for place in range(len(pairs.names))]
    columns: dict[str, pa.Array] = {
        "name": pa.array(list(pairs.names), pa.string()),
        "split": pa.array(pairs.splits.tolist(), pa.string()),
        "captions": pa.array([[pairs.captions[row] for row in own.tolist()] for own in mine], pa.list_(pa.string())),
        "rows": pa.array([rows[own].tolist() for own in mine], pa.list_(pa.int64())),
    }
    if pairs.labels is not None:
        columns |= _labels(pairs.labels, mine)
    flat = features.reshape(len(features), -1).astype(np.float32)
    columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    metadata = {MARK: json.dumps({**about, "shape": list(features.shape[1:])}).encode()}
    group = max(1, GROUP_BYTES // (4 * flat.shape[1]))
    # Bytes of equal meaning side by side: numbers that came from half precision take half the room.
    pq.write_table(
        pa.table(columns).replace_schema_metadata(metadata),
        draft,
        row_group_size=group,
        compression="zstd",
        use_dictionary=False,
        use_byte_stream_split=["features.list.element"],
    )


def _labels(labels: Labels, mine: list[np.ndarray]) -> dict[str, pa.Array]:
    import pyarrow as pa

    words = pa.list_(pa.string())
    image = [[labels.names[k] for k in np.flatnonzero(row)] for row in labels.image]
    text = [[[labels.names[k] for k in np.flatnonzero(labels.text[row])] for row in own] for own in mine]
    return {"labels": pa.array(image, words), "caption_labels": pa.array(text, pa.list_(words))}
