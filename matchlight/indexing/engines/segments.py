"""Cells on the disk: rows of 8 bits a number in files that are mapped, so that a search reads the cells it visits only.

A segment is one FAISS file: an inverted file with the cells of `cells.faiss` and some of the rows, numbered through all
segments. Segments are never changed. New rows become a segment of their own, with which the last ones are merged if
they are small: an index to which little is added often has few segments and writes little. Searches see all segments as
one. While an index is built, the rows of one segment are in memory at a time.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Protocol, Self

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.indexing.versions import link_file

CELLS, NAME = "cells.faiss", "segment-*.faiss"
SEGMENT, MOST = 1 << 20, 16  # rows of a segment, and segments of an index that is built, from which on they are larger
MERGED = 2  # a last segment with up to so many times the new rows is merged with them


class Lists(Protocol):
    """Inverted lists of FAISS: the row numbers and codes of each cell."""

    def list_size(self, cell: int) -> int:
        """Rows of a cell."""

    def add_entries(self, cell: int, count: int, ids: object, codes: object) -> int:
        """Append rows to a cell."""

    def get_ids(self, cell: int) -> object:
        """A pointer to row numbers."""

    def get_codes(self, cell: int) -> object:
        """A pointer to codes."""


class Cells(Protocol):
    """What is used of an inverted file of FAISS, which brings no types."""

    d: int
    ntotal: int
    nlist: int
    invlists: Lists

    def add_with_ids(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        """Append rows."""

    def search(self, queries: np.ndarray, rows: int, *, params: object) -> tuple[np.ndarray, np.ndarray]:
        """Products and numbers of the nearest rows, -1 behind the last."""

    def replace_invlists(self, lists: Lists, own: bool) -> None:
        """Search these lists instead."""


def load_faiss() -> ModuleType:
    """The faiss package; one clear line where it is not installed."""
    try:
        import faiss
    except ImportError:
        raise BadInput("the engine faiss is not installed: pip install 'matchlight[search]'") from None
    module: ModuleType = faiss
    return module


def write_index(index: object, path: Path) -> None:
    """A FAISS file, atomically; FAISS's own writer would tell stderr alone that the disk was full when it closed it."""
    faiss = load_faiss()
    with files.replaced(path) as draft, open(draft, "wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))


def read_index(path: Path, *, mapped: bool = False) -> Cells:
    """A FAISS file whose checksum holds; `mapped` leaves its rows on the disk. It names no file outside its folder."""
    faiss = load_faiss()
    flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY | (faiss.IO_FLAG_MMAP if mapped else 0)
    try:
        index: Cells = faiss.read_index(str(path), flags)
    except RuntimeError:
        raise BadInput(f"{path}: FAISS cannot read it; build the index again") from None
    return index


class Segments:
    """Segments of one engine; full ones are written to `room` while it is built; without it they wait for `save`."""

    def __init__(self, cells: Cells, *, room: Path | None = None, size: int = SEGMENT):
        self.cells, self.room, self.size = cells, room, size
        self.nlist, self.ntotal = cells.nlist, 0
        self.stored: list[tuple[Path, Cells]] = []
        self.fresh: Cells | None = None  # rows that no file holds yet
        self._joined: tuple[Cells, list[object]] | None = None  # all segments as one, and what it refers to

    @classmethod
    def open(cls, folder: Path) -> Self:
        """What `save` wrote; no rows are read."""
        made = cls(read_index(folder / CELLS))
        for path in sorted(folder.glob(NAME)):
            made._keep(path)
        made.ntotal = sum(part.ntotal for _, part in made.stored)
        return made

    def _keep(self, path: Path) -> None:
        part = read_index(path, mapped=True)
        if (part.d, part.nlist) != (self.cells.d, self.nlist):
            raise ValueError(f"{path.name} has {part.nlist} cells of {part.d} numbers, {CELLS} {self.nlist}")
        # the thread that searches reads the cells: starting others for it takes longer
        load_faiss().downcast_InvertedLists(part.invlists).prefetch_nthread = 0
        self.stored.append((path, part))
        self._joined = None

    def add(self, rows: np.ndarray) -> None:
        """Append rows, numbered behind the others."""
        self.fresh = self.fresh or _empty_copy(self.cells)
        self.fresh.add_with_ids(rows, np.arange(self.ntotal, self.ntotal + len(rows)))
        self.ntotal += len(rows)
        self._joined = None
        if self.room is not None and self.fresh.ntotal >= self.size:
            self._write(self.room)

    def _write(self, folder: Path) -> None:
        """The rows that no file holds, as the next segment."""
        if self.fresh is None:
            return
        path = folder / NAME.replace("*", f"{len(self.stored):05d}")
        write_index(self.fresh, path)
        self.fresh = None
        self._keep(path)

    def save(self, folder: Path) -> None:
        """All segments into this folder: those of an earlier version are linked, small ones merged with new rows."""
        if not (folder / CELLS).exists():
            write_index(self.cells, folder / CELLS)
        while self.fresh is not None and self.stored and self._is_small(*self.stored[-1], self.fresh.ntotal, folder):
            _pour(self.stored.pop()[1], self.fresh)
        for path, _ in self.stored:
            if path.parent != folder:
                link_file(path, folder / path.name)
        self._write(folder)

    def _is_small(self, path: Path, part: Cells, new: int, folder: Path) -> bool:
        return path.parent != folder and part.ntotal < self.size and part.ntotal <= MERGED * new

    def search(self, queries: np.ndarray, rows: int, *, params: object) -> tuple[np.ndarray, np.ndarray]:
        """Products and numbers of the nearest rows, -1 behind the last."""
        if self._joined is None:
            self._joined = self._join()
        return self._joined[0].search(queries, rows, params=params)

    def _join(self) -> tuple[Cells, list[object]]:
        faiss = load_faiss()
        parts = [part for _, part in self.stored] + ([] if self.fresh is None else [self.fresh])
        if len(parts) == 1:
            return parts[0], []
        lists = [part.invlists for part in parts]
        pointers = faiss.InvertedListsPtrVector()
        for one in lists:
            pointers.push_back(one)
        stack = faiss.HStackInvertedLists(len(lists), pointers.data())
        joined = _empty_copy(self.cells)
        joined.replace_invlists(stack, False)
        joined.ntotal = self.ntotal
        return joined, [stack, pointers, *parts]

    def reset(self) -> None:
        """Let go of the files."""
        self.stored, self.fresh, self._joined, self.ntotal = [], None, None, 0


def _empty_copy(cells: Cells) -> Cells:
    copy: Cells = load_faiss().clone_index(cells)
    return copy


def _pour(source: Cells, target: Cells) -> None:
    """All rows of a segment into one that is in memory."""
    for cell in range(source.nlist):
        if count := source.invlists.list_size(cell):
            lists = source.invlists
            target.invlists.add_entries(cell, count, lists.get_ids(cell), lists.get_codes(cell))
    target.ntotal += source.ntotal
