"""Sets of vectors on the disk: half precision, memory-mapped, without padding, in shards that are written whole.

A shard is a folder with one array each of what an item has and `shard.json`, which is written last. Sets with a mask
are stored one behind the other (`offsets` says where each begins), so that a short caption takes little room; sets
without one are one array. A model whose scores depend on padding keeps the padding that its encoder gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.indexing.item_sets import MASK, VECTORS, Arrays, ItemSets
from matchlight.indexing.mapped import mapped_array

LARGEST = 65504.0  # the largest number of half precision
ABOUT = "shard.json"
Spot = slice | np.ndarray  # places of an array: those of a slice are read in one go


class PartInfo(TypedDict):
    """The arrays of one member of an ensemble (or of the only model), and which of them follow the sets."""

    arrays: list[str]
    follows: list[str]


class ShardInfo(TypedDict):
    """What `shard.json` says."""

    items: int
    parts: list[PartInfo]


def _stored(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind != "f" or value.dtype == np.float16:
        return value
    return value.clip(-LARGEST, LARGEST).astype(np.float16)


def write_shard(folder: Path, sets: ItemSets, *, keep_padding: bool = False) -> None:
    """One shard of some items' sets; `shard.json` comes last and says that it is whole."""
    parts = []
    for number, arrays in enumerate(sets.members):
        count, mask = arrays[VECTORS].shape[1], arrays.get(MASK)
        lengths = np.full(len(sets), count) if keep_padding or mask is None else _used(mask)
        follows = sorted(k for k, v in arrays.items() if mask is not None and _follows(k, v, count))
        for name, value in arrays.items():
            array = _stored(value)
            if name in follows:
                array = array[np.arange(count) < lengths[:, None]]
            files.write_array(folder / f"{number}.{name}.npy", array)
        if mask is not None:
            files.write_array(folder / f"{number}.offsets.npy", np.append(0, np.cumsum(lengths)))
        parts.append({"arrays": sorted(arrays), "follows": follows})
    files.write_json(folder / ABOUT, {"items": len(sets), "parts": parts})


def _used(mask: np.ndarray) -> np.ndarray:
    """(N,) places each set needs, up to its last real member."""
    return np.asarray((mask * np.arange(1, mask.shape[1] + 1)).max(1).clip(min=1))


def _follows(name: str, value: np.ndarray, count: int) -> bool:
    """Extras with two axes are one vector an item; those with more may follow the sets."""
    return name in (VECTORS, MASK) or (value.ndim > 2 and value.shape[1] == count)


def is_whole(folder: Path) -> bool:
    """Whether a shard was written to its end."""
    return (folder / ABOUT).is_file()


class _Part:
    """One member's arrays of one shard."""

    def __init__(self, folder: Path, number: int, about: PartInfo, items: int):
        def array(name: str) -> np.ndarray:
            return mapped_array(folder / f"{number}.{name}.npy")

        self.arrays = {name: array(name) for name in about["arrays"]}
        self.follows = set(about["follows"])
        self.offsets = np.array(array("offsets")) if self.follows else None
        if VECTORS not in self.arrays or any(self._items(name) != items for name in self.arrays):
            raise BadInput(f"{folder}: its arrays are not of {items} items; build the index again")

    def _items(self, name: str) -> int:
        """Of how many items an array is."""
        return len(self.arrays[name]) if self.offsets is None or name not in self.follows else len(self.offsets) - 1

    def lengths(self, places: np.ndarray) -> np.ndarray:
        """How many vectors the sets at these places have stored."""
        assert self.offsets is not None
        return np.asarray(self.offsets[places + 1] - self.offsets[places])

    def read(self, name: str, places: np.ndarray, tail: tuple[int, ...]) -> np.ndarray:
        """One array of some items, as stored; where `tail` is wider than it is, the rest is zero."""
        array = self.arrays[name]
        if name not in self.follows and array.shape[1:] == tail:
            return np.asarray(array[_as_slice(places)])
        room = np.zeros((len(places), *tail), dtype=array.dtype)
        if name not in self.follows:
            stored = array[_as_slice(places)]
            room[(slice(None), *(slice(side) for side in stored.shape[1:]))] = stored
            return room
        assert self.offsets is not None
        steps = np.arange(tail[0])
        real = steps < self.lengths(places)[:, None]
        room[real] = array[_as_slice((self.offsets[places][:, None] + steps)[real])]
        return room

    def shape(self, name: str, places: np.ndarray) -> tuple[int, ...]:
        """The room that one of these items needs in an array."""
        tail = self.arrays[name].shape[1:]
        return (int(self.lengths(places).max()), *tail) if name in self.follows else tail


Group = tuple[_Part, Spot, np.ndarray]  # of one shard: its part, which of the wanted items it holds, their places


def _gathered(groups: list[Group], count: int) -> Arrays:
    """One member's sets out of several shards, each put where it belongs."""
    out = {}
    for name, array in groups[0][0].arrays.items():
        shapes = {part.shape(name, places) for part, _, places in groups}
        tail = tuple(max(sides) for sides in zip(*shapes, strict=True))
        whole = np.empty((count, *tail), dtype=array.dtype)
        for part, where, places in groups:
            whole[where] = part.read(name, places, tail)
        out[name] = whole
    return out


def _as_slice(places: np.ndarray) -> Spot:
    """A slice where places follow each other: read in one go."""
    if len(places) > 1 and places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


class Sets:
    """The sets of all items of one side, in shards; `take` reads some of them as they are stored."""

    def __init__(self, folders: Sequence[Path]):
        about: list[ShardInfo] = [files.read_json(folder / ABOUT, "a shard of an index") for folder in folders]
        self.starts = np.cumsum([0, *(entry["items"] for entry in about)])
        self.shards = [
            [_Part(folder, number, part, entry["items"]) for number, part in enumerate(entry["parts"])]
            for folder, entry in zip(folders, about, strict=True)
        ]
        if not all(shard and len(shard) == len(self.shards[0]) for shard in self.shards):
            raise BadInput(f"{folders[0].parent}: its shards are not of as many models; build the index again")

    def __len__(self) -> int:
        return int(self.starts[-1])

    def take(self, places: np.ndarray) -> ItemSets:
        """The sets at these places, in this order."""
        places = np.asarray(places, dtype=np.int64)
        if not len(places):
            raise BadInput("no items were asked for")
        shard = np.searchsorted(self.starts, places, side="right") - 1
        where = {number: _as_slice(np.flatnonzero(shard == number)) for number in np.unique(shard).tolist()}
        members = []
        for member in range(len(self.shards[0])):
            groups: list[Group] = [
                (self.shards[number][member], spot, places[spot] - self.starts[number])
                for number, spot in where.items()
            ]
            members.append(_gathered(groups, len(places)))
        return ItemSets(tuple(members))

    def blocks(self, size: int) -> Iterator[tuple[slice, ItemSets]]:
        """All sets, `size` items at a time."""
        for start in range(0, len(self), size):
            span = slice(start, min(start + size, len(self)))
            yield span, self.take(np.arange(span.start, span.stop))
