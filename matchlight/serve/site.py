"""What the routes share: the index in use, the threads, the audit, and pictures as the page wants them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from starlette.exceptions import HTTPException

from matchlight.serve.counters import Metrics
from matchlight.serve.live_index import Held, Holder
from matchlight.serve.originals import Originals
from matchlight.serve.review_queue import Queue
from matchlight.serve.rules import Limits
from matchlight.serve.thread_pool import Work

T = TypeVar("T")
FLAT = (4, 3)  # the shape kept free for a picture of unknown size


@dataclass
class Site:
    """One application's parts."""

    holder: Holder
    work: Work
    metrics: Metrics
    limits: Limits
    queue: Queue | None
    originals: Originals | None = None

    async def ask(self, question: Callable[[Held], T]) -> T:
        """Ask the index of this moment in a worker thread."""

        def job() -> T:
            with self.holder.use() as held:
                return question(held)

        return await self.work.do(job)

    def hit(self, held: Held, hit: Any) -> dict[str, Any]:
        """A result with the size of its picture, so that the page can keep its place free."""
        width, height = size(held.index, hit.id)
        return {
            "rank": int(hit.rank),
            "score": float(hit.score),
            "id": int(hit.id),
            "image": str(hit.image),
            "caption": str(hit.caption),
            "row": int(hit.row),
            "width": width,
            "height": height,
            "suspect": self.suspect(str(hit.image)),
        }

    def suspect(self, image: str) -> bool | None:
        """Whether the audit doubts a pair of this picture; None without an audit."""
        return None if self.queue is None else image in self.queue.suspects


def item(index: Any, place: int) -> dict[str, Any]:
    """An item of the index, or 404."""
    try:
        found: dict[str, Any] = index.item(place)
    except (KeyError, IndexError, ValueError):
        raise HTTPException(404, f"no picture {place} in this index") from None
    return found


def size(index: Any, place: int) -> tuple[int, int]:
    """Width and height of a picture; a usual shape where nobody knows."""
    width, height = index.item(place).get("size") or FLAT
    return max(1, int(width)), max(1, int(height))


def places(held: Held) -> dict[str, int]:
    """Picture name -> id, worked out once an index."""
    if "places" not in held.about:
        held.about["places"] = {str(held.index.item(place)["name"]): place for place in ids(held.index).tolist()}
    found: dict[str, int] = held.about["places"]
    return found


def ids(index: Any) -> np.ndarray:
    """(N,) every id there is, in the order of the map."""
    known: np.ndarray = index.ids
    return known
