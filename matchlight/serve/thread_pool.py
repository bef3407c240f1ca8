"""How many requests the model works on at once: a few threads, a queue of limited length before them, a time limit.

The event loop stays free, so that pages and pictures come at once however busy the model is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


class ThreadPool:
    """Threads for what takes time."""

    def __init__(self, *, workers: int, waiting: int, seconds: float):
        self.waiting, self.seconds, self.queued = waiting, seconds, 0
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="matchlight")

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result; a queue that is full, or a wait that is too long, becomes an error for the client."""
        if self.queued >= self.waiting:
            raise HTTPException(429, "too many questions at once; try again in a moment", {"retry-after": "1"})
        self.queued += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, job)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.seconds)
        except TimeoutError:
            future.cancel()
            raise HTTPException(503, "this took too long; try again", {"retry-after": "5"}) from None

    def _done(self, future: asyncio.Future[T]) -> None:
        self.queued -= 1
        if not future.cancelled():
            future.exception()  # looked at, so that a client that left leaves no warning

    def close(self) -> None:
        """No more jobs; those under way end."""
        self._pool.shutdown(wait=True, cancel_futures=True)
