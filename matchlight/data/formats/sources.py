"""Where pictures and features come from: a folder, a place in a tar, bytes in memory, rows of memory-mapped arrays.

Sources hold names and numbers only, never an open file, so they may be pickled into workers and read by many threads.
Whatever goes wrong with one picture is a `BadPicture`, which callers count and skip.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

from matchlight.console import BadInput
from matchlight.data.content import Extent, OnDisk, digest_of
from matchlight.data.formats.decoding import MAX_PIXELS, decode
from matchlight.data.formats.safety import bad_rows, is_inside, load_npy, read_range, read_regular, safe_name
from matchlight.pairs import BadPicture, PictureSource


class Pictures:
    """What all picture sources share: names, the limit of pixels, decoding."""

    def __init__(self, names: Sequence[str], *, max_pixels: int = MAX_PIXELS):
        self.names = names
        self.max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self.names)

    def open(self, index: int) -> Image.Image:
        """The picture as RGB."""
        return decode(self.read(index), self.names[index], max_pixels=self.max_pixels)

    def read(self, index: int) -> bytes:
        """The file as it is."""
        raise NotImplementedError

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file, cheaply; -1 where there is none."""
        raise NotImplementedError

    def extent(self, index: int) -> Extent:
        """Where its bytes are, for pictures in files."""
        raise NotImplementedError

    def stamp(self, index: int) -> str:
        """A digest of its content: copied data sets share what is cached."""
        try:
            place = self.extent(index)
            return digest_of(place) + (f":{place.part}" if place.part else "")
        except (OSError, ValueError):  # BadPicture is a ValueError
            return f"{self.names[index]}:missing"

    def _taken(self, index: np.ndarray) -> list[str]:
        return [self.names[i] for i in index]


class RowPictures(Pictures):
    """Pictures inside the rows of tables: `where` is (N, 2): file, row. A subclass says how a row's bytes are read."""

    def __init__(
        self,
        files: Sequence[Path],
        column: str,
        names: Sequence[str],
        where: np.ndarray,
        *,
        max_pixels: int = MAX_PIXELS,
    ):
        super().__init__(names, max_pixels=max_pixels)
        self.files, self.column, self.where = tuple(files), column, where

    def bytes_at(self, path: Path, row: int) -> bytes | None:
        """The picture inside a row; None where the row has none."""
        raise NotImplementedError

    def _place(self, index: int) -> tuple[Path, int]:
        file, row = (int(value) for value in self.where[index])
        return self.files[file], row

    def read(self, index: int) -> bytes:
        """The file as it is."""
        path, row = self._place(index)
        try:
            value = self.bytes_at(path, row)
        except (OSError, ValueError) as error:  # BadInput is a ValueError
            raise BadPicture(f"{self.names[index]!r}: cannot be read from {path}") from error
        if value is None:
            raise BadPicture(f"{self.names[index]!r}: no bytes in row {row} of {path}", "missing")
        return value

    def size_in_bytes(self, index: int) -> int:
        """Unknown without reading; equal for all, so that all are looked at."""
        return 0

    @property
    def home(self) -> str:
        """The folder of the first file."""
        return os.path.realpath(self.files[0].parent)

    def extent(self, index: int) -> Extent:
        """Its row of a file, which is hashed as a whole: the bytes of a row have no place of their own."""
        path, row = self._place(index)
        return Extent(os.path.realpath(path), part=str(row))

    def take(self, index: np.ndarray) -> Self:
        """Some of the pictures, in this order."""
        return type(self)(self.files, self.column, self._taken(index), self.where[index], max_pixels=self.max_pixels)


