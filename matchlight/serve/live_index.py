"""The index in use; a new one is loaded beside it and takes its place in one step; the old one closes when unused.

`matchlight index` switches a small file when a new version is complete; that file is what is watched. A version that
cannot be loaded leaves the old one answering.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matchlight.console import say
from matchlight.serve.counters import Metrics

SWITCH = "CURRENT"


@dataclass
class Held:
    """One loaded index, who uses it, and what was worked out about it."""

    index: Any
    number: int  # grows with every reload; pictures are cached by it
    users: int = 0
    retired: bool = False
    about: dict[str, Any] = field(default_factory=dict)


class Holder:
    """Gives the index to whoever asks, and exchanges it."""

    def __init__(self, path: Path, load: Callable[[Path], Any], metrics: Metrics):
        self.path, self.load, self.metrics = path, load, metrics
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._stamp = self.stamp()
        self._now = Held(load(path), 1)

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes when the index does."""
        try:
            about = (self.path / SWITCH).stat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_ino, about.st_size

    @contextmanager
    def use(self) -> Iterator[Held]:
        """The index of this moment, kept open until the block ends."""
        with self._lock:
            held = self._now
            held.users += 1
        try:
            yield held
        finally:
            with self._lock:
                held.users -= 1
                over = held.retired and not held.users
            if over:
                _close(held.index)

    def reload(self) -> bool:
        """Exchange the index if its folder has a new one; True if it did."""
        stamp = self.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        try:
            index = self.load(self.path)
        except Exception as problem:  # whatever is wrong with the new one, the old one goes on
            self._stamp, self.problem = stamp, str(problem)
            self.metrics.reloads["failed"] += 1
            say(f"{self.path}: the new index cannot be used, the old one stays: {problem}")
            return False
        with self._lock:
            old, self._now = self._now, Held(index, self._now.number + 1)
            old.retired, over = True, not old.users
            self._stamp, self.problem = stamp, None
        self.metrics.reloads["done"] += 1
        say(f"{self.path}: new index in use")
        if over:
            _close(old.index)
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
            _close(self._now.index)


def _close(index: Any) -> None:
    if hasattr(index, "close"):
        index.close()
