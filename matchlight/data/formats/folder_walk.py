"""Every file below a folder, in order of name: what a system hides there is passed over, links lead nowhere outside.

A link to a file of the same folder is that file once more; a link to a folder inside is not entered, since its files
are met where they are; what leaves the folder is named, so that it can be counted, and never opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from matchlight.data.formats.annotations import tidy
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.safety import is_inside

DEEPEST = 32  # folders in folders
JUNK = frozenset(("__macosx", "thumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "system volume information"))


class Found(NamedTuple):
    """A file below the folder; `place` is as the disk spells it, which need not be UTF-8."""

    place: str
    outside: bool = False  # a link that leaves the folder

    @property
    def name(self) -> str:
        """The place as text that can be written."""
        return tidy(self.place)

    @property
    def is_picture(self) -> bool:
        """By its suffix, in letters of either case."""
        return is_picture(self.place)


def is_picture(name: str) -> bool:
    """Whether a file's name ends as pictures' do."""
    return name.lower().endswith(SUFFIXES)


def is_hidden(name: str) -> bool:
    """Whether a file or folder is one that systems leave behind (.DS_Store, __MACOSX, Thumbs.db) or hide."""
    return name.startswith(".") or name.lower() in JUNK


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or leads to one; a link in a circle is not."""
    with suppress(OSError):
        return entry.is_dir()
    return False


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a plain file or leads to one; a link in a circle is not."""
    with suppress(OSError):
        return entry.is_file()
    return False


def walk(root: Path, *, deepest: int = DEEPEST) -> Iterator[Found]:
    """All files below `root`, folder by folder."""
    real = os.path.realpath(root)
    yield from _walk(real, "", deepest)


def _walk(root: str, folder: str, deeper: int) -> Iterator[Found]:
    try:
        with os.scandir(os.path.join(root, folder)) as listing:
            entries = sorted((entry for entry in listing if not is_hidden(entry.name)), key=lambda entry: entry.name)
    except OSError:  # a folder that may not be opened
        return
    below = []
    for entry in entries:
        place = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink() and not is_inside(root, entry.path):
            yield Found(place, outside=True)
        elif entry.is_dir(follow_symlinks=False):
            below.append(place)
        elif is_file(entry) or (is_picture(entry.name) and not is_folder(entry)):  # a broken picture is told when read
            yield Found(place)
    for place in below if deeper > 1 else ():
        yield from _walk(root, place, deeper - 1)
