"""A data set into shards of an index: sets of both sides and thumbnails, a few thousand items at a time.

A shard that is there is whole, so a build that was stopped goes on behind it; and shards do not need each other, so
that under `torchrun` each process writes its share of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from matchlight import devices, files
from matchlight.console import track
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Embeddings, Matcher, Parts
from matchlight.indexing.records import has_records, write_records
from matchlight.indexing.stored_sets import is_whole, write_shard
from matchlight.indexing.thumbnails import thumbnails
from matchlight.inputs.batches import Table
from matchlight.methods.slots import SetPrediction
from matchlight.runs.evaluation import products_in
from matchlight.scoring.encode import encode

SHARD = 4096  # items; a multiple of every encoder's batch, so that models that depend on padding meet their own batches
THUMBS = "thumbs"


@dataclass
class Source:
    """What is read: pictures that could be opened, and their captions, of which there may be none."""

    table: Table
    pictures: np.ndarray
    rows: np.ndarray

    @staticmethod
    def of(table: Table, split: str) -> Source:
        """A split of a table, without pictures that cannot be read and without their captions."""
        pairs, broken = table.pairs, table.broken
        pictures, rows = pairs.pictures_of(split), pairs.rows(split)
        pictures = pictures[~np.isin(pictures, broken)]
        rows = rows[~np.isin(pairs.picture[rows], broken)]
        if not len(pictures):
            why = f"none of {len(broken):,} pictures can be read" if len(broken) else "it holds no pictures"
            raise BadInput(f"{pairs.root}: nothing to index in {split!r}: {why}; `matchlight data info` says more")
        return Source(table, pictures, rows)

    def index(self, side: str) -> np.ndarray:
        """Places of one side in the table."""
        return self.pictures if side == IMAGE else self.rows


def names(what: str, count: int, *, first: int = 0) -> list[str]:
    """Folders of the shards of so many items."""
    return [f"{what}-{first + number:05d}" for number in range(-(-count // SHARD))]


def keep_slot_attention(matcher: Matcher) -> None:
    """From now on, set prediction modules say which region each slot took."""
    for module in matcher.modules():
        if isinstance(module, SetPrediction):
            module.keep_attention = True


@contextmanager
def keeping_slot_attention(matcher: Matcher) -> Iterator[None]:
    """While it lasts, set prediction modules say which region each slot took."""
    modules = [module for module in matcher.modules() if isinstance(module, SetPrediction)]
    before = [module.keep_attention for module in modules]
    keep_slot_attention(matcher)
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.keep_attention = value


def slot_shares(embedding: Embedding) -> torch.Tensor | None:
    """(N, L, K) how the inputs were shared out among the slots in the last round, the mean of all heads."""
    seen = embedding.extra.get("attention")
    return None if seen is None or seen.dim() != 5 else seen[:, :, -1].mean(2)


def _kept(embedding: Embeddings, side: str, boxes: np.ndarray | None) -> Embeddings:
    """What is stored: slots' shares of a picture in short form, and where its regions are."""
    out = []
    for part in embedding.members:
        extra = {name: value for name, value in part.extra.items() if name not in ("attention", "residual")}
        shares = slot_shares(part)
        if side == IMAGE and shares is not None:
            extra["shares"] = shares
        out.append(replace(part, extra=extra))
    if boxes is not None:
        out[0] = replace(out[0], extra={**out[0].extra, "box": torch.from_numpy(boxes)})
    return out[0] if len(out) == 1 else Parts(tuple(out))


def _boxes(table: Table) -> np.ndarray | None:
    """(N, R, 4) where regions are in parts of the picture, where that is known of ready-made features."""
    known = table.pairs.boxes
    if known is None or table.pixels or len(table.images.shape) != 3 or known.shape[1] != table.images.shape[1]:
        return None
    corners = known[..., :4]
    return corners if corners.min() >= -0.01 and corners.max() <= 1.01 else None


def write_sides(
    folder: Path, matcher: Matcher, source: Source, first: dict[str, int], *, small: bool
) -> dict[str, list[str]]:
    """All shards of a source that are not there yet; `first` are the numbers they begin with by kind."""
    shards = {side: names(side, len(source.index(side)), first=first[side]) for side in (IMAGE, TEXT)}
    shards[THUMBS] = []
    if small and source.table.pairs.pictures is not None:
        shards[THUMBS] = names(THUMBS, len(source.pictures), first=first[IMAGE])
    todo = [(kind, number) for kind in shards for number in range(len(shards[kind]))]
    mine = todo[devices.rank() :: devices.world()]
    boxes = _boxes(source.table)
    device = next(matcher.parameters()).device
    with keeping_slot_attention(matcher), products_in("fp32", device):
        for kind, number in track(mine, "indexing"):
            span = slice(number * SHARD, (number + 1) * SHARD)
            target = folder / shards[kind][number]
            if kind == THUMBS:
                _write_thumbs(target, source, span)
            elif not is_whole(target):
                index = source.index(kind)[span]
                embedding = encode(matcher, source.table, kind, index, quiet=False)
                own = boxes[index].astype(np.float32) if boxes is not None and kind == IMAGE else None
                write_shard(target, _kept(embedding, kind, own), keep_padding=matcher.depends_on_padding)
    devices.barrier()
    return shards


def _write_thumbs(target: Path, source: Source, span: slice) -> None:
    pictures = source.table.pairs.pictures
    if has_records(target) or pictures is None:
        return
    places = source.pictures[span]
    made = list(track(thumbnails(pictures, places), "thumbnails", len(places)))
    files.write_array(sizes_of(target), np.array([size for _, size in made], dtype=np.int64).reshape(-1, 2))
    write_records(target, (record for record, _ in made))


def sizes_of(target: Path) -> Path:
    """The file with the pictures' true sizes beside a pack of thumbnails."""
    return target.with_name(f"{target.name}.sizes.npy")
