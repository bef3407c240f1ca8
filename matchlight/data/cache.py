"""The cache: what is costly to compute from pictures is kept in one folder, found by content, under a cap.

`MATCHLIGHT_CACHE` names the folder (default: `matchlight` in the user's cache folder), `MATCHLIGHT_CACHE_LIMIT` its
size ("20GB", or bytes). An entry is a folder named by a hash of everything its content depends on, so a changed
picture, backbone or size is another entry and nothing is ever stale. Whoever writes or removes an entry holds its lock;
a second process waits. The least recently used go first. Removing one that is being read is harmless: maps stay valid.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from matchlight.console import BadInput, say
from matchlight.files import LOCK, Lock, remove_leftovers, try_lock, write_text

META, PROGRESS = "meta.json", "progress.json"
NAME = re.compile(r"[0-9a-f]{32}")  # nothing else in the folder is ours, so nothing else is ever removed
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def folder() -> Path:
    """Where the cache is."""
    named = os.environ.get("MATCHLIGHT_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "matchlight"


def limit() -> int:
    """How many bytes the cache may hold."""
    text = os.environ.get("MATCHLIGHT_CACHE_LIMIT", "20GB")
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?b?)\s*", text.lower())
    if not size or size[2] in ("k", "m", "g", "t"):
        raise BadInput(f"MATCHLIGHT_CACHE_LIMIT={text!r} is no size; write bytes or a number with KB, MB, GB or TB")
    return int(float(size[1]) * UNITS[size[2]])


def write_json(path: Path, value: object) -> None:
    """Written whole or not at all, and on the disk before it takes the name."""
    write_text(path, json.dumps(value), flush=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no usable one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def locked(entry: Path) -> Iterator[None]:
    """Hold this folder (made if need be) for writing; waits while another process has it. A killed one lets go."""
    lock = Lock(entry / LOCK)
    if not lock.acquire():
        say(f"waiting for another process that is writing {entry}")
        lock.acquire(wait=True)
    try:
        remove_leftovers(entry)
        yield
    finally:
        lock.release()


def entries() -> list[Path]:
    """The folders of the cache, least recently used first."""
    try:
        there = [path for path in folder().iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(there, key=_last_used)


def touch(entry: Path) -> None:
    """Note that an entry was used just now; a cache we may only read is used all the same."""
    with suppress(OSError):
        os.utime(entry / META)


def _last_used(entry: Path) -> float:
    for name in (META, PROGRESS, LOCK):
        with suppress(OSError):
            return (entry / name).stat().st_mtime
    return 0.0


def _bytes(entry: Path) -> int:
    total = 0
    for path in entry.glob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.name != LOCK else 0
    return total


def _remove(entry: Path) -> int:
    """Bytes freed: none if somebody is writing it."""
    with try_lock(entry) as mine:
        if not mine:
            return 0
        freed = _bytes(entry)
        shutil.rmtree(entry, ignore_errors=True)
        return freed


def make_room(wanted: int, *, keep: Path) -> None:
    """Let the least recently used entries go until `wanted` more bytes fit under the cap; `keep` stays."""
    sizes = {entry: _bytes(entry) for entry in entries()}
    over = sum(size for entry, size in sizes.items() if entry != keep) + wanted - limit()
    for entry in sizes:
        if over <= 0:
            return
        if entry != keep:
            over -= _remove(entry)


class CacheRow(TypedDict):
    """One line of the listing."""

    name: str
    what: str
    bytes: int
    last_used: str  # ISO 8601, UTC


def cache_listing() -> list[CacheRow]:
    """What is cached, most recently used first: name, what it is, bytes, last_used (ISO 8601, UTC)."""
    return [_row(entry) for entry in reversed(entries())]


def _row(entry: Path) -> CacheRow:
    meta, suffix = read_json(entry / META), ""
    if meta is None:
        progress = read_json(entry / PROGRESS) or {}
        meta, suffix = progress.get("meta", {}), f", unfinished ({progress.get('done', 0)} done)"
    when = datetime.fromtimestamp(_last_used(entry), UTC).isoformat(timespec="seconds")
    return {"name": entry.name, "what": described(meta) + suffix, "bytes": _bytes(entry), "last_used": when}


def described(meta: Mapping[str, object]) -> str:
    """An entry in words: "features lite0 grid 160x160 of 8000 pictures", or "checksums of /home/me/index"."""
    if "of" in meta:
        return f"{meta['what']} of {meta['of']}"
    size, shape = meta.get("size"), meta.get("shape")
    height, width = size if isinstance(size, list | tuple) else ("?", "?")
    count = shape[0] if isinstance(shape, list | tuple) else "?"
    if "captions" in meta:
        return f"vectors of {meta.get('backbone')} of {count} captions"
    if "states_of" in meta:
        return f"states of {meta.get('backbone')} of {count} word pieces"
    words = [meta.get("what", "?"), meta.get("backbone"), meta.get("kind"), f"{height}x{width}"]
    return " ".join(str(word) for word in words if word) + f" of {count} pictures"


def cache_clear() -> int:
    """Remove everything nobody is writing; returns the bytes freed."""
    return sum(_remove(entry) for entry in entries())
