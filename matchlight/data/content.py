"""What pictures and features hold, as digests of all their bytes: another picture of the same name is other data.

A file is read once. The cache keeps its digest beside what the file system says of it (size, times of the last change
of content and of status, inode, device): where all that is the same, the digest is taken from there, and where it
differs the file is hashed again. Nobody can set the time of the last change of status, so a file that was changed and
given its old date is noticed. A copy of a data set has the same digests as the original.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from matchlight import files
from matchlight.console import track
from matchlight.data import cache
from matchlight.pairs import FeatureSource, Pairs, PictureSource

FILE = "digests.npy"
WIDTH = 16  # bytes of a digest
BLOCK = 1 << 20
SETTLED = 0.1  # seconds without a change after which the times of a file can be trusted


@dataclass(frozen=True)
class Extent:
    """Where the bytes of a picture or an array are; `part` tells apart what a file packs in a way of its own."""

    path: str
    start: int = 0
    length: int | None = None  # None: to the end of the file
    part: str = ""


@runtime_checkable
class OnDisk(Protocol):
    """Pictures whose bytes are in files; `home` names the data set they belong to."""

    @property
    def home(self) -> str:
        """The folder of the data set."""

    def extent(self, index: int) -> Extent:
        """Where a picture's bytes are; raises OSError or ValueError where there are none."""


@runtime_checkable
class ArraysOnDisk(Protocol):
    """Features in files, whole or some rows of them."""

    rows: np.ndarray

    @property
    def home(self) -> str:
        """The folder of the data set."""

    def extents(self) -> list[Extent]:
        """Where the arrays are."""


def digest_of(place: Extent) -> str:
    """A digest of the length and of every byte: the same for a copy, another for a changed picture."""
    handle = os.open(place.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        left = os.fstat(handle).st_size - place.start if place.length is None else place.length
        digest, offset = hashlib.blake2b(str(left).encode(), digest_size=WIDTH), place.start
        while left > 0 and (block := os.pread(handle, min(BLOCK, left), offset)):
            digest.update(block)
            left, offset = left - len(block), offset + len(block)
        return digest.hexdigest()
    finally:
        os.close(handle)


def stamps(pictures: PictureSource) -> list[str]:
    """(N,) what each picture's stamp says; files that did not change since they were last read are not read again."""
    if not len(pictures) or not isinstance(pictures, OnDisk):
        return [pictures.stamp(index) for index in range(len(pictures))]
    places: list[Extent | None] = []
    for index in range(len(pictures)):
        try:
            places.append(pictures.extent(index))
        except (OSError, ValueError):  # BadPicture is a ValueError
            places.append(None)
    found = digests(pictures.home, [place for place in places if place is not None])
    said = iter(found)
    told = [None if place is None else next(said) for place in places]
    return [pictures.stamp(index) if one is None else one for index, one in enumerate(told)]


def content_mark(pairs: Pairs) -> str:
    """Changes when any picture or feature of the data does; the same for a copy at another place."""
    digest = hashlib.blake2b(digest_size=WIDTH // 2)
    if pairs.pictures is not None:
        digest.update("\n".join(stamps(pairs.pictures)).encode("utf-8", "replace") + b"\0")
    if pairs.features is not None:
        digest.update(_features_stamp(pairs.features).encode() + b"\0")
    if pairs.text_features is not None:
        digest.update(np.ascontiguousarray(pairs.text_features).data)
    return digest.hexdigest()


def _features_stamp(features: FeatureSource) -> str:
    source = getattr(features, "source", features)
    if not isinstance(source, ArraysOnDisk):
        return features.stamp()
    found = digests(source.home, source.extents())
    rows = hashlib.blake2b(np.ascontiguousarray(source.rows).tobytes(), digest_size=WIDTH)
    return ":".join([*map(str, found), rows.hexdigest()])


# ---- what was hashed before ------------------------------------------------------------------------------------------


def digests(home: str, places: Sequence[Extent]) -> list[str | None]:
    """A digest for each place, None where nothing can be read; those of unchanged files come from the cache."""
    keys = [_key(place) for place in places]
    every: dict[bytes, str | None] = {**_Memory(home).known}
    if any(key and key.mark not in every for key in keys):
        every = _hashed(home, dict(zip(keys, places, strict=True)))
    return [
        None if key is None else _with_part(every[key.mark], place) for key, place in zip(keys, places, strict=True)
    ]


def _hashed(home: str, places: dict[_Key | None, Extent]) -> dict[bytes, str | None]:
    """All digests by mark, those that nobody knows yet made now; processes of one group wait for the first of them."""
    with ExitStack() as stack:
        with suppress(OSError):  # a cache that cannot be written keeps nothing
            stack.enter_context(cache.locked(_Memory(home).entry))
        memory = _Memory(home)
        wanted = {key: place for key, place in places.items() if key and key.mark not in memory.known}
        with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1))) as pool:
            read = track(pool.map(_readable, wanted.values()), "reading files", len(wanted))
            found = dict(zip(wanted, read, strict=True))
        memory.add({key: one for key, one in found.items() if one is not None})
        return {**memory.known, **{key.mark: one for key, one in found.items()}}


def _with_part(digest: str | None, place: Extent) -> str | None:
    return f"{digest}:{place.part}" if digest is not None and place.part else digest


def _readable(place: Extent) -> str | None:
    try:
        return digest_of(place)
    except OSError:
        return None


@dataclass(frozen=True)
class _Key:
    """What the file system says of a place; `changed` is when it last changed."""

    mark: bytes
    changed: float


def _key(place: Extent) -> _Key | None:
    try:
        about = os.stat(place.path)
    except OSError:
        return None
    said = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev, place.start, place.length)
    mark = hashlib.blake2b(repr(said).encode(), digest_size=WIDTH).digest()
    return _Key(mark, max(about.st_mtime, about.st_ctime))


class _Memory:
    """The digests that the cache keeps of one data set, by what the file system said of each place."""

    def __init__(self, home: str):
        self.home, self.now = home, time.time()
        place = hashlib.sha256(f"digests 1 {home}".encode("utf-8", "replace"))
        self.entry = cache.folder() / place.hexdigest()[: 2 * WIDTH]
        self.known: dict[bytes, str] = self._read()

    def _read(self) -> dict[bytes, str]:
        try:
            table = np.load(self.entry / FILE, allow_pickle=False)
        except (OSError, *files.DAMAGED_ARRAY):
            return {}
        if table.dtype != np.uint8 or table.ndim != 2 or table.shape[1] != 2 * WIDTH:
            return {}
        cache.touch(self.entry)
        lines = (line.tobytes() for line in table)
        return {line[:WIDTH]: line[WIDTH:].hex() for line in lines}

    def add(self, found: dict[_Key, str]) -> None:
        """Keep these too; one that changed within the last moments could change once more unseen, and is not kept.

        Whoever calls this holds the entry's lock.
        """
        settled = {key.mark: digest for key, digest in found.items() if key.changed < self.now - SETTLED}
        if not settled:
            return
        every = b"".join(mark + bytes.fromhex(digest) for mark, digest in {**self.known, **settled}.items())
        with suppress(OSError):
            self.entry.mkdir(parents=True, exist_ok=True)
            cache.write_json(self.entry / cache.META, {"what": "digests", "of": self.home})
            files.write_array(self.entry / FILE, np.frombuffer(every, np.uint8).reshape(-1, 2 * WIDTH))