class FolderPictures(Pictures):
    """Files below the data folder; `places` says where (None: not found)."""

    def __init__(self, root: Path, names: Sequence[str], places: Sequence[str | None], *, max_pixels: int = MAX_PIXELS):
        super().__init__(names, max_pixels=max_pixels)
        self.root = os.path.realpath(root)
        self.places = places

    def _path(self, index: int) -> str:
        place = self.places[index]
        if place is None:
            raise _absent(self.names[index], self.root)
        path = os.path.join(self.root, place)
        if not is_inside(self.root, path):
            raise BadPicture(f"{self.names[index]!r}: leads out of the data folder; it is not followed", "outside")
        return path

    def read(self, index: int) -> bytes:
        """The file as it is."""
        try:
            return read_regular(self._path(index))
        except FileNotFoundError as error:
            raise _absent(self.names[index], self.root) from error
        except OSError as error:
            raise BadPicture(f"{self.names[index]!r}: cannot be read ({error.strerror or error})") from error

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file."""
        place = self.places[index]
        try:
            return -1 if place is None else os.lstat(os.path.join(self.root, place)).st_size
        except OSError:
            return -1

    @property
    def home(self) -> str:
        """The data folder."""
        return self.root

    def extent(self, index: int) -> Extent:
        """Where its bytes are."""
        return Extent(os.path.realpath(self._path(index)))

    def take(self, index: np.ndarray) -> FolderPictures:
        """Some of the pictures, in this order."""
        places = [self.places[i] for i in index]
        return FolderPictures(Path(self.root), self._taken(index), places, max_pixels=self.max_pixels)


class TarPictures(Pictures):
    """Pictures inside one tar or several: `where` is (N, 3): file, offset, length; file -1 = not found."""

    def __init__(self, files: Sequence[Path], names: Sequence[str], where: np.ndarray, *, max_pixels: int = MAX_PIXELS):
        super().__init__(names, max_pixels=max_pixels)
        self.files = tuple(files)
        self.where = where

    def read(self, index: int) -> bytes:
        """The file as it is."""
        file, offset, size = (int(value) for value in self.where[index])
        if file < 0:
            raise _absent(self.names[index], ", ".join(path.name for path in self.files[:2]))
        try:
            place = os.open(self.files[file], os.O_RDONLY)
            try:
                return read_range(place, offset, size)
            finally:
                os.close(place)
        except OSError as error:
            raise BadPicture(f"{self.names[index]!r}: cannot be read from {self.files[file]} ({error})") from error

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file."""
        return int(self.where[index][2]) if self.where[index][0] >= 0 else -1

    @property
    def home(self) -> str:
        """The folder of the first tar."""
        return os.path.realpath(self.files[0].parent)

    def extent(self, index: int) -> Extent:
        """Where its bytes are."""
        file, offset, size = (int(value) for value in self.where[index])
        if file < 0:
            raise _absent(self.names[index], ", ".join(path.name for path in self.files[:2]))
        return Extent(os.path.realpath(self.files[file]), offset, size)

    def take(self, index: np.ndarray) -> TarPictures:
        """Some of the pictures, in this order."""
        return TarPictures(self.files, self._taken(index), self.where[index], max_pixels=self.max_pixels)


class JoinedPictures(Pictures):
    """Several sources behind each other, as the folders train/ and test/ are."""

    def __init__(self, sources: Sequence[PictureSource], places: np.ndarray | None = None):
        self.sources = tuple(sources)
        starts = np.cumsum([0] + [len(source) for source in self.sources])
        spot = np.arange(starts[-1])
        part = np.searchsorted(starts, spot, side="right") - 1
        self.places = np.stack([part, spot - starts[part]], 1) if places is None else places  # (N, 2): source, place
        names = [getattr(source, "names", None) or list(map(str, range(len(source)))) for source in self.sources]
        limit = min((getattr(source, "max_pixels", MAX_PIXELS) for source in self.sources), default=MAX_PIXELS)
        super().__init__([names[part][spot] for part, spot in self.places.tolist()], max_pixels=limit)

    def _of(self, index: int) -> tuple[PictureSource, int]:
        part, place = self.places[index].tolist()
        return self.sources[part], place

    def read(self, index: int) -> bytes:
        """The file as it is."""
        source, place = self._of(index)
        return source.read(place)

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file, where its source can tell."""
        source, place = self._of(index)
        return source.size_in_bytes(place) if isinstance(source, Pictures) else 0

    @property
    def home(self) -> str:
        """The folder of the first source that has one."""
        return next((source.home for source in self.sources if isinstance(source, OnDisk)), "")

    def extent(self, index: int) -> Extent:
        """Where its bytes are."""
        source, place = self._of(index)
        if not isinstance(source, OnDisk):
            raise ValueError("not in a file")
        return source.extent(place)

    def stamp(self, index: int) -> str:
        """As its source says."""
        source, place = self._of(index)
        return source.stamp(place)

    def take(self, index: np.ndarray) -> JoinedPictures:
        """Some of the pictures, in this order."""
        return JoinedPictures(self.sources, self.places[index])


class BytePictures(Pictures):
    """Picture files held in memory."""

    def __init__(self, names: Sequence[str], blobs: Sequence[bytes | None], *, max_pixels: int = MAX_PIXELS):
        super().__init__(names, max_pixels=max_pixels)
        self.blobs = blobs

    def read(self, index: int) -> bytes:
        """The file as it is."""
        blob = self.blobs[index]
        if blob is None:
            raise _absent(self.names[index], "memory")
        return blob

    def size_in_bytes(self, index: int) -> int:
        """Bytes of the file."""
        blob = self.blobs[index]
        return -1 if blob is None else len(blob)

    def stamp(self, index: int) -> str:
        """A digest of the bytes."""
        return hashlib.blake2b(self.blobs[index] or b"", digest_size=16).hexdigest()

    def take(self, index: np.ndarray) -> BytePictures:
        """Some of the pictures, in this order."""
        return BytePictures(self._taken(index), [self.blobs[i] for i in index], max_pixels=self.max_pixels)


def _absent(name: str, where: str) -> BadPicture:
    if safe_name(name) is None:
        return BadPicture(f"{name!r}: leads out of the data folder; it is not followed", "outside")
    return BadPicture(f"{name!r}: no such picture in {where}", "missing")


@lru_cache(maxsize=64)
def _mapped(path: str, changed: int) -> np.ndarray:
    """One mapping a file and process; `changed` is part of the key so that a rewritten file is mapped afresh."""
    return load_npy(Path(path))


class FeatureFiles:
    """Some rows of files of features laid end to end: what tells them apart from others, and where they are."""

    files: tuple[Path, ...]
    rows: np.ndarray  # in use, among all of all files

    def __len__(self) -> int:
        return len(self.rows)

    def stamp(self) -> str:
        """Names, lengths, times of change and the rows in use."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.rows).tobytes(), digest_size=16)
        for file in self.files:
            about = file.stat()
            digest.update(f"{file.name}:{about.st_size}:{about.st_mtime_ns};".encode())
        return digest.hexdigest()

    @property
    def home(self) -> str:
        """The folder of the first file."""
        return os.path.realpath(self.files[0].parent)

    def extents(self) -> list[Extent]:
        """Where the files are."""
        return [Extent(os.path.realpath(file)) for file in self.files]


