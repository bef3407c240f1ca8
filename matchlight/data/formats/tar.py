"""Where each file lies inside a tar: one pass over the headers, then pictures are read by offset.

Only regular files with a name below the archive's top count; links, devices and names that climb out are ignored and
counted. The standard library reads headers too, at a third of this speed, which a tar of 100,000 pictures would feel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tarfile import nti  # type: ignore[attr-defined]  # octal and base-256 numbers

from matchlight.console import BadInput, say
from matchlight.data.formats.safety import read_range, safe_name

BLOCK = 512
CUT = "tar without end"  # the problem of a tar whose end mark is missing
REGULAR = b"0\x007"  # a file: POSIX, the oldest layout (V7), and one stored in one piece
EXTENDED = b"LxKg"  # long names and extra headers, for the member that follows
WITHOUT_CONTENT = b"123456"  # links, devices, folders and pipes
MAX_NAME = 1 << 20  # bytes of a long name or a block of extra headers


@dataclass
class TarIndex:
    """The regular files of a tar in order: (name, offset, size), and what was not followed."""

    path: Path
    files: list[tuple[str, int, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ended: bool = False  # by the empty block that closes a tar; without it, a part may be missing

    def cut(self) -> list[str]:
        """What to tell of a tar that does not end as one does."""
        said = f"{self.path.name}: no end mark after {len(self.files)} files; a part may be missing"
        return [] if self.ended else [said]


def is_tar(path: Path) -> bool:
    """True if the file begins like an uncompressed tar."""
    with open(path, "rb") as file:
        header = file.read(BLOCK)
    return len(header) == BLOCK and any(header) and (header[257:262] == b"ustar" or _checksum_fits(header))


def index(path: Path) -> TarIndex:
    """Read every header of an uncompressed tar."""
    found = TarIndex(path)
    place = os.open(path, os.O_RDONLY)
    try:
        for name, kind, offset, size in _members(place, found):
            clean, folder = safe_name(name), name.endswith("/")  # a folder of the oldest tars is a file of that name
            if kind in REGULAR and clean is not None and not folder:
                found.files.append((clean, offset, size))
            elif clean is None or (kind != ord("5") and not (kind in REGULAR and folder)):
                found.refused.append(name)
    finally:
        os.close(place)
    for line in found.cut():
        say(line)
    return found


def _members(place: int, found: TarIndex) -> Iterator[tuple[str, int, int, int]]:
    """(name, type, offset of the content, size) of each member, long names and pax headers applied."""
    end, at, name, wide = os.fstat(place).st_size, 0, "", -1
    while at < end:
        header = os.pread(place, BLOCK, at)
        if len(header) < BLOCK:
            raise _cut(found.path, "header")
        if header[0] == 0 and header == bytes(BLOCK):
            found.ended = True
            return
        kind, size, content = header[156], _size(header, found.path, at), at + BLOCK
        size = wide if wide >= 0 and kind not in EXTENDED else size
        if kind not in WITHOUT_CONTENT and content + size > end:
            raise _cut(found.path, "file")
        if kind in EXTENDED:
            name, wide = _extended(place, kind, content, size, name, wide)
        else:
            yield name or _name(header), kind, content, size
            name, wide = "", -1
            size = 0 if kind in WITHOUT_CONTENT else size
        at = content + (size + BLOCK - 1) // BLOCK * BLOCK


def _cut(path: Path, where: str) -> BadInput:
    return BadInput(f"{path}: ends in the middle of a {where}; the tar is cut, copy it again")


def _size(header: bytes, path: Path, at: int) -> int:
    if header[257:262] != b"ustar" and not _checksum_fits(header):
        raise BadInput(f"{path}: no tar header at byte {at}; an uncompressed .tar is needed")
    try:
        size = int(nti(header[124:136]))
    except Exception as error:
        raise BadInput(f"{path}: damaged header at byte {at}") from error
    if size < 0:
        raise BadInput(f"{path}: damaged header at byte {at}")
    return size


def _checksum_fits(header: bytes) -> bool:
    try:
        total = 256 + sum(header[:148]) + sum(header[156:])
        signed = total - 256 * sum(byte > 127 for byte in header[:148] + header[156:])  # as some old tars sum
        return int(nti(header[148:156])) in (total, signed)
    except Exception:  # nti raises tarfile's own error for what is no number
        return False


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0":  # the old GNU layout keeps times where POSIX keeps the prefix
        prefix = header[345:500].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    return name.decode("utf-8", "replace")


def _extended(place: int, kind: int, offset: int, size: int, name: str, wide: int) -> tuple[str, int]:
    """A long name (GNU) or the path and size of a pax header, for the member that follows."""
    if kind in b"Kg" or size > MAX_NAME:
        return name, wide
    content = read_range(place, offset, size)
    if kind == ord("L"):
        return content.split(b"\0", 1)[0].decode("utf-8", "replace"), wide
    for key, value in _records(content):
        if key == b"path":
            name = value.decode("utf-8", "replace")
        elif key == b"size" and value.isdigit():
            wide = int(value)
    return name, wide


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    while content:
        length, _, _ = content.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(content):
            return
        record, content = content[len(length) + 1 : int(length) - 1], content[int(length) :]
        key, _, value = record.partition(b"=")
        yield key, value
