"""Pictures in full, from the data the index was made of: by their number in the index and in no other way.

An index holds thumbnails. With `--data` the server also reads the data set, through the same reader that training
used: it keeps to the data's own folder or archive, and refuses files that are no pictures or have too many pixels. A
request names a picture of the index; its number there is its place in the data (names may repeat), and only a file of
the name and size that were indexed is shown. What is sent is encoded anew: at most `LONGEST` pixels a side, nothing of
the file but its pixels.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from matchlight.console import BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.data.formats.decoding import decode
from matchlight.indexing.origins import UNKNOWN, Origin, origin_of
from matchlight.indexing.thumbnails import thumbnail
from matchlight.inputs.preprocessing import UNREADABLE
from matchlight.pairs import Pairs

if TYPE_CHECKING:
    from matchlight.indexing import Index
    from matchlight.indexing.index import ItemInfo

LONGEST = 1600  # pixels of the longer side
LARGEST = 64_000_000  # bytes of a file that is read at all
KEPT = 24  # pictures in memory: a person looks at one and goes back


class Originals:
    """A data set's pictures by their number in the index."""

    def __init__(self, data: str | Path, *, max_pixels: int):
        self.path, self.max_pixels = data, max_pixels
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        pairs = Pairs.read(self.path)
        if pairs.pictures is None:
            raise BadInput(f"--data {self.path}: has no pictures, only features; leave --data out to show thumbnails")
        with self._lock:
            self.pictures, self.names, self.fingerprint = pairs.pictures, pairs.names, fingerprint(pairs)
            self._named = Counter(pairs.names)
            self._kept: OrderedDict[tuple[int, tuple[int, ...]], bytes | None] = OrderedDict()

    def part_of(self, index: Index) -> Origin:
        """The data's part of an index; one of other data is refused."""
        origin = origin_of(self.fingerprint, index.origins)
        if origin is None:
            problem = f"not the data that {index.root} was built from, or it has changed since"
            raise BadInput(f"--data {self.path}: {problem}; give that data, or leave --data out to show thumbnails")
        return origin

    def jpeg(self, item: ItemInfo, origin: Origin) -> bytes | None:
        """A picture of the index as JPEG; None where the data has no such picture."""
        place = self._place(item, origin)
        if place is None:
            return None
        key = place, tuple(item["size"])
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        jpeg = self._read(place, key[1])
        with self._lock:
            self._kept[key] = jpeg
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return jpeg

    def _place(self, item: ItemInfo, origin: Origin) -> int | None:
        """Where the picture is in the data; an index that does not know its data is believed where no name repeats."""
        place = item["id"] - origin.ids.start
        if item["id"] in origin.ids and place < len(self.names) and self.names[place] == item["name"]:
            return place if origin.known or self._named[item["name"]] == 1 else None
        return self.names.index(item["name"]) if not origin.known and self._named[item["name"]] == 1 else None

    def _read(self, place: int, size: tuple[int, ...]) -> bytes | None:
        try:
            blob = self.pictures.read(place)
            image = decode(blob, self.names[place], max_pixels=self.max_pixels) if len(blob) <= LARGEST else None
        except UNREADABLE:
            return None
        return None if image is None or image.size != size else thumbnail(image, longest=LONGEST)


class FollowedOriginals(Originals):
    """Pictures of a folder that an index follows: found by name, since their numbers move on with every change."""

    def __init__(self, data: str | Path, *, max_pixels: int):
        super().__init__(data, max_pixels=max_pixels)
        self._version = ""

    def part_of(self, index: Index) -> Origin:
        """All of it; the folder is listed again for every new version of the index."""
        if index.version != self._version:
            self._open()
            self._version = index.version
        return UNKNOWN
