"""Which pictures look the same: equal files, and copies that were resized or saved again.

Each picture becomes a 16 x 16 colour thumbnail and a 64-bit difference hash (is each cell of an 8 x 9 grid brighter
than its neighbour?). Two pictures are twins if their files are equal, or if a quarter of their hashes agrees and their
thumbnails differ by no more than a few grey levels. Flat pictures share hashes, which is why the thumbnail decides.
Beyond 20,000 pictures only equal files are found. The result is cached, as every command would ask for it again.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import numpy as np

from matchlight import files
from matchlight.console import BadInput, track
from matchlight.data.formats.decoding import MAX_PIXELS, thumbnail
from matchlight.files import Json
from matchlight.pairs import PictureSource

SIDE = 16
CLOSE = 4.0  # grey levels between two thumbnails, on average
FURTHEST = 48  # grey levels in any cell of two hits that are shown as one: a small thing more is another picture
MOST_LOOKED_AT = 20_000  # more pictures than this are compared by their bytes alone
TOGETHER = 16  # pictures a thread takes at a time: handing one over costs a tenth of decoding a small one
LEADERS = 64  # thumbnails compared within a bucket of equal quarter-hashes
T = TypeVar("T")


def in_threads(how: Callable[[int], T], places: Iterable[int], what: str) -> Iterator[T]:
    """`how` of each place, in order, by a few threads, with a progress bar."""
    places = list(places)
    parts = [places[start : start + TOGETHER] for start in range(0, len(places), TOGETHER)]

    def some(part: list[int]) -> list[T]:
        return [how(place) for place in part]

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        starts = range(0, len(parts), 256)  # a bounded queue: results are small, pictures in flight are not
        found = (one for start in starts for done in pool.map(some, parts[start : start + 256]) for one in done)
        yield from track(found, what, total=len(places))


def groups_of(pictures: PictureSource) -> np.ndarray:
    """(N,) group numbers; pictures of one group look the same. Pictures that cannot be read stand alone."""
    sizes = _file_sizes(pictures)
    there = np.flatnonzero(sizes >= 0)
    if not len(there):
        return np.arange(len(pictures))
    return _cached(pictures, lambda: _group(pictures, sizes, there))


def _file_sizes(pictures: PictureSource) -> np.ndarray:
    size_of = getattr(pictures, "size_in_bytes", lambda index: 0)
    return np.array([size_of(index) for index in range(len(pictures))], dtype=np.int64)


def _group(pictures: PictureSource, sizes: np.ndarray, there: np.ndarray) -> np.ndarray:
    group = np.arange(len(pictures))
    looked_at = len(there) <= MOST_LOOKED_AT
    if not looked_at:  # equal files have equal lengths
        there = there[np.bincount(sizes[there])[sizes[there]] > 1]
    seen = list(in_threads(lambda i: _look(pictures, i, looked_at), there, "comparing pictures"))
    same: dict[bytes, int] = {}
    for place, (digest, _) in zip(there, seen, strict=True):
        if digest:
            group[place] = same.setdefault(digest, int(place))
    if looked_at:
        _join_alike(group, there, [look for _, look in seen])
    return np.unique(group, return_inverse=True)[1]


def _look(pictures: PictureSource, index: int, look: bool) -> tuple[bytes, np.ndarray | None]:
    """A digest of the file, and its thumbnail where it can be decoded."""
    try:
        blob = pictures.read(index)
    except BadInput:
        return b"", None
    digest = hashlib.blake2b(blob, digest_size=16).digest()
    if not look:
        return digest, None
    try:
        small, _ = thumbnail(blob, "", SIDE, max_pixels=getattr(pictures, "max_pixels", MAX_PIXELS))
    except BadInput:
        return digest, None
    return digest, np.asarray(small, dtype=np.uint8)


def _join_alike(group: np.ndarray, places: np.ndarray, looks: list[np.ndarray | None]) -> None:
    """Give near-duplicates the smallest group number among them; chains of likeness become one group."""
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    smalls: dict[int, np.ndarray] = {}
    for place, look in track(zip(places.tolist(), looks, strict=True), "looking for likeness", len(looks)):
        if look is None or group[place] != place:
            continue
        smalls[place] = look.astype(np.int16)
        for band in enumerate(_quarters(smalls[place])):
            for leader in buckets[band]:
                if np.abs(smalls[leader] - smalls[place]).mean() <= CLOSE:
                    _merge(group, leader, place)
            if len(buckets[band]) < LEADERS:
                buckets[band].append(place)


def _merge(group: np.ndarray, one: int, other: int) -> None:
    low, high = sorted((int(group[one]), int(group[other])))
    if low != high:
        group[group == high] = low


def same_picture(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two thumbnails (SIDE, SIDE, 3) show one picture: close everywhere, and a quarter of the hash agrees."""
    apart = np.abs(one.astype(np.int16) - other.astype(np.int16))
    close = apart.mean() <= CLOSE and apart.max() <= FURTHEST
    return bool(close and any(a == b for a, b in zip(_quarters(one), _quarters(other), strict=True)))


def _quarters(small: np.ndarray) -> list[int]:
    """The 64-bit difference hash as four 16-bit numbers: hashes up to three bits apart share at least one."""
    grey = small.mean(2).reshape(8, 2, SIDE).mean(1)
    columns = grey[:, np.linspace(0, SIDE - 1, 9).round().astype(int)]
    bits = columns[:, 1:] > columns[:, :-1] + 1  # a step of one grey level is noise
    return np.packbits(bits.reshape(4, 16), axis=1).view(">u2").ravel().tolist()


def _cached(pictures: PictureSource, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """The groups from the cache, or computed and kept there; a cache that cannot be used is no obstacle."""
    from matchlight.data import cache
    from matchlight.data.content import stamps

    digest = hashlib.blake2b(f"twins 2 {SIDE} {CLOSE} {MOST_LOOKED_AT} {LEADERS}".encode(), digest_size=16)
    for stamp in stamps(pictures):
        digest.update(stamp.encode("utf-8", "replace") + b"\n")
    entry = cache.folder() / digest.hexdigest()
    with suppress(OSError, *files.DAMAGED_ARRAY):
        found = np.load(entry / "groups.npy", allow_pickle=False)
        if found.shape == (len(pictures),):
            cache.touch(entry)
            return found
    groups = compute()
    meta: dict[str, Json] = {"what": "look-alikes", "kind": "groups", "size": [SIDE, SIDE], "shape": [len(groups)]}
    with suppress(OSError), cache.locked(entry):
        cache.write_json(entry / cache.META, meta)
        files.write_array(entry / "groups.npy", groups)
    return groups
