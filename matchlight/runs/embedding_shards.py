"""Vectors out by many processes: each part of the data set becomes two Parquet shards, done once.

`images/NAME.parquet` has a row a picture (`picture`, `name`, `split`), `captions/NAME.parquet` a row a caption (`row`,
`picture`, `name`, `caption`), both with the item's vectors as `vector`: a list of numbers where a model makes one, else
a list of such lists. `picture` and `row` are places in the data set, so that shards can be joined in any order. What
else a model says of an item (a variance, a member of an ensemble) is a flat list in a column of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from matchlight import files
from matchlight.cluster.data_parts import Part, Parts
from matchlight.cluster.jobs import Job, Workers
from matchlight.cluster.shard_folder import filling
from matchlight.core import IMAGE, TEXT, BadInput, Json
from matchlight.inputs.batches import Table
from matchlight.runs.embeddings import arrays_of
from matchlight.runs.folder import Run
from matchlight.runs.seen import weights_mark
from matchlight.scoring.encode import encode

if TYPE_CHECKING:
    import pyarrow as pa

LIST = "embeddings.json"
IMAGES, CAPTIONS = "images", "captions"
KEY = b"matchlight_key"


class Model(TypedDict):
    """The run that makes the vectors, and where."""

    folder: str
    device: str


def spread_embeddings(
    workers: Workers, run: Run, source: str | Path, out: Path, *, split: str = "all", device: str = "cpu"
) -> dict[str, Json]:
    """Write the vectors of a split as shards below `out`."""
    if run.matcher.depends_on_padding:
        raise BadInput(f"{run.folder}: its vectors depend on which captions share a batch; leave --engine away")
    about: dict[str, Json] = {"run": run.info["name"], "weights": weights_mark(run.folder), "split": split}
    with filling(out, LIST, about) as results:
        pairs = results.read(workers, source)
        parts = Parts(pairs, pairs.pictures_of(split))
        model: Model = {"folder": str(run.folder.resolve()), "device": device}
        jobs = _jobs(parts, out, json.dumps(about))
        results.settle(parts, workers.finish(_write, model, jobs, "embeddings", total=len(parts)))
    counts = {side: sum(_rows(out / side / name) for name in results.shards) for side in (IMAGES, CAPTIONS)}
    written = {"pictures": counts[IMAGES], "captions": counts[CAPTIONS]}
    return {"file": str(out), **written, "shards": len(results.shards), "left_out": results.left_out}


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def _jobs(parts: Parts, out: Path, settings: str) -> Iterator[Job[tuple[Part, str, Path]]]:
    """A part is done when its captions are there, which are written after its pictures."""
    for part in parts:
        key, images, captions = (
            part.key(settings),
            *(out / side / f"{part.name}.parquet" for side in (IMAGES, CAPTIONS)),
        )
        if not _is_of(images, key) or not _is_of(captions, key):
            captions.unlink(missing_ok=True)
        yield Job(part.name, captions, (part, key, images))


def _is_of(file: Path, key: str) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return (pq.read_schema(file).metadata or {}).get(KEY) == key.encode()
    except (pa.ArrowException, OSError, ValueError):
        return False


@lru_cache(maxsize=1)
def _loaded(folder: str, device: str) -> Run:
    """One model a process."""
    return Run.load(folder, device=device)


def _write(model: Model, item: tuple[Part, str, Path], draft: Path) -> None:
    part, key, images = item
    run = _loaded(model["folder"], model["device"])
    inputs = run.inputs(part.pairs)
    pictures = np.setdiff1d(np.arange(len(part.places)), inputs.table.broken)
    rows = np.flatnonzero(np.isin(part.pairs.picture, pictures))
    seen = _vectors(run, inputs.table, IMAGE, pictures)
    said = _vectors(run, inputs.table, TEXT, rows)
    names, whose = np.array(part.pairs.names), part.pairs.picture[rows]
    shown = {"picture": part.places[pictures], "name": names[pictures], "split": part.pairs.splits[pictures]}
    captions = [part.pairs.captions[row] for row in rows.tolist()]
    told = {"row": part.rows[rows], "picture": part.places[whose], "name": names[whose], "caption": captions}
    with files.replaced(images, flush=True) as other:
        _table(other, shown, seen, key)
    _table(draft, told, said, key)


def _vectors(run: Run, table: Table, side: str, places: np.ndarray) -> dict[str, np.ndarray]:
    """What `embed` writes of these items, by name; nothing where there are none."""
    return arrays_of(side, encode(run.matcher, table, side, places)) if len(places) else {}


def _table(file: Path, columns: Mapping[str, np.ndarray | list[str]], made: dict[str, np.ndarray], key: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, pa.Array] = {name: pa.array(values) for name, values in columns.items()}
    for name, values in made.items():
        side, _, rest = name.partition("_")
        if rest in ("", *map(str, range(100))):  # the vectors themselves, or those of a member of an ensemble
            found["vector" + name.removeprefix(side)] = _lists(values, made.get(f"{name}_mask"))
        elif not rest.endswith("mask"):
            found[rest] = pa.array(list(values.reshape(len(values), -1)))
    table = pa.table(found).replace_schema_metadata({KEY: key.encode()})
    pq.write_table(table, file, compression="zstd")


def _lists(vectors: np.ndarray, mask: np.ndarray | None) -> pa.Array:
    """(N, K, D) as a vector an item, or as a list of those vectors of an item that are not padding."""
    import pyarrow as pa

    dim = vectors.shape[2]
    if vectors.shape[1] == 1 and mask is None:
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dim)
    real = np.ones(vectors.shape[:2], dtype=bool) if mask is None else mask.astype(bool)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors[real].ravel()), dim)
    starts = np.concatenate([[0], np.cumsum(real.sum(1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), flat)
