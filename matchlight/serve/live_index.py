"""The index in use; a new one is loaded beside it and takes its place in one step; the old one closes when unused.

`matchlight index` switches a small file when a new version is complete; that file is what is watched. A version that
cannot be loaded leaves the old one answering.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from matchlight.console import say
from matchlight.data.cells import spellings
from matchlight.serve.counters import Counters

if TYPE_CHECKING:
    from matchlight.indexing import Index
    from matchlight.indexing.index import ItemInfo
    from matchlight.indexing.origins import Origin
    from matchlight.serve.schemas import Map

SWITCH = "CURRENT"


@dataclass
class LoadedIndex:
    """One loaded index, how many use it, and what was computed about it once."""

    index: Index
    number: int  # grows with every reload; pictures are cached by it
    users: int = 0
    retired: bool = False
    filters: dict[str, dict[str, int]] | None = None  # what it can be filtered by, and how many pictures each leaves
    map: Map | None = None
    suspects: frozenset[int] | None = None  # pictures of which the audit flagged a pair

    @cached_property
    def ids_by_name(self) -> dict[str, list[int]]:
        """Picture name -> the ids of all pictures called so."""
        found: dict[str, list[int]] = {}
        for id in self.index.ids.tolist():
            found.setdefault(self.index.item(id)["name"], []).append(id)
        return found

    @cached_property
    def captions_by_row(self) -> dict[int, tuple[int, str]]:
        """Row -> (picture, caption) of every caption in the index."""
        items = ((id, captions_of(self.index.item(id))) for id in self.index.ids.tolist())
        return {row: (id, text) for id, captions in items for row, text in captions}

    def picture_of(self, name: str | None, row: int | None, origin: Origin) -> int | None:
        """The picture that a row of the data belongs to; None if the index does not have it.

        Names may repeat, so a name counts only where no row is known, or the index does not know its data, and only
        if one picture alone has it.
        """
        found = None if row is None else self.captions_by_row.get(origin.rows.start + row)
        if found is not None and (origin.known or name in spellings(self.index.item(found[0])["name"])):
            return found[0] if origin.rows.start + (row or 0) in origin.rows else None
        named = self.ids_by_name.get(name or "", ())
        return named[0] if len(named) == 1 and (row is None or not origin.known) else None


def captions_of(item: ItemInfo) -> list[tuple[int, str]]:
    """(row, caption) of an item of the index."""
    return [(one["row"], one["caption"]) for one in item["captions"]]


class LiveIndex:
    """Gives the index to whoever asks, and exchanges it."""

    def __init__(self, path: Path, load: Callable[[Path], Index], counters: Counters):
        self.path, self.load, self.counters = path, load, counters
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._stamp = self.stamp()
        self._now = LoadedIndex(load(path), 1)

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes when the index does."""
        try:
            about = (self.path / SWITCH).stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_ino, about.st_size

    @contextmanager
    def use(self) -> Iterator[LoadedIndex]:
        """The index of this moment, kept open until the block ends."""
        with self._lock:
            loaded = self._now
            loaded.users += 1
        try:
            yield loaded
        finally:
            with self._lock:
                loaded.users -= 1
                over = loaded.retired and not loaded.users
            if over:
                loaded.index.close()

    def reload(self) -> bool:
        """Exchange the index if its folder has a new one; True if it did."""
        stamp = self.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        try:
            index = self.load(self.path)
        except Exception as problem:  # whatever is wrong with the new one, the old one goes on
            self._stamp, self.problem = stamp, str(problem)
            self.counters.reloads["failed"] += 1
            say(f"{self.path}: the new index cannot be used, the old one stays: {problem}")
            return False
        with self._lock:
            old, self._now = self._now, LoadedIndex(index, self._now.number + 1)
            old.retired, over = True, not old.users
            self._stamp, self.problem = stamp, None
        self.counters.reloads["done"] += 1
        say(f"{self.path}: new index in use")
        if over:
            old.index.close()
        return True

    async def watch(self, seconds: float, warm: Callable[[], None]) -> None:
        """Warm up, then look for a new index every so often, for ever."""
        await asyncio.to_thread(warm)
        while True:
            await asyncio.sleep(seconds)
            if await asyncio.to_thread(self.reload):
                await asyncio.to_thread(warm)

    def close(self) -> None:
        """Close the index once nobody uses it."""
        with self._lock:
            self._now.retired, over = True, not self._now.users
        if over:
            self._now.index.close()
