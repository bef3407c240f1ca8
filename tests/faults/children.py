"""A command in a child forked from a process that has torch loaded: importing takes longer than the work.

The parent computes nothing with torch, so it has no threads that a fork would lose. A child has its own cache folder
and at most MOST_BYTES of memory, and ends by itself or after PATIENCE seconds.
"""

from __future__ import annotations

import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import matchlight

PATIENCE = 150.0
MOST_BYTES = 6 << 30  # of a child's data: one that asks for more is refused by the system, not the machine by it
LAZY = ("torch._dynamo", "faiss", "pandas", "scipy.stats", "sklearn.linear_model", "onnx", "transformers")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # below 0: by a signal
    out: str
    err: str
    peak: int  # bytes of memory
    seconds: float

    @property
    def complaint(self) -> str | None:
        """What is wrong with it as an end of any command, whatever it was given; None for a good or a clear one."""
        if self.code not in (0, 2):
            return f"exit {self.code}: {self.err[-400:]}"
        said = self.out + self.err
        if "Traceback" in said or "internal failure" in said:
            return f"a traceback: {said[-400:]}"
        if raw := [letter for letter in said if not letter.isprintable() and letter not in "\n\u200c\u200d"]:
            return f"control characters reach the terminal: {raw[:5]!r}"
        if self.code == 2 and not self.line:
            return f"exit 2 without a line: {self.err[-400:]}"
        return None

    @property
    def line(self) -> str:
        """The one line that says what was wrong."""
        return next((line for line in self.err.splitlines() if line.startswith("matchlight: ")), "")


@cache
def warm() -> None:
    """Load all that commands load when they run; once a process."""
    for module in pkgutil.walk_packages(matchlight.__path__, "matchlight."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in LAZY:
        with suppress(ImportError):
            import_module(name)


class Child:
    """A command line that runs in a fork of this process."""

    def __init__(self, words: Sequence[object], *, cache: Path, before: Callable[[], None] | None = None):
        warm()
        self.out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 (until `wait`)
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._work([str(word) for word in words], cache, before)

    def _work(self, words: list[str], cache: Path, before: Callable[[], None] | None) -> None:
        code = 70
        try:
            os.dup2(self.out.fileno(), 1)
            os.dup2(self._err.fileno(), 2)
            sys.stdin, sys.stdout, sys.stderr = (open(*to) for to in ((os.devnull,), (1, "w"), (2, "w")))  # noqa: SIM115
            os.environ |= {"MATCHLIGHT_CACHE": str(cache), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            import torch

            from matchlight.cli import main

            torch.set_num_threads(1)
            if before is not None:
                before()
            code = main(words)
        except BaseException as error:
            print(f"Traceback past main: {error!r}", file=sys.stderr)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def kill(self) -> None:
        """`kill -9`; one that has ended is left alone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, *, kill_after: float | None = None) -> Ended:
        """Its end, by itself or by `kill -9` after so many seconds."""
        limit = PATIENCE if kill_after is None else kill_after
        while (found := os.wait4(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() - self.began > limit:
                self.kill()
                found = os.wait4(self.pid, 0)
                break
            time.sleep(0.001 if kill_after is not None else 0.005)
        seconds = time.monotonic() - self.began
        said = []
        for file in (self.out, self._err):
            file.seek(0)
            said.append(file.read().decode("utf-8", "replace"))
            file.close()
        return Ended(os.waitstatus_to_exitcode(found[1]), *said, found[2].ru_maxrss << 10, seconds)


def run(words: Sequence[object], *, cache: Path, before: Callable[[], None] | None = None) -> Ended:
    """A command from its beginning to its end."""
    return Child(words, cache=cache, before=before).wait()


def do(work: Callable[[], object]) -> None:
    """Python in a child, so that this process keeps to itself; what fails there is raised here."""
    child = Child(["--version"], cache=Path(tempfile.gettempdir()) / "matchlight-faults", before=lambda: _quietly(work))
    ended = child.wait()
    if ended.code:
        raise RuntimeError(f"{work}: exit {ended.code}: {ended.err[-2000:]}")


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(71)
