"""Streams: pictures are decoded from where they are when a batch asks for them, and nothing of them is kept.

A stream takes the place of a store that would not fit: of a data set only names, captions and places are in memory, and
the bytes of a picture are read from its shard (a range of a tar, a row group of a Parquet file) each time. Threads
decode the pictures of a batch side by side; `batches.ahead` asks for them a few batches before the step that needs
them, which bounds the memory: four batches of pixels. A picture gives the same numbers as a store would hold, alone or
among others, so it does not matter which process reads it.
"""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from matchlight.console import say
from matchlight.data import cache
from matchlight.data.formats.sources import Pictures
from matchlight.inputs.features.fill import place_of
from matchlight.inputs.features.store import size_of
from matchlight.inputs.preprocessing import UNREADABLE, Preprocessing
from matchlight.pairs import PictureSource

if TYPE_CHECKING:
    from matchlight.inputs.backbones import Backbone

MOST_THREADS = 8  # that decode: more wait for each other
MOST_NAMED = 3  # pictures that could not be read


def is_too_large(meta: dict[str, Any]) -> bool:
    """Whether a store should not be made, so that pictures are streamed; that is said, with the reason.

    A store that is there is used. Pixels that would take more than the cache may hold are streamed. Features, which
    cost more to compute than to keep, are streamed only where the disk has no room for them.
    """
    size, there = size_of(meta), place_of(meta) / f"{meta['what']}.npy"
    written, free = there.stat().st_size if there.is_file() else 0, _free(cache.folder())
    full = size > free + written
    if written == size or not (full or (meta["what"] == "pixels" and size > cache.limit())):
        return False
    limit = f"the cache may hold {_in_words(cache.limit())} (MATCHLIGHT_CACHE_LIMIT)"
    room = f"{_in_words(free)} are free in {cache.folder()}" if full else limit
    made = "decoded" if meta["what"] == "pixels" else "computed"
    if os.environ.get("RANK", "0") == "0":  # one of several processes says it
        say(f"{meta['what']} are {made} anew for each batch: a store would take {_in_words(size)}, and {room}")
    return True


def _in_words(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def _free(folder: Path) -> int:
    """Bytes of room where the cache is, or will be."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    return shutil.disk_usage(there).free


@runtime_checkable
class InBlocks(Protocol):
    """Pictures of which many are read to have one, as in the row groups of a Parquet file."""

    def blocks(self) -> np.ndarray:
        """(N,) the block of each picture."""


class PixelStream:
    """Pictures as pixels, (N, 3, height, width) uint8, decoded when they are asked for: a `FeatureSource`."""

    def __init__(self, source: PictureSource, made: Preprocessing):
        self.source, self.made = source, made
        self.pixels = (3, *made.size)
        self.shape: tuple[int, ...] = (len(source), *self.pixels)
        self.broken = _absent(source)
        self.lost: set[int] = set()  # could not be read when they were asked for
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The threads that decode, begun with the first batch; processes of one machine share its cores."""
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return ThreadPoolExecutor(max(1, min(MOST_THREADS, (os.cpu_count() or 1) // processes)), "decode")

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These pictures, in this order; one that is asked for several times is decoded once."""
        places, which = np.unique(np.asarray(index), return_inverse=True)
        return self._decoded(places)[0][which.ravel()]

    def _decoded(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of these places, black where a picture cannot be read, and which could be."""
        rows, readable = np.zeros((len(places), *self.pixels), np.uint8), np.ones(len(places), dtype=bool)

        def fill(row: int) -> None:
            try:
                rows[row] = self.made.pixels(self.source.open(int(places[row])))
            except UNREADABLE as problem:
                readable[row] = False
                self._note(int(places[row]), str(problem))

        for _ in self.pool.map(fill, range(len(places))):  # raises here what went wrong there
            pass
        return rows, readable

    def _note(self, place: int, problem: str) -> None:
        with self._lock:
            new = place not in self.lost
            self.lost.add(place)
            count = len(self.lost)
        if new and count <= MOST_NAMED:
            more = "" if count < MOST_NAMED else "; further ones are not named"
            say(f"a picture could not be read and counts as black: {problem}{more}")

    def blocks(self) -> np.ndarray | None:
        """(N,) which pictures are read together where they are, so that they should be asked for together."""
        return self.source.blocks() if isinstance(self.source, InBlocks) else None

    def stamp(self) -> str:
        """Changes when the pictures do."""
        return ":".join(self.source.stamp(place) for place in range(len(self)))

    def take(self, index: np.ndarray) -> Self:
        """A stream of these pictures alone, in this order."""
        return type(self)(self.source.take(np.asarray(index)), self.made)


class FeatureStream(PixelStream):
    """Features of a frozen network, (N, cells, dim) or (N, dim), computed when they are asked for, as float32."""

    def __init__(
        self, source: PictureSource, made: Preprocessing, network: Backbone, kind: str, shape: tuple[int, ...]
    ):
        super().__init__(source, made)
        self.network, self.kind, self.shape = network, kind, tuple(shape)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These pictures, in this order; on a CPU one by one, so that the rest of a batch changes no bit of them."""
        from matchlight.inputs.features.runtimes import computed

        places, which = np.unique(np.asarray(index), return_inverse=True)
        pixels, readable = self._decoded(places)
        each = 1 if self.network.mean.device.type == "cpu" else max(1, len(places))
        parts = [computed(self.network, pixels[k : k + each], self.kind) for k in range(0, len(places), each)]
        found = np.concatenate(parts).astype(np.float32)
        found[~readable] = 0
        return found[which.ravel()]

    def take(self, index: np.ndarray) -> Self:
        """A stream of these pictures alone, in this order."""
        shape = (len(index), *self.shape[1:])
        return type(self)(self.source.take(np.asarray(index)), self.made, self.network, self.kind, shape)


def _absent(source: PictureSource) -> list[int]:
    """Places of pictures that are known to be missing without reading any."""
    if not isinstance(source, Pictures):
        return []
    return [place for place in range(len(source)) if source.size_in_bytes(place) < 0]
