"""Pictures in full, from the data the index was made of: by their number in the index and in no other way.

An index holds thumbnails. With `--data` the server also reads the data set, through the same reader that training
used: it keeps to the data's own folder or archive, and refuses files that are no pictures or have too many pixels. A
request names a picture of the index; its name in the index leads to the data, and only a file of the size that was
indexed is shown. What is sent is encoded anew: at most `LONGEST` pixels a side, nothing of the file but its pixels.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from matchlight.core import BadInput
from matchlight.data.formats.decoding import decode
from matchlight.indexing.thumbnails import thumbnail
from matchlight.inputs.features.decode import UNREADABLE
from matchlight.pairs import Pairs

LONGEST = 1600  # pixels of the longer side
LARGEST = 64_000_000  # bytes of a file that is read at all
KEPT = 24  # pictures in memory: a person looks at one and goes back


class Originals:
    """A data set's pictures by name."""

    def __init__(self, data: str | Path, *, max_pixels: int):
        pairs = Pairs.read(data)
        if pairs.pictures is None:
            raise BadInput(f"--data {data}: has no pictures, only features; leave --data out to show thumbnails")
        self.pictures, self.max_pixels = pairs.pictures, max_pixels
        self._places = {name: place for place, name in enumerate(pairs.names)}
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._lock = threading.Lock()

    def jpeg(self, name: str, size: tuple[int, int]) -> bytes | None:
        """A picture of this name and size (width, height) as JPEG; None where the data has no such picture."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        jpeg = self._read(name, size)
        with self._lock:
            self._kept[name] = jpeg
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return jpeg

    def _read(self, name: str, size: tuple[int, int]) -> bytes | None:
        place = self._places.get(name)
        if place is None:
            return None
        try:
            blob = self.pictures.read(place)
            image = decode(blob, name, max_pixels=self.max_pixels) if len(blob) <= LARGEST else None
        except UNREADABLE:
            return None
        return None if image is None or image.size != size else thumbnail(image, longest=LONGEST)
