"""Engines search single vectors: one row a set element, and what comes back says which item each row belongs to.

An engine knows items by their ids and nothing else: what a user filters by is turned into ids before, so that no words
of a user ever reach an engine. `faiss.py` keeps its rows in files of the index, `milvus.py` in a database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matchlight.core import BadInput

ENGINES = ("faiss", "milvus")
NONE = -1  # behind the last row found


class Engine(Protocol):
    """Rows of one side: `each` rows an item, all of one length."""

    each: int

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Rows (n, each, d) of new items."""

    def remove(self, ids: np.ndarray) -> None:
        """Forget these items; ids it does not know are no error."""

    def search(
        self, queries: np.ndarray, rows: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(Q, d) -> inner products (Q, rows) from high to low and ids (Q, rows), NONE behind the last.

        `allowed` are the ids to search among, ascending; None: all there are.
        """

    def save(self, folder: Path) -> None:
        """Write what belongs into the index folder."""

    def close(self) -> None:
        """Let go of files and connections."""

    def describe(self) -> dict[str, Any]:
        """What it is, in a few words and numbers."""


def check_engine(name: str) -> str:
    """The name, if there is such an engine."""
    if name not in ENGINES:
        raise BadInput(f"--engine {name}: {' or '.join(ENGINES)}")
    return name
