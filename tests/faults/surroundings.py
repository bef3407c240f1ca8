"""What is wrong around a command: no room, no right to write, a slow disk, a second process, the clock, a lost cache.

A full and a read-only file system are real ones where this process may mount them (root); elsewhere files may not grow
(RLIMIT_FSIZE) and the system's refusal is made up at each file event.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import numpy as np

from tests.faults.interrupted import full_complaint, judged_again, watch
from tests.faults.ledger import Case, Outcome
from tests.faults.results import differences
from tests.faults.stages import Place, Stage, World

DAY = 86_400
SIZES = (0.05, 0.3, 0.6, 0.9)  # of the bytes that a stage writes: the room it is given
ROOM = 200 << 20
PAUSE = 0.02  # seconds that a slow disk adds to each file event
SECOND = ("another process is", "already holds", "cannot write there", "is being", "wait")


def around(world: World) -> Iterator[Case]:
    """Every stage under each of these faults."""
    for stage in world.stages():
        for number, size in enumerate(SIZES):
            yield Case("full disk", stage.name, "full file system", number, partial(_full, world, stage, size))
        for number, half in enumerate((False, True)):
            yield Case("read-only", stage.name, "read-only output", number, partial(_read_only, world, stage, half))
        for number, half in enumerate((False, True)):
            yield Case("slow disk", stage.name, "slow disk", number, partial(_slow, world, stage, half))
        for number, wait in enumerate((0.0, 0.5)):
            yield Case("two processes", stage.name, "two on one folder", number, partial(_two, world, stage, wait))
        for number, fault in enumerate((_files_of_tomorrow, _clock_jumps)):
            yield Case("clock", stage.name, "clock set back", number, partial(fault, world, stage))
        for number in range(2):
            yield Case("cache", stage.name, "cache removed", number, partial(_without_cache, world, stage, number))


# ---- file systems ----------------------------------------------------------------------------------------------------


@cache
def can_mount() -> bool:
    """Whether file systems can be mounted here."""
    return os.geteuid() == 0 and shutil.which("mount") is not None and _mount("-t", "tmpfs", "none", "/mnt", undo=True)


def _mount(*words: object, undo: bool = False) -> bool:
    done = subprocess.run(["mount", *map(str, words)], capture_output=True).returncode == 0
    if done and undo:
        subprocess.run(["umount", str(words[-1])], check=True)
    return done


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.path.ismount(folder):  # of a table that was killed
        subprocess.run(["umount", "-l", str(folder)], check=True)
    assert _mount("-t", "tmpfs", "-o", f"size={max(4096, size)}", "none", folder)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _full(world: World, stage: Stage, share: float, folder: Path) -> Outcome:
    room = int(share * _bytes_of(world, stage))
    if not can_mount():
        return _no_large_files(world, stage, room, Place(folder))
    with mounted(folder / "disk", room):
        place = Place(folder / "disk")
        first = place.start(stage).wait()
        if (complaint := full_complaint(first)) is not None:
            return Outcome(False, "full disk", f"{room} bytes: {complaint}", first.peak)
        assert _mount("-o", f"remount,size={ROOM}", folder / "disk")
        return judged_again(world, stage, place, how="one line, then equal" if first.code else "equal")


def _no_large_files(world: World, stage: Stage, room: int, place: Place) -> Outcome:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (max(64, room // 4), resource.RLIM_INFINITY))
    first = place.start(stage, before=limit).wait()
    if (complaint := first.complaint) is not None:
        return Outcome(False, "full disk", complaint, first.peak)
    return judged_again(world, stage, place, how="one line, then equal" if first.code else "equal")


def _bytes_of(world: World, stage: Stage) -> int:
    """What an undisturbed run of a stage leaves on the disk, in whole blocks."""
    world.expected(stage)
    kept = (world.folder / "undisturbed" / stage.name / "1").rglob("*")
    return sum(4096 + path.stat().st_size // 4096 * 4096 for path in kept)


def _read_only(world: World, stage: Stage, half: bool, folder: Path) -> Outcome:
    if not can_mount():
        return _refused_writes(world, stage, half, Place(folder))
    with mounted(folder / "disk", ROOM):
        place = Place(folder / "disk")
        _half_done(world, stage, place, half)
        assert _mount("-o", "remount,ro", folder / "disk")
        ended = place.start(stage, again=half).wait()
        assert _mount("-o", "remount,rw", folder / "disk")
        return _told(world, stage, place, ended.complaint, ended.code, ended.peak)


def _refused_writes(world: World, stage: Stage, half: bool, place: Place) -> Outcome:
    def refuse(number: int, event: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    _half_done(world, stage, place, half)
    ended = place.start(stage, again=half, before=partial(watch, place.folder, refuse)).wait()
    return _told(world, stage, place, ended.complaint, ended.code, ended.peak)


def _half_done(world: World, stage: Stage, place: Place, half: bool) -> None:
    place.out.parent.mkdir(parents=True, exist_ok=True)
    place.cache.mkdir(parents=True, exist_ok=True)
    if half:
        place.start(stage).wait(kill_after=0.6 * world.expected(stage)[1])


def _told(world: World, stage: Stage, place: Place, complaint: str | None, code: int, peak: int) -> Outcome:
    if complaint is not None:
        return Outcome(False, "not told", complaint, peak)
    return judged_again(world, stage, place, how="one line, then equal" if code else "equal")


# ---- time ------------------------------------------------------------------------------------------------------------


def _slow(world: World, stage: Stage, half: bool, folder: Path) -> Outcome:
    place = Place(folder)
    slowly = partial(_slow_disk, folder)
    limit = 1.5 * world.expected(stage)[1] if half else None
    first = place.start(stage, before=slowly).wait(kill_after=limit)
    if not half and (complaint := first.complaint) is not None:
        return Outcome(False, "slow disk", complaint, first.peak)
    return judged_again(world, stage, place, how="killed, then equal" if first.code else "equal")


def _slow_disk(folder: Path) -> None:
    watch(folder, lambda number, event: time.sleep(PAUSE))
    sync = os.fsync

    def slow_sync(handle: int) -> None:
        time.sleep(PAUSE)
        sync(handle)

    os.fsync = slow_sync


def _files_of_tomorrow(world: World, stage: Stage, folder: Path) -> Outcome:
    """Stopped half way, and the clock set back by a day before it goes on: its own files are from the future."""
    place = Place(folder)
    _half_done(world, stage, place, half=True)
    for path in folder.rglob("*"):
        os.utime(path, (time.time() + DAY,) * 2, follow_symlinks=False)
    return judged_again(world, stage, place)


def _clock_jumps(world: World, stage: Stage, folder: Path) -> Outcome:
    """The clock goes back by an hour again and again while the command runs."""
    place = Place(folder)
    first = place.start(stage, before=_jumping).wait()
    if (complaint := first.complaint) is not None or first.code:
        return Outcome(False, "clock", complaint or first.line, first.peak)
    return judged_again(world, stage, place)


def _jumping() -> None:
    true, calls = time.time, iter(range(1 << 40))

    def jumping() -> float:
        return true() - 3600 * (next(calls) % 48)

    time.time = jumping


# ---- others ----------------------------------------------------------------------------------------------------------


def _two(world: World, stage: Stage, wait: float, folder: Path) -> Outcome:
    place = Place(folder)
    one = place.start(stage)
    time.sleep(wait * world.expected(stage)[1])
    other = place.start(stage)
    ends = [child.wait() for child in (one, other)]
    peak = max(end.peak for end in ends)
    for end in ends:
        if end.complaint is not None or (end.code and not any(words in end.line for words in SECOND)):
            return Outcome(False, "two processes", end.complaint or end.line, peak)
    if all(end.code for end in ends):
        return Outcome(False, "neither did it", ends[0].line, peak)
    if differ := differences(place.result(stage), world.expected(stage)[0]):
        return Outcome(False, "differs", str(differ[:6]), peak)
    refused = sum(end.code == 2 for end in ends)
    return judged_again(world, stage, place, how="one refused, equal" if refused else "both, equal")


def _without_cache(world: World, stage: Stage, number: int, folder: Path) -> Outcome:
    """Everything that is cached goes away at a few moments while the command runs."""
    place, seconds = Place(folder), world.expected(stage)[1]
    child = place.start(stage)
    for pause in np.random.default_rng(number).uniform(0, seconds / 3, 4):
        time.sleep(pause)
        shutil.rmtree(place.cache, ignore_errors=True)
    first = child.wait()
    if (complaint := first.complaint) is not None:
        return Outcome(False, "cache", complaint, first.peak)
    return judged_again(world, stage, place, how="one line, then equal" if first.code else "equal")
