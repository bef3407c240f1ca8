"""A folder is one process's while it works there: a lock that the system takes back when the process dies, however."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: one process a folder is the user's own care there
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """True if the folder is ours until the end of the block, False if another process has it; waits for nobody."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / NAME, "a", encoding="utf-8") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        yield True  # closing the file gives it back
