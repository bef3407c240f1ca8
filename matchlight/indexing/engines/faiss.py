"""FAISS in this process: the default engine. Exact while that is quick, then a graph, then an inverted file.

    rows up to 20,000     flat: every row is compared
    rows up to 50,000     HNSW: a graph of near neighbours, 32 links a row
    rows up to 500,000    IVF: rows in 2 sqrt(rows) cells, the nearest few of which are searched
    more                  the same on the disk (`segments.py`): memory holds the centres of the cells, and no rows

Rows are held in half precision, on the disk in 8 bits a number: they only propose, the true similarity decides. Nothing
is taken out of a FAISS file: items that were removed are barred from every search, like those that a filter bars, until
the index is packed anew. A file is only opened after its checksum was found to hold, since FAISS trusts what it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from matchlight import files
from matchlight.files import Json
from matchlight.indexing.engines import NONE, Engine, Place
from matchlight.indexing.engines.segments import MOST, SEGMENT, Segments, load_faiss, read_index, write_index

KINDS = ("flat", "graph", "cells", "disk")
FLAT, GRAPH, MEMORY = 20_000, 50_000, 500_000  # rows up to which the kinds but the last are used
LINKS, CARE = 32, 80  # of the graph: links a row, and how many rows are looked at to find them
POINTS, ROUNDS = 48, 8  # of the cells: rows a cell to learn from, rounds of k-means
EFFORTS = (32, 64, 128, 256, 512, 1024, 2048)  # rows looked at (graph) or cells (divided by 8)
ENOUGH = 0.995  # share of the true nearest rows that the chosen effort finds
AT_ONCE = 65_536  # rows
NARROW = 0.3  # share of rows that pass a filter, below which a graph is not walked
FEW = 64  # queries up to which one thread is faster than several that wait for each other


class Rows(Protocol):
    """What is used of an index of FAISS, which brings no types; a graph has `storage`, cells have `nlist`."""

    ntotal: int
    nlist: int
    storage: Rows

    def add(self, rows: np.ndarray) -> None:
        """Append rows."""

    def search(self, queries: np.ndarray, rows: int, *, params: object) -> tuple[np.ndarray, np.ndarray]:
        """Products and places of the nearest rows, -1 behind the last."""

    def reset(self) -> None:
        """Free the rows."""


def kind_for(rows: int) -> str:
    """Which kind of index is quick for so many rows."""
    return next((kind for kind, most in zip(KINDS, (FLAT, GRAPH, MEMORY), strict=False) if rows <= most), KINDS[-1])


def _empty(kind: str, flat: np.ndarray, room: Path | None) -> Rows | Segments:
    """An index without rows, taught what these rows are like; one on the disk is written to `room` as it grows."""
    faiss, dim = load_faiss(), flat.shape[1]
    cells = max(1, min(int(2 * len(flat) ** 0.5), len(flat) // 4))
    sample = flat[:: max(1, len(flat) // (POINTS * cells))].astype(np.float32)
    half, inner = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    byte = faiss.ScalarQuantizer.QT_8bit
    if kind == "flat":
        index = faiss.IndexScalarQuantizer(dim, half, inner)
    elif kind == "graph":
        index = faiss.IndexHNSWSQ(dim, half, LINKS, inner)
        index.hnsw.efConstruction = CARE
    else:
        width = byte if kind == "disk" else half
        index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dim), dim, cells, width, inner)
        index.cp.niter, index.cp.max_points_per_centroid = ROUNDS, POINTS
        index.cp.min_points_per_centroid = 1  # else FAISS complains on stderr
    index.train(sample)
    if kind == "disk":
        return Segments(index, room=room, size=max(SEGMENT, len(flat) // MOST))
    made: Rows = index
    return made


@dataclass(frozen=True)
class Left:
    """The rows that a search may find."""

    share: float
    bits: np.ndarray | None  # a bit a row; None: all

    @staticmethod
    def of(items: np.ndarray, each: int) -> Left:
        """The rows of these items (N,)."""
        if items.all():
            return Left(1.0, None)
        return Left(float(items.mean()), np.packbits(np.repeat(items, each), bitorder="little"))


class Faiss(Engine):
    """Rows in the order of their items; row r belongs to item `ids[r // each]`."""

    def __init__(self, index: Rows | Segments, ids: np.ndarray, each: int, *, kind: str, effort: int = 0):
        self.index, self.ids, self.each, self.kind, self.effort = index, ids, each, kind, effort
        self.dead = np.zeros(len(ids), dtype=bool)
        self._left: Left | None = None  # what is not dead, until that changes

    @classmethod
    def check(cls) -> None:
        """One clear line where FAISS is not installed."""
        load_faiss()

    @classmethod
    def build(cls, place: Place, ids: np.ndarray, vectors: np.ndarray) -> Faiss:
        """An engine of these items; but for cells on the disk, in memory until it is saved."""
        return cls.of(ids, vectors, room=place.folder)

    @staticmethod
    def of(ids: np.ndarray, vectors: np.ndarray, *, kind: str | None = None, room: Path | None = None) -> Faiss:
        """An engine of these items, vectors (n, each, d); the kind follows from the number of rows."""
        flat = vectors.reshape(-1, vectors.shape[-1])
        kind = kind or kind_for(len(flat))
        made = Faiss(_empty(kind, flat, room), np.asarray(ids, dtype=np.int64), vectors.shape[1], kind=kind)
        made._append(flat)
        made.effort = made._effort_for(flat)
        return made

    def _append(self, flat: np.ndarray) -> None:
        for start in range(0, len(flat), AT_ONCE):  # so that rows in half precision are never all there in single
            self.index.add(np.ascontiguousarray(flat[start : start + AT_ONCE], dtype=np.float32))

    def _effort_for(self, flat: np.ndarray, *, queries: int = 48, near: int = 100) -> int:
        """The least effort that finds nearly all of the true nearest rows of a few of its own rows."""
        if self.kind == "flat":
            return 0
        some = np.sort(np.random.default_rng(0).choice(len(flat), min(queries, len(flat)), replace=False))
        sample, near = flat[some].astype(np.float32), min(near, len(flat))
        exact = np.full((len(some), near), -np.inf, dtype=np.float32)
        for start in range(0, len(flat), AT_ONCE):  # the highest so far
            seen = np.concatenate([exact, sample @ flat[start : start + AT_ONCE].astype(np.float32).T], 1)
            exact = np.partition(seen, -near, axis=1)[:, -near:]
        edge = exact.min(1, keepdims=True) - 1e-3  # half precision moves close rivals
        for effort in EFFORTS:
            places = self._nearest(sample, near, None, effort)[1]
            found = flat[np.maximum(places, 0).ravel()].astype(np.float32).reshape(*places.shape, -1)
            hit = np.einsum("qd,qnd->qn", sample, found) >= edge
            if (hit & (places >= 0)).mean() >= ENOUGH:
                break
        return effort

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Rows of new items, behind the others; their ids must be higher."""
        if len(self.ids) and ids.min() <= self.ids[-1]:
            raise ValueError("ids of new items must be higher than those of old ones")
        self._append(vectors.reshape(-1, vectors.shape[-1]))
        self.ids = np.concatenate([self.ids, np.asarray(ids, dtype=np.int64)])
        self.dead = np.concatenate([self.dead, np.zeros(len(ids), dtype=bool)])
        self._left = None

    def remove(self, ids: np.ndarray) -> None:
        """Bar these items from every search."""
        self.dead |= np.isin(self.ids, ids)
        self._left = None

    def search(
        self, queries: np.ndarray, rows: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inner products and ids of the nearest rows."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        self._left = self._left or Left.of(~self.dead, self.each)
        left = self._left if allowed is None else Left.of(self._known(allowed) & ~self.dead, self.each)
        rows = min(rows, self.index.ntotal)
        scores, places = self._nearest(queries, rows, left, self.effort)
        return scores, np.where(places < 0, NONE, self.ids[np.maximum(places, 0) // self.each])

    def _known(self, allowed: np.ndarray) -> np.ndarray:
        """(N,) which items are among these ids; both ascend."""
        keep = np.zeros(len(self.ids), dtype=bool)
        spot = np.searchsorted(self.ids, allowed).clip(max=len(self.ids) - 1)
        keep[spot[self.ids[spot] == allowed]] = True
        return keep

    def _nearest(self, queries: np.ndarray, rows: int, left: Left | None, effort: int) -> tuple[np.ndarray, np.ndarray]:
        share = 1.0 if left is None else left.share
        faiss = load_faiss()
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1 if len(queries) <= FEW else threads)
        try:
            chosen = None if left is None or left.bits is None else faiss.IDSelectorBitmap(left.bits)
            # a graph with most of it barred misses some: compare them all
            if self.kind == "graph" and share < NARROW and not isinstance(self.index, Segments):
                return self.index.storage.search(queries, rows, params=faiss.SearchParameters(sel=chosen))
            how = self._parameters(rows, chosen, int(effort / max(share, 1e-6)))
            return self.index.search(queries, rows, params=how)
        finally:
            faiss.omp_set_num_threads(threads)

    def _parameters(self, rows: int, chosen: object, effort: int) -> object:
        faiss = load_faiss()
        if self.kind == "graph":
            return faiss.SearchParametersHNSW(sel=chosen, efSearch=max(effort, rows))
        if self.kind in ("cells", "disk"):
            return faiss.SearchParametersIVF(sel=chosen, nprobe=min(self.index.nlist, max(1, effort // 8)))
        return faiss.SearchParameters(sel=chosen)

    def save(self, folder: Path) -> None:
        """The FAISS file, the ids beside it, and what else is needed to search."""
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.index, Segments):
            self.index.save(folder)
        else:
            write_index(self.index, folder / "rows.faiss")
        files.write_array(folder / "ids.npy", np.stack([self.ids, self.dead.astype(np.int64)]))
        files.write_json(folder / "engine.json", {"each": self.each, "kind": self.kind, "effort": self.effort})

    @classmethod
    def open(cls, place: Place, *, each: int, dim: int) -> Faiss:
        """What `save` wrote, in an index whose checksums hold."""
        folder = place.folder
        about = files.read_json(folder / "engine.json", "an engine of an index")
        ids, dead = np.load(folder / "ids.npy", allow_pickle=False)
        if ids.dtype != np.int64 or ids.ndim != 1:
            raise ValueError(f"ids.npy holds {ids.dtype}, {ids.ndim + 1} axes")
        kind, effort = about["kind"], about["effort"]
        if type(effort) is not int or effort < 0 or kind not in KINDS:
            raise ValueError(f"engine.json says kind {str(kind)[:20]!r}, effort {str(effort)[:20]}")
        index = Segments.open(folder) if kind == "disk" else cast(Rows, read_index(folder / "rows.faiss"))
        if index.ntotal != each * len(ids):
            raise ValueError(f"{index.ntotal} rows for {len(ids)} items of {each}")
        engine = Faiss(index, ids, each, kind=kind, effort=effort)
        engine.dead = dead.astype(bool)
        return engine

    def close(self) -> None:
        """Free the rows."""
        self.index.reset()

    def count(self) -> int:
        """Rows, those of removed items too."""
        return int(self.index.ntotal)

    def describe(self) -> dict[str, Json]:
        """Its kind and how much of it is looked at."""
        return {"kind": self.kind, "effort": self.effort}
