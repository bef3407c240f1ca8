"""Files and folders of ours: each is written whole or not at all, and changed by one process at a time.

`replaced` gives a draft that takes a file's place in one step; `write_text`, `write_json`, `write_array` and
`write_npz` use it; `new_file` and `new_folder` say in one line where a path that a user named cannot be written.
A draft's name says which process writes it: `remove_leftovers` removes those of dead ones, and no draft makes a folder
taken. `locked` holds a folder or says which process does, `try_lock` tries without an error; `Lock` is what both use.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from matchlight.console import VERSION, BadInput, say

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]  # what a JSON file can hold
LOCK = ".lock"  # in a folder that a process holds
DRAFT = re.compile(r"\.(.+)\.(\d+)(?:-([0-9a-f]{8}))?(?:\.\w{8})?\.tmp(?:\.\w+){0,2}")  # of what, process, machine
FULL = "the disk is full; make room and run it again"
DAMAGED_ARRAY = (ValueError, TypeError, OverflowError, EOFError, TokenError)  # what NumPy says of a damaged .npy
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)  # what a file system says that has none

# ---- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def replaced(path: Path, *, flush: bool = False, apart: bool = False) -> Iterator[Path]:
    """A draft beside `path` that becomes it in one step when all went well, else goes away.

    The draft is there, empty, from the start and ends in the same suffix; `flush` brings it to the disk before it
    takes the name. `apart` puts it into a folder of its own, for writers that keep temporary files beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f".{path.stem}.{_writer()}.tmp{path.suffix}"
    room = path.with_name(f"{name}.d") if apart else path.parent
    draft = room / name
    try:
        room.mkdir(exist_ok=True)
        draft.touch()
        yield draft
        if flush:
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except Exception as error:
        if is_full(error):
            raise OSError(errno.ENOSPC, FULL, str(path)) from error
        raise
    finally:
        shutil.rmtree(room, ignore_errors=True) if apart else draft.unlink(missing_ok=True)


def is_full(error: BaseException) -> bool:
    """Whether a disk had no more room: NumPy counts what it wrote, safetensors has words, others a number."""
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return True
    return re.search(r"\d+ requested and \d+ written|No space left on device", str(error)) is not None


def _reason(error: OSError) -> str:
    return FULL if is_full(error) else error.strerror or str(error)


