"""Engines search single vectors: one row a set element, and what comes back says which item each row belongs to.

An engine knows items by their ids and nothing else: what a user filters by is turned into ids before, so that no words
of a user ever reach an engine. `faiss.py` keeps its rows in files of the index (many in those of `segments.py`),
`milvus.py` in a database.

Another package adds an engine by an entry point, and `matchlight index RUN --engine sea` then uses it:

    [project.entry-points."matchlight.engines"]
    sea = "my_package:Sea"                              # a subclass of `Engine`

The abstract methods below are what it has to write; docs/extending.md shows a complete one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from matchlight import plugins
from matchlight.console import BadInput
from matchlight.files import Json

NONE = -1  # behind the last row found


@dataclass(frozen=True)
class Place:
    """Where an engine keeps the rows of one side (pictures or captions) of one version of an index."""

    folder: Path  # its own in the version: what is written there is checksummed, and removed with the version
    root: Path  # the folder of the whole index, which outlives its versions: for a database NAME.db beside them
    name: str  # that no other side and no other version has: what a table or a collection can be called
    address: str | None = None  # of a server, as the user gave it


class Engine(ABC):
    """Rows of one side of an index: `each` rows an item, all of one length, float32, compared by inner product.

    The index calls `check`, `build`, `remove` for items that are not there any more, `save`, and `search`; later `open`
    and `search`. To change an engine `in_files`, the index opens it once more, adds or removes, and saves it into the
    folder of the next version. A database is changed as it is: items are removed after the switch to the next version.
    """

    in_files: ClassVar[bool] = True  # all of it is in `Place.folder`; False: a database, which all versions share
    has_address: ClassVar[bool] = False  # `--address` says where it is
    each: int  # rows an item

    @classmethod  # noqa: B027  (most have nothing to say)
    def check(cls) -> None:
        """Raise BadInput, one line, where something is not installed; called before anything slow."""

    @classmethod
    @abstractmethod
    def build(cls, place: Place, ids: np.ndarray, vectors: np.ndarray) -> Self:
        """An engine of these items: ids (n,) ascending, vectors (n, each, d) in half precision."""

    @classmethod
    @abstractmethod
    def open(cls, place: Place, *, each: int, dim: int) -> Self:
        """What was built or saved there."""

    @abstractmethod
    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Rows (n, each, d) of new items, whose ids are higher than all before."""

    @abstractmethod
    def remove(self, ids: np.ndarray) -> None:
        """Forget these items; ids it does not know are no error."""

    @abstractmethod
    def search(
        self, queries: np.ndarray, rows: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(Q, d) -> inner products (Q, rows) from high to low and ids (Q, rows), NONE behind the last.

        `allowed` are the ids to search among, ascending; None: all there are.
        """

    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    def save(self, folder: Path) -> None:  # noqa: B027
        """Write what belongs into the index folder; a database has nothing to write there."""

    def close(self) -> None:  # noqa: B027
        """Let go of files and connections."""

    @classmethod  # noqa: B027
    def discard(cls, place: Place) -> None:
        """Delete what a version that was replaced left outside of its folder; only asked of databases."""

    def describe(self) -> dict[str, Json]:
        """What it is, in a few words and numbers beside `engine` and `rows`."""
        return {}


def engine_class(name: str) -> type[Engine]:
    """The engine of this name, ours or of an installed package."""
    names = plugins.names("engines")
    if name not in names:
        raise BadInput(f"--engine {name}: {' or '.join(names)}")
    loaded = plugins.load("engines", name)
    if not (isinstance(loaded, type) and issubclass(loaded, Engine)):
        where = plugins.found("engines")[name]
        raise BadInput(f"--engine {name}: {where.address} of {where.package} is no matchlight.indexing.engines.Engine")
    return loaded
