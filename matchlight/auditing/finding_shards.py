"""The findings of a large audit as Parquet, for tools that read shards: the columns of pairs.csv, in file order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from matchlight import files
from matchlight.data.findings import Finding

FOLDER = "findings"
SHARD = 100_000  # pairs


def write_finding_shards(folder: Path, records: Iterable[Finding]) -> None:
    """findings/part-00000.parquet and so on; shards of an earlier, longer list go away."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.float64()
    better = [("better_image", text), ("better_image_support", number), ("better_image_row", pa.int64())]
    better += [("better_caption", text), ("better_caption_row", pa.int64()), ("better_caption_support", number)]
    fields = [("row", pa.int64()), ("image", text), ("caption", text), ("score", number), ("suspect", pa.bool_())]
    schema = pa.schema([*fields, ("reason", text), ("split", text), *better])
    written = set()
    for number_of, some in enumerate(_batches(records)):
        path = folder / FOLDER / f"part-{number_of:05d}.parquet"
        with files.replaced(path, flush=True) as draft:
            rows = [{name: getattr(one, name) for name in schema.names} for one in some]
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), draft, compression="zstd")
        written.add(path)
    for path in set((folder / FOLDER).glob("part-*.parquet")) - written:
        path.unlink()


def _batches(records: Iterable[Finding]) -> Iterator[list[Finding]]:
    left = iter(records)
    while some := list(islice(left, SHARD)):
        yield some
