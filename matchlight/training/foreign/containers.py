"""The two boxes PyTorch packs a checkpoint in: a zip archive (since 1.6), or pickles followed by raw storages (before).

In both, the pickle names its storages and the bytes lie elsewhere in the file. No storage is made before the file is
known to be long enough for it, so a small file cannot ask for much memory.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from pathlib import Path

import torch

from matchlight.training.foreign.literals import exactly
from matchlight.training.foreign.machine import Forbidden, Known, Machine, Refused, shown
from matchlight.training.foreign.names import Names
from matchlight.training.foreign.tensors import Storage, storage, to_native, whole

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
BROKEN_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError, struct.error)
BROKEN = (*BROKEN_ZIP, ValueError, OverflowError, KeyError, IndexError, MemoryError)


class Storages(Names):
    """The known names and the storages that persistent ids stand for, each made once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.made: dict[str, Storage] = {}

    def fetch(self, key: object) -> Storage:
        """The storage of an id: ("storage", kind, key, device, count[, part])."""
        if type(key) is not tuple or len(key) not in (5, 6) or key[0] != "storage":
            raise Forbidden("refers to something else than a storage, which is refused")
        _, known, name, _, count = key[:5]
        if not isinstance(known, Known) or known.kind is None or not isinstance(name, str) or not whole(count):
            raise TypeError("a storage without kind, key or size")
        if name not in self.made:
            self.made[name] = self.make(name, known.kind, count)
        held = self.made[name]
        if held.kind != known.kind or held.length != count:
            raise Refused(f"is damaged: it describes storage {shown(name)} in two ways")
        return held if len(key) == 5 or key[5] is None else held.part(*key[5][1:])

    def make(self, name: str, kind: torch.dtype, count: int) -> Storage:
        """A new storage of `count` numbers."""
        raise NotImplementedError


class Zipped(Storages):
    """Storages that are entries of an archive."""

    def __init__(self, archive: zipfile.ZipFile, root: str, *, size: int) -> None:
        super().__init__(size)
        self.archive, self.root = archive, root
        order = f"{root}/byteorder"
        self.order = archive.read(order).decode("ascii", "replace") if order in archive.NameToInfo else "little"
        if self.order not in ("little", "big"):
            raise Refused(f"is damaged: byte order {shown(self.order)}")

    def make(self, name: str, kind: torch.dtype, count: int) -> Storage:
        """Read the entry, which must be as long as the pickle says."""
        entry = self.archive.NameToInfo.get(f"{self.root}/data/{name}")
        if entry is None or entry.file_size != count * kind.itemsize:
            raise Refused(f"is damaged: storage {shown(name)} is missing or not as long as it should be")
        raw = bytearray(self.archive.read(entry))
        if len(raw) != entry.file_size:
            raise Refused(f"is cut short: storage {shown(name)} is incomplete")
        to_native(raw, kind, self.order)
        return storage(raw, kind, size=self.size)


class Trailing(Storages):
    """Storages that follow the pickle: made empty at first, filled when the pickle has been read."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.left = size  # bytes the file can still hold

    def make(self, name: str, kind: torch.dtype, count: int) -> Storage:
        """Room for the numbers, if the file can hold them beside those asked for before."""
        self.left -= count * kind.itemsize
        if self.left < 0:
            raise Refused(f"is cut short or damaged: it is too small for storage {shown(name)} of {count} numbers")
        return storage(bytearray(count * kind.itemsize), kind, size=self.size)

    def fill(self, keys: object, data: mmap.mmap) -> None:
        """Read the raw storages, each after its own length, in the order of their keys."""
        if type(keys) is not list or not all(type(key) is str for key in keys) or set(keys) != set(self.made):
            raise Refused("is damaged: its list of storages does not fit its tensors")
        for key in keys:
            held = self.made[key]
            (count,) = struct.unpack("<q", exactly(data, 8))
            if count != held.length:
                raise Refused(f"is damaged: storage {shown(key)} is not as long as it should be")
            held.raw[:] = exactly(data, len(held.raw))
            to_native(held.raw, held.kind)


def read_zip(path: Path, size: int) -> object:
    """What the pickle of a zip checkpoint describes."""
    try:
        with zipfile.ZipFile(path) as archive:
            root = _root(archive, size)
            world = Zipped(archive, root, size=size)
            return Machine(io.BytesIO(archive.read(f"{root}/data.pkl")), world, size=size).run()
    except BROKEN:
        raise Refused("is cut short or damaged: its zip archive cannot be read") from None


def _root(archive: zipfile.ZipFile, size: int) -> str:
    """The one folder of the archive; its entries must be stored as they are, and no byte twice."""
    entries = archive.infolist()
    if any(e.compress_type != zipfile.ZIP_STORED or e.file_size != e.compress_size for e in entries):
        raise Refused("has compressed entries, which PyTorch never writes; a checkpoint's are stored as they are")
    if sum(entry.file_size for entry in entries) > size:
        raise Refused("is damaged: its entries are longer than the file")
    roots = [name.removesuffix("/data.pkl") for name in archive.NameToInfo if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise Refused("is a zip archive but no PyTorch checkpoint: it has no data.pkl of its own")
    return roots[0]


def read_legacy(path: Path, size: int) -> object:
    """What a checkpoint of PyTorch before 1.6 describes: four pickles, a list of keys, the storages."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not _opens_well(data, size):
            raise Refused("is not a PyTorch checkpoint: neither a zip archive nor one with PyTorch's number in front")
        world = Trailing(size)
        if not _is(PROTOCOL, Machine(data, Names(), size=size).run()):
            raise Refused(f"is a checkpoint of an unknown version; only {PROTOCOL} is read")
        Machine(data, Names(), size=size).run()  # what wrote it; storages are little-endian all the same
        result = Machine(data, world, size=size).run()
        keys = Machine(data, Names(), size=size).run()
        try:
            world.fill(keys, data)
        except EOFError:
            raise Refused("is cut short: it ends before its last storage") from None
        return result


def _opens_well(data: mmap.mmap, size: int) -> bool:
    """Whether the first pickle is PyTorch's number; a name that it asks for is refused by name, not passed over."""
    try:
        return _is(MAGIC, Machine(data, Names(), size=size).run())
    except Forbidden:
        raise
    except Refused:
        return False


def _is(number: int, value: object) -> bool:
    return type(value) is int and value == number
