"""A data set in parts: the files it is made of, cut into a few thousand pictures each.

A part is named for its file, so that parts keep their names when another file is added, mended or left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from matchlight.data.fingerprints import fingerprint
from matchlight.data.formats.sources import RowPictures, TarPictures
from matchlight.pairs import Pairs

PART = 2000  # pictures at most


@dataclass(frozen=True, eq=False)
class Part:
    """Some pictures of a data set with their rows, as a data set of their own."""

    name: str
    places: np.ndarray  # of its pictures in the whole
    rows: np.ndarray  # in the whole
    pairs: Pairs
    file: Path | None  # that its pictures are in, where it is one

    def key(self, settings: str) -> str:
        """Changes when its names, captions, splits or files do, or what is made of them."""
        digest = hashlib.sha256(f"{settings}\0{fingerprint(self.pairs)}\0".encode())
        digest.update(self.places.astype("<i8").tobytes() + self.rows.astype("<i8").tobytes())
        size_of = getattr(self.pairs.pictures, "size_in_bytes", None)
        if self.file is not None:
            about = self.file.stat()
            digest.update(f"{about.st_size} {about.st_mtime_ns}".encode())
        elif size_of is not None:
            digest.update(" ".join(str(size_of(index)) for index in range(len(self.places))).encode())
        if self.pairs.features is not None:
            digest.update(self.pairs.features.stamp().encode())
        return digest.hexdigest()[:32]


class Parts:
    """All parts of some pictures (None: of all), each made when it is asked for."""

    def __init__(self, pairs: Pairs, places: np.ndarray | None = None):
        self.pairs = replace(pairs, relevance=None)  # between all captions and all pictures: no part of any
        self.places = np.arange(len(pairs.names)) if places is None else places
        number, self.files = _files(pairs, self.places)
        self.order = np.argsort(pairs.picture, kind="stable")  # rows by picture
        self.sorted = pairs.picture[self.order]
        first = np.flatnonzero(np.diff(number, prepend=-1))
        self.spans = [
            (int(number[start]), (begin - start) // PART, slice(begin, min(begin + PART, end)))
            for start, end in zip(first.tolist(), [*first[1:].tolist(), len(number)], strict=True)
            for begin in range(start, end, PART)
        ]

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def names(self) -> list[str]:
        """What the parts are called."""
        return [f"{self.files[number].stem if self.files else 'pictures'}-{part:05d}" for number, part, _ in self.spans]

    def __iter__(self) -> Iterator[Part]:
        for name, (number, _, span) in zip(self.names, self.spans, strict=True):
            places, file = self.places[span], self.files[number] if self.files else None
            begin, end = (np.searchsorted(self.sorted, places, side=side) for side in ("left", "right"))  # type: ignore[call-overload]
            rows = np.sort(np.concatenate([self.order[a:b] for a, b in zip(begin, end, strict=True)]))
            yield Part(name, places, rows, self.pairs.select(places, rows), file)


def _files(pairs: Pairs, places: np.ndarray) -> tuple[np.ndarray, tuple[Path, ...]]:
    """(n,) the file each picture is in, and the files; none where pictures lie by themselves."""
    source = pairs.pictures
    if not isinstance(source, TarPictures | RowPictures) or len({one.stem for one in source.files}) < len(source.files):
        return np.zeros(len(places), dtype=np.int64), ()
    return np.maximum.accumulate(np.maximum(source.where[places, 0], 0)), source.files
