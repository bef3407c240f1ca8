"""Milvus: rows in a database of their own, a folder of milvus-lite inside the index, or a server or cluster by address.

One collection a side, named after the index. An item's rows carry numbers that follow from its id (id * each + place),
so rows that were written twice are there once, and rows of items that the index does not know yet (a change that was
killed half-way) are found out by their ids. Filters reach the database as lists of whole numbers and nothing else.
A milvus-lite folder belongs to one process at a time; a server to as many as like.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypedDict

import numpy as np

from matchlight.console import BadInput
from matchlight.files import Json
from matchlight.indexing.engines import NONE, Engine, Place

if TYPE_CHECKING:
    from pymilvus import MilvusClient

MOST = 16_384  # rows that a search may ask for
NARROW = 2_000  # ids up to which their rows are fetched and compared here: a graph with most of it barred misses some
LISTED = 8_192  # ids that are handed over as a list; more are sifted here
LINKS, CARE = 32, 80  # of the graph: links a row, and how many rows are looked at to find them
AT_ONCE = 2_000  # rows inserted together
TOKEN = "MATCHLIGHT_MILVUS_TOKEN"  # of a server that wants one; never stored
DATABASE = "milvus.db"  # a folder of milvus-lite in the index: it changes as it is used, so it is no part of a version


class Found(TypedDict):
    """A row that Milvus found."""

    row: int
    distance: float


class Stored(TypedDict):
    """A row as Milvus holds it."""

    item: int
    vector: list[float]


def connect(address: str) -> MilvusClient:
    """A client of a milvus-lite folder (ends in .db) or of a server."""
    Milvus.check()
    from pymilvus import MilvusClient

    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # errors are reported in one line of ours
    token = os.environ.get(TOKEN, "")
    try:
        with contextlib.suppress(Exception):  # a busy server drops some connections: the next one is taken
            return MilvusClient(address, token=token, timeout=10)
        return MilvusClient(address, token=token, timeout=10)
    except Exception as problem:  # pymilvus, gRPC and milvus-lite have a dozen classes between them
        raise BadInput(_refused(address, problem)) from None


def _refused(address: str, problem: Exception) -> str:
    if "://" in address:
        return f"{address}: no Milvus answers there ({_line(problem)})"
    if (Path(address) / "LOCK").exists():
        return f"{address}: another process has this Milvus folder open; one at a time, or run `milvus-lite server`"
    return f"{address}: Milvus cannot open it ({_line(problem)}); pip install 'matchlight[milvus]' brings milvus-lite"


def _line(problem: Exception) -> str:
    text = " ".join(str(getattr(problem, "message", None) or problem).split())
    return text[:160] or type(problem).__name__


class Milvus(Engine):
    """One collection of one client."""

    in_files: ClassVar[bool] = False
    has_address: ClassVar[bool] = True

    def __init__(self, client: MilvusClient, collection: str, each: int, *, dim: int):
        self.client, self.collection, self.each, self.dim = client, collection, each, dim
        self.templates: bool | None = None  # whether filters may have parameters: tried once

    @classmethod
    def check(cls) -> None:
        """One clear line where pymilvus is not installed."""
        if find_spec("pymilvus") is None:
            raise BadInput("the engine milvus is not installed: pip install 'matchlight[milvus]'")

    @classmethod
    def build(cls, place: Place, ids: np.ndarray, vectors: np.ndarray) -> Milvus:
        """A new collection with these items' vectors (n, each, d); one of that name is replaced."""
        from pymilvus import DataType

        client, collection = connect(_address(place)), place.name
        made = Milvus(client, collection, vectors.shape[1], dim=vectors.shape[-1])
        client.drop_collection(collection)
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field("item", DataType.INT64)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=made.dim)
        index = client.prepare_index_params()
        how = {"M": LINKS, "efConstruction": CARE}
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=how)
        client.create_collection(collection, schema=schema, index_params=index, consistency_level="Strong")
        made.add(ids, vectors)
        return made

    @classmethod
    def open(cls, place: Place, *, each: int, dim: int) -> Milvus:
        """A collection that is there."""
        address, collection = _address(place), place.name
        if "://" not in address and not Path(address).is_dir():
            raise BadInput(f"{address}: no Milvus folder is there; build the index again")
        client = connect(address)
        if not client.has_collection(collection):
            raise BadInput(f"Milvus has no collection {collection!r} any more; build the index again")
        client.load_collection(collection)
        return Milvus(client, collection, each, dim=dim)

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Rows of new items."""
        rows = (np.asarray(ids, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel()
        flat = vectors.reshape(-1, self.dim)
        for start in range(0, len(rows), AT_ONCE):
            part = zip(rows[start : start + AT_ONCE].tolist(), flat[start : start + AT_ONCE], strict=True)
            data = [{"row": row, "item": row // self.each, "vector": one.astype(np.float32)} for row, one in part]
            with self._named("upsert"):
                self.client.upsert(self.collection, data)
        with self._named("flush"):
            self.client.flush(self.collection)

    def remove(self, ids: np.ndarray) -> None:
        """Delete the rows of these items."""
        rows = (np.asarray(ids, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel().tolist()
        for start in range(0, len(rows), AT_ONCE):
            with self._named("delete"):
                self.client.delete(self.collection, ids=rows[start : start + AT_ONCE])

    def search(
        self, queries: np.ndarray, rows: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inner products and ids of the nearest rows."""
        rows = min(rows, MOST)
        if allowed is None:
            return self._arrays(self._lists(queries, rows), rows)
        if len(allowed) <= NARROW:
            return self._compared(queries, rows, allowed.tolist())
        if len(allowed) <= LISTED:
            return self._arrays(self._lists(queries, rows, allowed.tolist()), rows)
        limit = rows
        while True:  # a filter that most items pass: ask for more and sift
            limit = min(MOST, 2 * limit)
            scores, ids = self._arrays(self._lists(queries, limit), limit)
            keep = np.isin(ids, allowed)
            if keep.sum(1).min() >= rows or limit == MOST or (ids == NONE).any():
                return _moved_up(scores, ids, keep, rows)

    def _compared(self, queries: np.ndarray, rows: int, items: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Every row of a few items against the queries, compared here."""
        numbers = (np.array(items, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel().tolist()
        stored: list[Stored] = []
        for start in range(0, len(numbers), AT_ONCE):
            part = numbers[start : start + AT_ONCE]
            with self._named("get"):
                stored += self.client.get(self.collection, ids=part, output_fields=["item", "vector"])
        count = min(rows, len(stored))
        scores = np.full((len(queries), rows), -np.inf, dtype=np.float32)
        ids = np.full((len(queries), rows), NONE, dtype=np.int64)
        if count:
            seen = np.asarray(queries, np.float32) @ np.array([row["vector"] for row in stored], np.float32).T
            best = np.argsort(-seen, axis=1, kind="stable")[:, :count]
            scores[:, :count] = np.take_along_axis(seen, best, 1)
            ids[:, :count] = np.array([row["item"] for row in stored], np.int64)[best]
        return scores, ids

    def _lists(self, queries: np.ndarray, rows: int, items: list[int] | None = None) -> list[list[Found]]:
        if items is not None and self.templates is not False:
            try:
                answer = self._search(queries, rows, care=4, filter="item in {items}", filter_params={"items": items})
                self.templates = True
                return answer
            except Exception:
                if self.templates:
                    raise
                self.templates = False  # milvus-lite knows no parameters
        with self._named("search"):
            if items is None:
                return self._search(queries, rows, care=1)
            return self._search(queries, rows, care=4, filter=f"item in {[int(item) for item in items]}")

    def _search(self, queries: np.ndarray, rows: int, *, care: int, **filters: object) -> list[list[Found]]:
        """Lists of rows; a graph of which much is barred is walked with more care."""
        data = list(np.ascontiguousarray(queries, dtype=np.float32))
        effort = {"params": {"ef": min(2 * MOST, max(128, rows) * care)}}
        how = {"data": data, "limit": rows, "anns_field": "vector", "search_params": effort}
        lists: list[list[Found]] = self.client.search(self.collection, **how, **filters)
        return lists

    def _arrays(self, lists: list[list[Found]], rows: int) -> tuple[np.ndarray, np.ndarray]:
        scores = np.full((len(lists), rows), -np.inf, dtype=np.float32)
        ids = np.full((len(lists), rows), NONE, dtype=np.int64)
        for k, hits in enumerate(lists):
            scores[k, : len(hits)] = [hit["distance"] for hit in hits]
            ids[k, : len(hits)] = [hit["row"] // self.each for hit in hits]
        return scores, ids

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Whatever goes wrong is one line that names the operation."""
        try:
            yield
        except Exception as problem:
            raise BadInput(f"Milvus, {what} on {self.collection}: {_line(problem)}") from None

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(Exception):
            self.client.close()

    @classmethod
    def discard(cls, place: Place) -> None:
        """Delete the collection; one that cannot be reached any more is left."""
        with contextlib.suppress(BadInput):
            client = connect(_address(place))
            if client.has_collection(place.name):
                client.drop_collection(place.name)
            client.close()

    def count(self) -> int:
        """Rows, as the database counts them."""
        with self._named("get_collection_stats"):
            return int(self.client.get_collection_stats(self.collection)["row_count"])

    def describe(self) -> dict[str, Json]:
        """Where the rows are."""
        return {"collection": self.collection}


def _address(place: Place) -> str:
    if place.address is not None:
        return place.address
    if (place.root / DATABASE).is_symlink():
        raise BadInput(f"{place.root / DATABASE}: is a link; put the Milvus folder itself there instead")
    return str(place.root / DATABASE)


def _moved_up(scores: np.ndarray, ids: np.ndarray, keep: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Only what is kept, in the old order, from the left."""
    order = np.argsort(~keep, axis=1, kind="stable")[:, :rows]
    kept = np.take_along_axis(keep, order, 1)
    scores, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)
    return np.where(kept, scores, -np.inf), np.where(kept, ids, NONE)
