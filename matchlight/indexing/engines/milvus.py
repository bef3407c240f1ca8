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
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.core import BadInput
from matchlight.indexing.engines import NONE

MOST = 16_384  # rows that a search may ask for
NARROW = 2_000  # ids up to which their rows are fetched and compared here: a graph with most of it barred misses some
LISTED = 8_192  # ids that are handed over as a list; more are sifted here
LINKS, CARE = 32, 80  # of the graph: links a row, and how many rows are looked at to find them
AT_ONCE = 2_000  # rows inserted together
TOKEN = "MATCHLIGHT_MILVUS_TOKEN"  # of a server that wants one; never stored


def connect(address: str) -> Any:
    """A client of a milvus-lite folder (ends in .db) or of a server."""
    try:
        from pymilvus import MilvusClient
    except ImportError:
        raise BadInput("the engine milvus is not installed: pip install 'matchlight[milvus]'") from None
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what goes wrong is told in a line of ours
    try:
        return MilvusClient(address, token=os.environ.get(TOKEN, ""), timeout=20)
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


class Milvus:
    """One collection of one client."""

    def __init__(self, client: Any, collection: str, each: int, *, dim: int):
        self.client, self.collection, self.each, self.dim = client, collection, each, dim
        self.templates: bool | None = None  # whether filters may have parameters: asked once

    @staticmethod
    def build(client: Any, collection: str, ids: np.ndarray, vectors: np.ndarray) -> Milvus:
        """A new collection with these items' vectors (n, each, d); one of that name is replaced."""
        from pymilvus import DataType

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

    @staticmethod
    def open(client: Any, collection: str, each: int, *, dim: int) -> Milvus:
        """A collection that is there."""
        if not client.has_collection(collection):
            raise BadInput(f"Milvus has no collection {collection!r} any more; build the index again")
        client.load_collection(collection)
        return Milvus(client, collection, each, dim=dim)

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Rows of new items."""
        rows = (np.asarray(ids, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel()
        flat = np.ascontiguousarray(vectors.reshape(-1, self.dim), dtype=np.float32)
        for start in range(0, len(rows), AT_ONCE):
            part = range(start, min(start + AT_ONCE, len(rows)))
            data = [{"row": int(rows[k]), "item": int(rows[k]) // self.each, "vector": flat[k]} for k in part]
            self._do("upsert", self.collection, data)
        self._do("flush", self.collection)

    def remove(self, ids: np.ndarray) -> None:
        """Delete the rows of these items."""
        rows = (np.asarray(ids, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel().tolist()
        for start in range(0, len(rows), AT_ONCE):
            self._do("delete", self.collection, ids=rows[start : start + AT_ONCE])

    def search(
        self, queries: np.ndarray, rows: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inner products and ids of the nearest rows."""
        rows = min(rows, MOST)
        if allowed is None:
            return self._arrays(self._ask(queries, rows), rows)
        if len(allowed) <= NARROW:
            return self._compared(queries, rows, allowed.tolist())
        if len(allowed) <= LISTED:
            return self._arrays(self._ask(queries, rows, allowed.tolist()), rows)
        asked = rows
        while True:  # a filter that most items pass: ask for more and sift
            asked = min(MOST, 2 * asked)
            scores, ids = self._arrays(self._ask(queries, asked), asked)
            keep = np.isin(ids, allowed)
            if keep.sum(1).min() >= rows or asked == MOST or (ids == NONE).any():
                return _moved_up(scores, ids, keep, rows)

    def _compared(self, queries: np.ndarray, rows: int, items: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Every row of a few items against the queries, compared here."""
        numbers = (np.array(items, dtype=np.int64)[:, None] * self.each + np.arange(self.each)).ravel().tolist()
        found = []
        for start in range(0, len(numbers), AT_ONCE):
            part = numbers[start : start + AT_ONCE]
            found += self._do("get", self.collection, ids=part, output_fields=["item", "vector"])
        count = min(rows, len(found))
        scores = np.full((len(queries), rows), -np.inf, dtype=np.float32)
        ids = np.full((len(queries), rows), NONE, dtype=np.int64)
        if count:
            seen = np.asarray(queries, np.float32) @ np.array([row["vector"] for row in found], np.float32).T
            best = np.argsort(-seen, axis=1, kind="stable")[:, :count]
            scores[:, :count] = np.take_along_axis(seen, best, 1)
            ids[:, :count] = np.array([row["item"] for row in found], np.int64)[best]
        return scores, ids

    def _ask(self, queries: np.ndarray, rows: int, items: list[int] | None = None) -> Any:
        data = [query for query in np.ascontiguousarray(queries, dtype=np.float32)]
        effort = {"params": {"ef": min(2 * MOST, max(128, rows) * (1 if items is None else 4))}}
        options: dict[str, Any] = {"data": data, "limit": rows, "anns_field": "vector", "search_params": effort}
        if items is None:
            return self._do("search", self.collection, **options)
        if self.templates is not False:
            try:
                found = self.client.search(
                    self.collection, filter="item in {items}", filter_params={"items": items}, **options
                )
                self.templates = True
                return found
            except Exception:
                if self.templates:
                    raise
                self.templates = False  # milvus-lite knows no parameters
        return self._do("search", self.collection, filter=f"item in {[int(item) for item in items]}", **options)

    def _arrays(self, found: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
        scores = np.full((len(found), rows), -np.inf, dtype=np.float32)
        ids = np.full((len(found), rows), NONE, dtype=np.int64)
        for k, hits in enumerate(found):
            scores[k, : len(hits)] = [hit["distance"] for hit in hits]
            ids[k, : len(hits)] = [hit["row"] // self.each for hit in hits]
        return scores, ids

    def _do(self, what: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self.client, what)(*arguments, **options)
        except Exception as problem:
            raise BadInput(f"Milvus, {what} on {self.collection}: {_line(problem)}") from None

    def save(self, folder: Path) -> None:
        """Nothing: the rows are in the database."""

    def drop(self) -> None:
        """Delete the collection."""
        with contextlib.suppress(Exception):
            self.client.drop_collection(self.collection)

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(Exception):
            self.client.close()

    def describe(self) -> dict[str, Any]:
        """Where the rows are, and how many."""
        count = self._do("get_collection_stats", self.collection)
        return {"engine": "milvus", "collection": self.collection, "rows": int(count["row_count"])}


def _moved_up(scores: np.ndarray, ids: np.ndarray, keep: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Only what is kept, in the old order, from the left."""
    order = np.argsort(~keep, axis=1, kind="stable")[:, :rows]
    kept = np.take_along_axis(keep, order, 1)
    scores, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)
    return np.where(kept, scores, -np.inf), np.where(kept, ids, NONE)