def write_text(path: Path, text: str, *, flush: bool = False) -> None:
    """Write a small file atomically: a reader sees the old one or the new one, never half."""
    with replaced(path, flush=flush) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: object) -> None:
    """JSON with two spaces, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_array(path: Path, array: np.ndarray) -> None:
    """A .npy file, atomically."""
    with replaced(path) as draft, open(draft, "wb") as file:
        np.save(file, array)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], *, compressed: bool = True) -> None:
    """A .npz file of named arrays, atomically."""
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    with replaced(path) as draft, open(draft, "wb") as file:
        save(file, **arrays)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """`replaced` for a path that a user named: what cannot be written is one clear line."""
    try:
        remove_leftovers(path.parent, of=path.stem)
        with replaced(path) as draft:
            yield draft
    except OSError as error:
        raise BadInput(f"{path}: cannot write there ({_reason(error)})") from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; it becomes `path` in one step. A folder that holds something is never replaced."""
    remove_leftovers(path)
    remove_leftovers(path.parent, of=path.name)
    if path.is_dir() and any(path.iterdir()):
        raise BadInput(f"{path}: already holds files; give a new or empty folder")
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path}: is a file; give a new or empty folder")
    draft: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.{_writer()}.", suffix=".tmp", dir=path.parent))
        yield draft
        draft.chmod(0o777 & ~_umask())
        os.replace(draft, path)
    except OSError as error:
        raise BadInput(f"{path}: cannot write there ({_reason(error)})") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def passing_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` for what is needed for a moment; one that a killed process left goes with the next."""
    remove_leftovers(path.parent, of=path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.{_writer()}.", suffix=".tmp", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: Path, *, of: str | None = None) -> None:
    """Remove the drafts that dead processes left in a folder: all of them, or those `of` one file or folder."""
    with suppress(OSError):  # what may not be listed or removed stays, and is in nobody's way
        for path in folder.iterdir():
            found = DRAFT.fullmatch(path.name)
            if found and of in (None, *_drafted(found[1])) and not _is_alive(int(found[2]), found[3]):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _drafted(name: str) -> set[str]:
    """What a draft may be of: of a draft, what that one is of."""
    inner = DRAFT.fullmatch(name)
    return _drafted(inner[1]) if inner else {name, Path(name).stem}


def is_draft(path: Path) -> bool:
    """Whether this is half of something that a process writes, or left behind."""
    return DRAFT.fullmatch(path.name) is not None


def _writer() -> str:
    """This process, in the name of a draft."""
    return f"{os.getpid()}-{_machine()}"


def _machine() -> str:
    return hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()


def _is_alive(process: int, machine: str | None) -> bool:
    """Whether a process runs; of other machines, and where nobody can be asked, it is taken for alive."""
    if os.name == "nt" or machine not in (None, _machine()):
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def flush_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk; systems that open no folders do so by themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- reading ---------------------------------------------------------------------------------------------------------


def regular(path: Path) -> Path:
    """The same path; a named pipe or a device in a file's place, which could be read for ever, is one clear line."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BadInput(f"{path}: is a named pipe or a device, not a file; put the file itself there")
    return path


def read_json(path: Path, what: str) -> Any:
    """A JSON file of ours; a missing or broken one is one clear line."""
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file ({what})") from None
    except RecursionError:
        raise BadInput(f"{path}: not valid JSON ({what}): nested too deeply") from None
    except ValueError as problem:  # broken JSON, broken UTF-8, a number of thousands of digits
        raise BadInput(f"{path}: not valid JSON ({what}): {problem}") from None


def check_version(made: object, place: Path) -> None:
    """Refuse what a later Matchlight wrote: it may mean something else by the same names."""
    if isinstance(made, str) and _numbers(made) > _numbers(VERSION):
        raise BadInput(f"{place}: made by Matchlight {made[:20]}, and this is {VERSION}; upgrade to open it")


def _numbers(version: str) -> list[int]:
    """1.10.0 -> [1, 10, 0]; a word after them, as of a release candidate, does not count."""
    found = re.match(r"\d{1,9}(\.\d{1,9})*", version)
    return [int(number) for number in found[0].split(".")] if found else []


def is_array_file(path: Path) -> bool:
    """Whether a file begins as a .npy does; a folder, a pipe or what nobody may read does not."""
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            return file.read(6) == b"\x93NUMPY"
    except OSError:
        return False


def read_npz(path: Path, missing: str) -> dict[str, np.ndarray]:
    """All arrays of a .npz file; where there is none, `missing` says who writes it."""
    regular(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; {missing}") from None
    except (*DAMAGED_ARRAY, AttributeError, OSError, zipfile.BadZipFile, zlib.error):
        raise BadInput(f"{path}: not a readable .npz file; remove it, and what wrote it can be run again") from None


# ---- one process at a time -------------------------------------------------------------------------------------------


class Lock:
    """The sole right to change something, as a locked file; the system takes it back when its holder dies, however.

    The file says who holds it and is removed with the lock. One that a killed process left behind is in nobody's way.
    """

    def __init__(self, path: Path):
        self.path = path
        self._lock = FileLock(str(path), thread_local=False)

    def acquire(self, *, wait: bool = False) -> bool:
        """Take it, in a folder that is made if need be; False if somebody else has it and we do not wait."""
        while True:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=-1 if wait else 0)
            except Timeout:
                return False
            except FileNotFoundError:  # the folder was removed under our feet
                continue
            except OSError as problem:
                if problem.errno not in WITHOUT_LOCKS:
                    raise
            else:
                with suppress(OSError):  # Windows lets nobody write to a locked file
                    self.path.write_text(_me(), encoding="utf-8")
            return True

    def holder(self) -> str:
        """Who has it, in words; empty if that cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")[:200]
        except OSError:
            return ""

    def release(self) -> None:
        """Let go of it; a file that is another's by now, since somebody removed ours, is left alone."""
        if self._lock.is_locked and self.holder() == _me():
            with suppress(OSError):
                self.path.unlink()
        self._lock.release()


def _me() -> str:
    return f"process {os.getpid()} on {platform.node() or 'this machine'}"


@contextmanager
def locked(
    folder: Path, doing: str, *, instead: str = "wait, or choose another -o", wait: bool = False
) -> Iterator[None]:
    """Hold a folder, made if need be, while changing it; where another process does, one line says which.

    `wait` waits until the other is done or dead.
    """
    lock = Lock(folder / LOCK)
    try:
        mine = lock.acquire()
        if not mine and wait:
            say(f"{folder}: waiting for another process that is {doing}")
            mine = lock.acquire(wait=True)
    except OSError as problem:
        raise BadInput(f"{folder}: cannot write there: {_reason(problem)}") from None
    if not mine:
        who = lock.holder()
        raise BadInput(f"{folder}: another process is {doing}{f' ({who})' if who else ''}; {instead}")
    try:
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            remove_leftovers(place)
        yield
    finally:
        lock.release()


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """True if the folder is ours until the end of the block, False if another process has it; waits for nobody."""
    lock = Lock(folder / LOCK)
    mine = lock.acquire()
    try:
        yield mine
    finally:
        if mine:
            lock.release()


def is_free(folder: Path) -> bool:
    """Whether a folder is not there yet, or holds nothing but a lock and drafts."""
    remove_leftovers(folder)
    return not folder.exists() or (folder.is_dir() and all(_is_ours(path) for path in folder.iterdir()))


def _is_ours(path: Path) -> bool:
    return path.name == LOCK or is_draft(path)
