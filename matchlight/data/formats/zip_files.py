"""Pictures inside a zip: one look at its table of contents, then each picture is read by its place.

Only stored and deflated files without a password count, with a name below the archive's top. Zips in the zip are not
opened. A file may unpack to a hundred times its size, or 64 MB, at most: pictures are packed already.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.content import Extent
from matchlight.data.formats.decoding import MAX_PIXELS
from matchlight.data.formats.folder_walk import is_hidden
from matchlight.data.formats.safety import MAX_FILE, read_range, safe_name
from matchlight.data.formats.sources import Pictures
from matchlight.pairs import BadPicture

TIMES, LITTLE = 100, 1 << 26  # how much larger a file may be than it is packed, or how large in any case
LOCAL = struct.Struct("<26xHH")  # the head of a packed file: lengths of its name and of what follows it
LOCKED = 1  # the flag of a file with a password


@dataclass
class ZipIndex:
    """The files of a zip in order: name and (place of its head, packed size, size, way), and what is not read."""

    names: list[str] = field(default_factory=list)
    where: list[tuple[int, int, int, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def is_zip(path: Path) -> bool:
    """True if the file begins like a zip."""
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\3\4", b"PK\5\6")


def index(path: Path) -> ZipIndex:
    """Read the table of contents; folders and hidden files are passed over."""
    found = ZipIndex()
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise BadInput(f"{path}: not a zip, or damaged ({str(error)[:60]}); copy it again, or unpack it") from error
    for one in members:
        name = safe_name(one.filename)
        if one.is_dir() or (name is not None and any(map(is_hidden, name.split("/")))):
            continue
        plain = one.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not one.flag_bits & LOCKED
        if name is None or not plain:
            found.refused.append(one.filename)
            continue
        found.names.append(name)
        found.where.append((one.header_offset, one.compress_size, one.file_size, one.compress_type))
    return found


class ZipPictures(Pictures):
    """Pictures inside a zip: `where` is (N, 4): place of the head, packed size, size, stored or deflated."""

    def __init__(self, file: Path, names: Sequence[str], where: np.ndarray, *, max_pixels: int = MAX_PIXELS):
        super().__init__(names, max_pixels=max_pixels)
        self.file = file
        self.where = where

    def read(self, index: int) -> bytes:
        """The picture's file, unpacked."""
        name, (packed, size) = self.names[index], map(int, self.where[index][1:3])
        if size > min(MAX_FILE, max(LITTLE, TIMES * packed)):
            raise BadPicture(f"{name!r}: {packed} bytes that unpack to {size}; no picture is packed so", "too large")
        try:
            return self._unpacked(index)
        except (OSError, struct.error, zlib.error, ValueError) as error:
            raise BadPicture(f"{name!r}: cannot be unpacked from {self.file}; the zip is damaged") from error

    def _unpacked(self, index: int) -> bytes:
        packed, size, way = map(int, self.where[index][1:])
        place = os.open(self.file, os.O_RDONLY)
        try:
            content = read_range(place, self._start(place, index), packed)
        finally:
            os.close(place)
        if way == zipfile.ZIP_DEFLATED:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, size + 1)
        if len(content) != size:
            raise ValueError("its size is not the one promised")
        return content

    def _start(self, place: int, index: int) -> int:
        """Where the bytes of a picture begin, behind the head."""
        head = int(self.where[index][0])
        name, more = LOCAL.unpack(read_range(place, head, LOCAL.size))
        return head + LOCAL.size + int(name) + int(more)

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file."""
        return int(self.where[index][2])

    @property
    def home(self) -> str:
        """The folder of the zip."""
        return os.path.realpath(self.file.parent)

    def extent(self, index: int) -> Extent:
        """Where its packed bytes are."""
        place = os.open(self.file, os.O_RDONLY)
        try:
            return Extent(os.path.realpath(self.file), self._start(place, index), int(self.where[index][1]))
        except struct.error as error:
            raise ValueError(str(error)) from error
        finally:
            os.close(place)

    def take(self, index: np.ndarray) -> ZipPictures:
        """Some of the pictures, in this order."""
        return ZipPictures(self.file, self._taken(index), self.where[index], max_pixels=self.max_pixels)
