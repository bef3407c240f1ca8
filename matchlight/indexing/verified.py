"""Which files of an index were found whole: a checksum is computed again only where a file may have changed since.

The cache keeps, for each index, the checksum of every file beside what the file system says of it: size, times of the
last change of content and of status, inode and device. Nobody can set the time of the last change of status, so a file
that was changed and given its old date is noticed. A file that changed within the last moments is not remembered:
a second change in the same tick of the clock would go unseen. Where nothing can be written, all is computed each time.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from matchlight.data import cache

FILE = "verified.json"
SETTLED = 0.1  # seconds without a change after which the times of a file can be trusted
Stamp = list[int]  # size, mtime, ctime, inode, device
Content = tuple[int, ...]  # the same but for ctime, which changes when a file gets another name


class Verified:
    """What is remembered of one version of an index; `sums` are the checksums its files should have."""

    def __init__(self, folder: Path, sums: Mapping[str, str]):
        self.version, self.root = folder.name, folder.parent.resolve()
        self.now = time.time()
        self.stamps = {name: _stamp(folder / name) for name in sums}
        self.wanted = {name: [sums[name], *stamp] for name, stamp in self.stamps.items()}
        place = hashlib.sha256(f"checksums 1 {self.root}".encode("utf-8", "replace"))
        self.entry = cache.folder() / place.hexdigest()[:32]

    def unverified(self) -> list[str]:
        """Names of the files whose checksums have to be computed; the others held before and did not change."""
        known = cache.read_json(self.entry / FILE) or {}
        held = known.get("files") if known.get("version") == self.version else None
        held = held if isinstance(held, dict) else {}
        cache.touch(self.entry)
        return [name for name, wanted in self.wanted.items() if held.get(name) != wanted]

    def remember(self) -> None:
        """All checksums hold, of files as they were when this was made."""
        kept = {name: self.wanted[name] for name, stamp in self.stamps.items() if self._settled(stamp)}
        with suppress(OSError), cache.locked(self.entry):
            cache.write_json(self.entry / FILE, {"version": self.version, "files": kept})
            cache.write_json(self.entry / cache.META, {"what": "checksums", "of": str(self.root)})

    def _settled(self, stamp: Stamp) -> bool:
        return max(stamp[1], stamp[2]) / 1e9 < self.now - SETTLED


def remember(folder: Path, sums: Mapping[str, str], sound: Mapping[str, Content]) -> None:
    """These files of a version that was just written are known to hold; those that changed since `sound` are not."""
    time.sleep(1.5 * SETTLED)
    memory = Verified(folder, sums)
    for name in sums:
        if content(folder / name) != sound[name]:
            del memory.wanted[name], memory.stamps[name]
    memory.remember()


def content(path: Path) -> Content:
    """What the file system says of a file's content."""
    size, changed, _, inode, device = _stamp(path)
    return size, changed, inode, device


def _stamp(path: Path) -> Stamp:
    about = os.stat(path)
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev]
