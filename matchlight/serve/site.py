"""What the routes share: the index in use, the threads, the audit, and results as the page wants them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException

from matchlight.console import BadInput
from matchlight.indexing.origins import Origin, origin_of
from matchlight.indexing.results import in_words
from matchlight.serve import schemas
from matchlight.serve.counters import Counters
from matchlight.serve.live_index import LiveIndex, LoadedIndex
from matchlight.serve.originals import Originals
from matchlight.serve.review_queue import Queue
from matchlight.serve.rules import Limits
from matchlight.serve.thread_pool import ThreadPool

if TYPE_CHECKING:
    from matchlight.indexing import Hit, Index
    from matchlight.indexing.index import ItemInfo

T = TypeVar("T")
FLAT = (4, 3)  # the shape kept free for a picture of unknown size


@dataclass
class Site:
    """One application's parts."""

    live: LiveIndex
    pool: ThreadPool
    counters: Counters
    limits: Limits
    queue: Queue | None
    originals: Originals | None = None

    async def ask(self, question: Callable[[LoadedIndex], T]) -> T:
        """Ask the index of this moment in a worker thread."""

        def job() -> T:
            with self.live.use() as loaded:
                return question(loaded)

        return await self.pool.run(job)

    def hit(self, loaded: LoadedIndex, hit: Hit) -> schemas.Hit:
        """A result with the size of its picture, so that the page can keep its place free."""
        width, height = size(loaded.index, hit.id)
        suspect = self.has_suspect_pair(loaded, hit.id)
        said = None if hit.chance is None else in_words(hit.chance)
        known = {**vars(hit), "alike": list(hit.alike)}
        return schemas.Hit(**known, width=width, height=height, suspect=suspect, said=said)

    def has_suspect_pair(self, loaded: LoadedIndex, id: int) -> bool | None:
        """Whether the audit flagged a pair of this picture; None without an audit."""
        return None if self.queue is None else id in suspect_pictures(loaded, self.queue)


def suspect_pictures(loaded: LoadedIndex, queue: Queue) -> frozenset[int]:
    """The pictures of which the audit flagged a pair; computed once an index."""
    if loaded.suspects is None:
        origin = part_of_audit(loaded.index, queue)
        flagged = (one for one in queue.findings.values() if one.suspect)
        found = (loaded.picture_of(one.image, one.row, origin) for one in flagged)
        loaded.suspects = frozenset(id for id in found if id is not None)
    return loaded.suspects


def part_of_audit(index: Index, queue: Queue) -> Origin:
    """The audited data's part of the index; one of other data is refused."""
    origin = origin_of(queue.fingerprint, index.origins)
    if origin is None:
        problem = f"an audit of other data than {index.root} was built from"
        raise BadInput(f"{queue.folder}: {problem}; index the data that was audited: matchlight index RUN --data PATH")
    return origin


def item(index: Index, id: int) -> ItemInfo:
    """An item of the index, or 404."""
    try:
        return index.item(id)
    except (KeyError, IndexError, ValueError):
        raise HTTPException(404, f"no picture {id} in this index") from None


def size(index: Index, id: int) -> tuple[int, int]:
    """Width and height of a picture; a usual shape where nobody knows."""
    width, height = index.item(id)["size"] or FLAT
    return max(1, width), max(1, height)