class NpyFeatures(FeatureFiles):
    """Rows of memory-mapped .npy files laid end to end, read as float32 when asked for."""

    def __init__(self, files: Sequence[Path], rows: np.ndarray | None = None):
        self.files = tuple(Path(file) for file in files)
        arrays = [self._array(part) for part in range(len(self.files))]
        tails = {array.shape[1:] for array in arrays}
        if len(tails) > 1 or arrays[0].ndim not in (2, 3):
            shapes = ", ".join(f"{file.name} {array.shape}" for file, array in zip(self.files, arrays, strict=True))
            raise BadInput(
                f"{self.files[0].parent}: features need one shape (n, regions, dim) or (n, dim); found {shapes}"
            )
        self.starts = np.cumsum([0] + [len(array) for array in arrays])
        self.rows = np.arange(self.starts[-1]) if rows is None else rows
        self.shape: tuple[int, ...] = (len(self.rows), *arrays[0].shape[1:])

    def _array(self, part: int) -> np.ndarray:
        path = self.files[part]
        return _mapped(str(path), path.stat().st_mtime_ns)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows as float32; a row with NaN or infinite values is refused by file and row."""
        wanted = self.rows[index]
        part_of = np.searchsorted(self.starts, wanted, side="right") - 1
        out = np.empty((len(wanted), *self.shape[1:]), dtype=np.float32)
        for part in np.unique(part_of):
            mine = part_of == part
            out[mine] = self._array(int(part))[wanted[mine] - self.starts[part]]
        bad = bad_rows(out)
        if len(bad):
            part = int(part_of[bad[0]])
            row = int(wanted[bad[0]] - self.starts[part])
            raise BadInput(f"{self.files[part]}: row {row} holds NaN or infinite values; repair or drop that picture")
        return out

    def take(self, index: np.ndarray) -> NpyFeatures:
        """Some of the rows, in this order."""
        return NpyFeatures(self.files, self.rows[index])


class ArrayFeatures:
    """Features held in memory."""

    def __init__(self, array: np.ndarray, where: str = "features"):
        self.array = array
        self.where = where
        self.shape: tuple[int, ...] = tuple(array.shape)

    def __len__(self) -> int:
        return len(self.array)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows as float32."""
        out = np.asarray(self.array[index], dtype=np.float32)
        bad = bad_rows(out)
        if len(bad):
            raise BadInput(f"{self.where}: row {int(np.asarray(index)[bad[0]])} holds NaN or infinite values")
        return out

    def stamp(self) -> str:
        """A digest of the values."""
        return hashlib.blake2b(np.ascontiguousarray(self.array).data, digest_size=16).hexdigest()

    def take(self, index: np.ndarray) -> ArrayFeatures:
        """Some of the rows, in this order."""
        return ArrayFeatures(self.array[index], self.where)
