"""Killed at random moments, and killed or out of room at a chosen file event; then the same command once more.

A file event is what Python's audit hooks tell of: a file opened to be written, renamed, linked or removed, a folder
made or removed, below the folders of a case. At the event of a given number the process kills itself, before the event
takes place; or from then on nothing can be opened for writing, as on a full disk.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from matchlight.files import is_draft
from tests.faults.children import Ended
from tests.faults.ledger import Case, Outcome
from tests.faults.results import differences
from tests.faults.stages import Place, Stage, World

KILLS = 200
EVENTS = 12  # of a stage that are tried, evenly spread over all it has, of each kind
TRIES = 8  # at ever earlier moments, where the command was done before it could be killed
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree"}


def random_kills(world: World, kills: int = KILLS) -> Iterator[Case]:
    """`kill -9` after a random part of the time that a stage takes."""
    stages = world.stages()
    for number in range(kills):
        stage = stages[number % len(stages)]
        yield Case("random kills", stage.name, "kill -9", number, partial(_killed, world, stage, number))


def _killed(world: World, stage: Stage, number: int, folder: Path) -> Outcome:
    _, seconds = world.expected(stage)
    moment = seconds * np.random.default_rng(number).uniform(0.02, 1.0)
    for attempt in range(TRIES):
        place = Place(folder / str(attempt))
        first = place.start(stage).wait(kill_after=moment * 0.7**attempt)
        if first.code == -signal.SIGKILL:
            return judged_again(world, stage, place)
        if first.code != 0:
            return Outcome(False, "failed before the kill", first.err[-300:], first.peak)
    return Outcome(False, "never killed", f"done before {moment * 0.7**attempt:.3f} s")


def judged_again(world: World, stage: Stage, place: Place, *, how: str = "equal") -> Outcome:
    """The same command once more: its result is that of an undisturbed one, and no draft is left."""
    expected, _ = world.expected(stage)
    again = place.start(stage, again=True).wait()
    if (complaint := again.complaint) is not None:
        return Outcome(False, "second call failed", complaint, again.peak)
    if differ := differences(place.result(stage), expected):
        why = f"exit {again.code}, {again.line}" if again.code else "exit 0"
        return Outcome(False, "differs", f"{differ[:6]} ({why})", again.peak)
    left = [path.name for folder in (place.out.parent, place.cache) for path in folder.rglob("*") if is_draft(path)]
    if left:
        return Outcome(False, "drafts left", str(left[:4]), again.peak)
    return Outcome(True, how, again.line, again.peak)


# ---- file events -----------------------------------------------------------------------------------------------------


def file_events(world: World, *, each: int = EVENTS) -> Iterator[Case]:
    """A kill, and a full disk, at events spread over each stage."""
    for stage in world.stages():
        for kind in ("kill", "full disk"):
            for number in range(each):
                run = partial(_at_event, world, stage, kind, (number + 0.5) / each)
                yield Case("file events", stage.name, f"{kind} at an event", number, run)


def _at_event(world: World, stage: Stage, kind: str, share: float, folder: Path) -> Outcome:
    count = _events_of(world, stage)
    place, chosen = Place(folder), int(share * count)
    first = place.start(stage, before=partial(watch, folder, _ending(kind, chosen))).wait()
    if kind == "kill":
        how = "equal" if first.code == -signal.SIGKILL else "finished first"
        if first.code not in (0, -signal.SIGKILL):
            return Outcome(False, "failed before the kill", first.err[-300:], first.peak)
        return judged_again(world, stage, place, how=how)
    if (complaint := full_complaint(first)) is not None:
        return Outcome(False, "full disk", f"event {chosen} of {count}: {complaint}", first.peak)
    return judged_again(world, stage, place, how="one line, then equal" if first.code else "equal")


def full_complaint(ended: Ended) -> str | None:
    """What is wrong with the way a command told of a full disk; one that got by without writing more is fine."""
    if (complaint := ended.complaint) is not None:
        return complaint
    return f"not named as full: {ended.line}" if ended.code == 2 and " full" not in ended.line else None


def _events_of(world: World, stage: Stage) -> int:
    """How many file events an undisturbed run of a stage has; counted once."""
    note = world.folder / "events" / stage.name
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        place = Place(world.folder / "counted" / stage.name)
        place.start(stage, before=partial(watch, place.folder, partial(_count, note))).wait()
    return note.stat().st_size


def _count(note: Path, number: int, event: str) -> None:
    handle = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b".")
    os.close(handle)


def _ending(kind: str, chosen: int) -> Callable[[int, str], None]:
    def end(number: int, event: str) -> None:
        if number < chosen:
            return
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if event in ("open", "os.mkdir", "os.link"):  # removing and renaming take no room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return end


def watch(folder: Path, at: Callable[[int, str], None]) -> None:
    """In a child: call `at` with the number and kind of each file event below a folder, before it takes place."""
    below, seen = str(folder.resolve()), iter(range(1 << 40))

    def hook(event: str, given: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = given
            writes = isinstance(flags, int) and flags & WRITING
        elif event in CHANGES:
            path, writes = given[1 if event in ("os.rename", "os.link") else 0], True
        else:
            return
        if (
            writes
            and isinstance(path, str | bytes | os.PathLike)
            and os.path.abspath(os.fsdecode(path)).startswith(below)
        ):
            at(next(seen), event)

    sys.addaudithook(hook)
