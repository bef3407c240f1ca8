"""Stores: one array on the disk with a row a picture, read as a map, whole or by the row.

A store is a folder: the array as `features.npy` or `pixels.npy`, and `meta.json` that says what it is and which rows
are blank because their picture could not be read. `fill.py` writes them.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from matchlight.console import BadInput
from matchlight.data import cache
from matchlight.pairs import FeatureSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor

S = TypeVar("S", bound="Store")


class Store:
    """A read-only memory map with a row a picture; `broken` lists the rows (zeros) whose picture could not be read."""

    what: ClassVar[str] = "features"

    def __init__(self, array: np.ndarray, meta: dict[str, Any], rows: np.ndarray | None = None):
        self.meta, self._map, self._rows = meta, array, rows
        self.shape: tuple[int, ...] = (len(array) if rows is None else len(rows), *array.shape[1:])

    @classmethod
    def open(cls: type[S], folder: str | Path) -> S:
        """A finished store's folder."""
        folder = Path(folder)
        meta = cache.read_json(folder / cache.META)
        if meta is None and (folder / cache.PROGRESS).exists():
            raise BadInput(f"{folder}: this {cls.what} store is unfinished; run the command that made it again")
        if meta is None or meta.get("what") != cls.what:
            raise BadInput(f"{folder}: holds no {cls.what} store ({cls.what}.npy and {cache.META})")
        if not is_whole(folder, meta):
            raise BadInput(f"{folder}: {cls.what}.npy is damaged; delete the folder and extract again")
        return cls(np.load(folder / f"{cls.what}.npy", mmap_mode="r", allow_pickle=False), meta)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def array(self) -> np.ndarray:
        """All rows as stored: the read-only map itself, or a copy where `take` chose some."""
        return self._map if self._rows is None else self._map[self._rows]

    def tensor(self, device: torch.device | str = "cpu") -> Tensor:
        """All rows as stored, in memory."""
        import torch

        return torch.from_numpy(np.array(self.array)).to(device)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows, in this order, in memory."""
        return np.array(self._map[self._places(index)])

    def take(self: S, index: np.ndarray) -> S:
        """A store of these rows alone, in this order; nothing is copied."""
        return type(self)(self._map, self.meta, self._places(index))

    def _places(self, index: np.ndarray) -> np.ndarray:
        index = np.asarray(index)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        return index if self._rows is None else self._rows[index]

    @property
    def broken(self) -> list[int]:
        """Rows whose picture could not be read; they hold zeros."""
        lost = self.meta["broken"]
        return list(lost) if self._rows is None else np.flatnonzero(np.isin(self._rows, lost)).tolist()

    def stamp(self) -> str:
        """Changes when the content does."""
        if self._rows is None:
            return str(self.meta["key"])
        return hashlib.sha256(self.meta["key"].encode() + self._rows.astype("<i8").tobytes()).hexdigest()


class FeatureStore(Store):
    """Features of every picture, (N, cells, dim) or (N, dim), as float16 on the disk: a `FeatureSource`."""

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows, in this order, as float32."""
        return self._map[self._places(index)].astype(np.float32)


class PixelStore(Store):
    """Every picture decoded once to one size: (N, 3, height, width), uint8."""

    what = "pixels"


class GivenFeatures(FeatureStore):
    """Features that came with the data, with a store's manners."""

    def __init__(self, source: FeatureSource):
        self.source, self.meta, self.shape = source, {"broken": []}, tuple(source.shape)

    @property
    def array(self) -> np.ndarray:
        """All rows, read now."""
        return self.source.gather(np.arange(len(self)))

    def gather(self, index: np.ndarray) -> np.ndarray:
        """These rows, in this order."""
        return self.source.gather(np.asarray(index))

    def take(self, index: np.ndarray) -> GivenFeatures:  # type: ignore[override]
        """A store of these rows alone, in this order."""
        return GivenFeatures(self.source.take(index))

    @property
    def broken(self) -> list[int]:
        """None: whoever made the features has seen the pictures."""
        return []

    def stamp(self) -> str:
        """Changes when the content does."""
        return self.source.stamp()


def header(meta: dict[str, Any]) -> bytes:
    """What an .npy file of this store begins with."""
    shape, dtype = tuple(meta["shape"]), np.dtype(meta["dtype"])
    file = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def row_bytes(meta: dict[str, Any]) -> int:
    """Bytes of one row."""
    return int(np.prod(meta["shape"][1:])) * np.dtype(meta["dtype"]).itemsize


def size_of(meta: dict[str, Any]) -> int:
    """Bytes of the whole file."""
    return len(header(meta)) + meta["shape"][0] * row_bytes(meta)


def is_whole(folder: Path, meta: dict[str, Any]) -> bool:
    """Whether the array has the size its description promises."""
    path = folder / f"{meta.get('what')}.npy"
    return path.is_file() and path.stat().st_size == size_of(meta)
