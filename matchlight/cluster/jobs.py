"""A shard of work: a function, what it is done with, and the file that is there when it is done.

A worker writes that file in one step, so that a shard is either done or not begun, however a process ended. What goes
wrong with one shard is told and leaves out that shard alone; a full disk ends the whole call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from matchlight import files
from matchlight.console import BadInput, say

TOLD = 5  # shards that are named one by one
Item = TypeVar("Item")
Shared = TypeVar("Shared")
Work = Callable[[Shared, Item, Path], None]  # settings of all shards, one shard, and the file to write


class Unfinished(BadInput):
    """A call that ended before its shards were done; those that are done are kept."""


@dataclass(frozen=True)
class Job(Generic[Item]):
    """One shard."""

    name: str
    file: Path  # there when the shard is done
    item: Item


@dataclass(frozen=True)
class Lost:
    """A shard that was left out."""

    name: str
    reason: str
    fatal: bool = False  # the next shard would fare no better


class Workers(Protocol):
    """Whoever does shards."""

    def finish(
        self, work: Work[Shared, Item], shared: Shared, jobs: Iterable[Job[Item]], what: str, *, total: int
    ) -> list[Lost]:
        """Do all jobs whose file is not there yet; those that could not be done come back."""


def do_once(work: Work[Shared, Item], shared: Shared, job: Job[Item]) -> Lost | None:
    """In a worker: write the job's file, unless a try before did."""
    if job.file.exists():
        return None
    try:
        with files.replaced(job.file, flush=True) as draft:
            work(shared, job.item, draft)
    except (BadInput, OSError, MemoryError) as error:
        return Lost(job.name, _line(str(error) or type(error).__name__), fatal=files.is_full(error))
    except Exception as error:  # whatever a decoder or a network raises: the other shards can still be done
        return Lost(job.name, _line(f"{type(error).__name__}: {error}"))
    return None


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def tell(lost: Sequence[Lost], total: int) -> None:
    """One line for each shard that was left out."""
    if not lost:
        return
    if len(lost) == total:
        raise BadInput(f"none of the {total} shards could be done; {lost[0].name}: {lost[0].reason}")
    say(f"{len(lost)} of {total} shards left out:")
    for one in lost[:TOLD]:
        say(f"  {one.name}: {one.reason}")
    if len(lost) > TOLD:
        say(f"  and {len(lost) - TOLD} more")
