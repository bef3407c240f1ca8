"""Filling a store: rows are written in order, so that what a kill leaves behind is a beginning to go on from.

While a store is being written its folder has a `progress.json` instead of a `meta.json`: how many rows are done, and
which of them are broken. Rows go through plain writes rather than a writable map, because a full disk then is an error
to report and not a signal that kills the process.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from matchlight import console
from matchlight.console import BadInput
from matchlight.data import cache
from matchlight.inputs.features.store import S, header, is_whole, row_bytes, size_of

MARK_EVERY = 2.0  # seconds between two notes of progress: what a kill can cost
Rows = tuple[np.ndarray, list[int]]  # consecutive rows, and the places among all rows of those that are broken
Produce = Callable[[int], Iterator[Rows]]  # from which row on


def with_key(meta: dict[str, Any]) -> dict[str, Any]:
    """A store's description with the hash of all of it, by which it is found again."""
    text = json.dumps({"layout": 1, **meta}, sort_keys=True)
    return {**meta, "key": hashlib.sha256(text.encode()).hexdigest()}


def place_of(meta: dict[str, Any]) -> Path:
    """The folder of the cache that holds the store of this description, or will."""
    key: str = with_key(meta)["key"]
    return cache.folder() / key[:32]


def kept(cls: type[S], meta: dict[str, Any], produce: Produce, out: Path | None) -> S:
    """The store of this description: found in the cache (or in `out`), or made there now."""
    folder, meta = out or place_of(meta), with_key(meta)
    try:
        with cache.locked(folder):
            if not _finished(folder, meta, ours=out is None):
                if out is None:
                    cache.make_room(size_of(meta), keep=folder)
                _fill(folder, meta, produce)
            cache.touch(folder)
            return cls.open(folder)
    except OSError as error:
        raise BadInput(_explained(error, folder, size_of(meta))) from None


def _explained(error: OSError, folder: Path, size: int) -> str:
    if error.errno == errno.ENOSPC:
        needed = f"the disk is full ({size / 1e9:.2f} GB are needed)"
        return f"{folder}: {needed}; what is done is kept, run it again (`train --stream always` needs no room)"
    return f"{folder}: cannot be written ({error.strerror}); set MATCHLIGHT_CACHE to a folder that can"


def _finished(folder: Path, meta: dict[str, Any], *, ours: bool) -> bool:
    """Whether the folder holds this store whole. A user's folder that holds another one is refused, not overwritten."""
    there = cache.read_json(folder / cache.META)
    begun = (cache.read_json(folder / cache.PROGRESS) or {}).get("meta")
    other = next((found for found in (there, begun) if found and found.get("key") != meta["key"]), None)
    if other and not ours:
        raise BadInput(f"{folder}: already holds {cache.described(other)}; choose another folder")
    return there is not None and there.get("key") == meta["key"] and is_whole(folder, there)


def _done(folder: Path, meta: dict[str, Any]) -> tuple[int, list[int]]:
    """How many rows an earlier try left behind, and which of them are broken."""
    progress = cache.read_json(folder / cache.PROGRESS) or {}
    path = folder / f"{meta['what']}.npy"
    if progress.get("meta", {}).get("key") != meta["key"] or not path.is_file():
        return 0, []
    there = (path.stat().st_size - len(header(meta))) // max(row_bytes(meta), 1)
    return (progress["done"], progress["broken"]) if there >= progress["done"] else (0, [])


def _fill(folder: Path, meta: dict[str, Any], produce: Produce) -> None:
    """Write the rows that are missing; every few seconds note on the disk how many are safely there."""
    done, broken = _done(folder, meta)
    path, start, total = folder / f"{meta['what']}.npy", header(meta), meta["shape"][0]
    (folder / cache.META).unlink(missing_ok=True)
    if done:
        console.say(f"{cache.described(meta)}: {done} were done before, going on")
    with path.open("r+b" if done else "wb") as file, console.progress() as bar:
        task = bar.add_task(cache.described(meta), total=total, completed=done, note="")
        if not done:
            file.write(start)
        file.seek(len(start) + done * row_bytes(meta))
        marked = time.monotonic()
        for rows, lost in produce(done):
            file.write(np.ascontiguousarray(rows, dtype=meta["dtype"]).data)
            done, broken = done + len(rows), broken + lost
            bar.update(task, completed=done, note=f"{len(broken)} broken" if broken else "")
            if time.monotonic() - marked > MARK_EVERY:
                _mark(file, folder, {"meta": meta, "done": done, "broken": broken})
                marked = time.monotonic()
        file.truncate()
        _mark(file, folder, {"meta": meta, "done": done, "broken": broken})
    _finish(folder, {**meta, "broken": broken})


def _mark(file: Any, folder: Path, progress: dict[str, Any]) -> None:
    file.flush()
    os.fsync(file.fileno())  # rows first: a row noted as done is one that is there
    cache.write_json(folder / cache.PROGRESS, progress)


def _finish(folder: Path, meta: dict[str, Any]) -> None:
    if len(meta["broken"]) == meta["shape"][0]:  # nothing worth keeping: the next try should look again
        (folder / f"{meta['what']}.npy").unlink()
        (folder / cache.PROGRESS).unlink()
        raise BadInput(f"none of the {meta['shape'][0]} pictures could be read; is the picture folder in its place?")
    cache.write_json(folder / cache.META, meta)
    (folder / cache.PROGRESS).unlink()
