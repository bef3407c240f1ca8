"""A data set into shards of an index: sets of both sides and thumbnails, a few thousand items at a time.

A shard that is there is whole, so a build that was stopped goes on behind it; and shards do not need each other, so
that under `torchrun` each process writes its share of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput, track
from matchlight.indexing import processes
from matchlight.indexing.index_model import DataReader
from matchlight.indexing.records import has_records, write_records
from matchlight.indexing.stored_sets import is_whole, write_shard
from matchlight.indexing.thumbnails import thumbnails
from matchlight.pairs import IMAGE, TEXT

SHARD = 4096  # items; a multiple of every encoder's batch, so that models that depend on padding meet their own batches
THUMBS = "thumbs"


@dataclass
class Source:
    """What is read: pictures that could be opened, and their captions, of which there may be none."""

    data: DataReader
    pictures: np.ndarray
    rows: np.ndarray

    @staticmethod
    def of(data: DataReader, split: str) -> Source:
        """A split of a data set, without pictures that cannot be read and without their captions."""
        pairs, broken = data.pairs, data.broken
        pictures, rows = pairs.pictures_of(split), pairs.rows(split)
        pictures = pictures[~np.isin(pictures, broken)]
        rows = rows[~np.isin(pairs.picture[rows], broken)]
        if not len(pictures):
            why = f"none of {len(broken):,} pictures can be read" if len(broken) else "it holds no pictures"
            raise BadInput(f"{pairs.root}: nothing to index in {split!r}: {why}; `matchlight data info` says more")
        return Source(data, pictures, rows)

    def index(self, side: str) -> np.ndarray:
        """Places of one side in the data set."""
        return self.pictures if side == IMAGE else self.rows


def names(what: str, count: int, *, first: int = 0) -> list[str]:
    """Folders of the shards of so many items."""
    return [f"{what}-{first + number:05d}" for number in range(-(-count // SHARD))]


def write_sides(
    folder: Path, source: Source, first: dict[str, int], *, small: bool, keep_padding: bool
) -> dict[str, list[str]]:
    """All shards of a source that are not there yet; `first` are the numbers they begin with by kind."""
    shards = {side: names(side, len(source.index(side)), first=first[side]) for side in (IMAGE, TEXT)}
    shards[THUMBS] = []
    if small and source.data.pairs.pictures is not None:
        shards[THUMBS] = names(THUMBS, len(source.pictures), first=first[IMAGE])
    todo = [(kind, number) for kind in shards for number in range(len(shards[kind]))]
    for kind, number in track(todo[processes.rank() :: processes.world()], "indexing"):
        span = slice(number * SHARD, (number + 1) * SHARD)
        target = folder / shards[kind][number]
        if kind == THUMBS:
            _write_thumbs(target, source, span)
        elif not is_whole(target):
            write_shard(target, source.data.encode(kind, source.index(kind)[span]), keep_padding=keep_padding)
    processes.barrier()
    return shards


def _write_thumbs(target: Path, source: Source, span: slice) -> None:
    pictures = source.data.pairs.pictures
    if has_records(target) or pictures is None:
        return
    places = source.pictures[span]
    made = list(track(thumbnails(pictures, places), "thumbnails", len(places)))
    files.write_array(sizes_of(target), np.array([size for _, size in made], dtype=np.int64).reshape(-1, 2))
    write_records(target, (record for record, _ in made))


def sizes_of(target: Path) -> Path:
    """The file with the pictures' true sizes beside a pack of thumbnails."""
    return target.with_name(f"{target.name}.sizes.npy")
