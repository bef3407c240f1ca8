"""Decisions about suspicious pairs: a journal that only grows, one line a decision, on the disk before it is answered.

    {"row": 12, "decision": "drop", "at": "2024-05-01T10:00:00+00:00", "reviewer": "Anna"}
    {"undo": true, "at": ...}     # takes back the last decision not taken back yet (or a row's, if it names one)

What holds now is what reading the lines in order gives, so a restart, or a crash in the middle of a line, loses
nothing that was answered. One server writes a journal at a time.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from matchlight.console import BadInput
from matchlight.data.decisions import DECISIONS, Decision, as_csv
from matchlight.files import Json, Lock, regular

FILE = "review.jsonl"


@dataclass
class State:
    """What the lines so far come to."""

    now: dict[int, Decision] = field(default_factory=dict)
    past: list[tuple[int, Decision | None]] = field(default_factory=list)  # row, and what held before

    def decide(self, decision: Decision) -> None:
        """One decision more."""
        self.past.append((decision.row, self.now.get(decision.row)))
        self.now[decision.row] = decision

    def undo(self, row: int | None = None) -> int | None:
        """Take the last decision (about `row`) back; its row comes back, None if there is none."""
        place = self.last(row)
        if place is None:
            return None
        row, before = self.past.pop(place)
        if before is None:
            del self.now[row]
        else:
            self.now[row] = before
        return row

    def last_row_of(self, reviewer: str) -> int | None:
        """The row of a person's last decision that still holds: what others decided since is not theirs to undo."""
        rows = dict.fromkeys(row for row, _ in reversed(self.past))
        return next((row for row in rows if self.now[row].reviewer == reviewer), None)

    def last(self, row: int | None = None) -> int | None:
        """Where in the past the last decision (about `row`) stands."""
        places = range(len(self.past) - 1, -1, -1)
        return next((place for place in places if row is None or self.past[place][0] == row), None)


class Journal:
    """The decisions of one audit, kept in its folder."""

    def __init__(self, folder: Path, key: str):
        self.path, self.key = folder / FILE, key
        self.state, self._lock = State(), threading.Lock()
        self._sole = Lock(folder / f".{FILE}.lock")
        self._file = self._open()
        try:
            self._replay()
        except OSError as problem:
            self.close()
            raise self._unusable(problem) from None
        except BaseException:
            self.close()
            raise

    def _open(self) -> FileIO:
        try:
            mine = self._sole.acquire()
            if mine:
                return open(regular(self.path), "a+b", buffering=0)  # held open, and locked, as long as the server runs
        except OSError as problem:
            self._sole.release()
            raise self._unusable(problem) from None
        who = self._sole.holder()
        raise BadInput(f"{self.path}: another server is writing decisions there ({who}); stop it first")

    def _unusable(self, problem: OSError) -> BadInput:
        return BadInput(f"{self.path}: decisions cannot be saved there ({problem.strerror or problem})")

    def _replay(self) -> None:
        """Read what is there; a last line that a crash cut short is removed."""
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        for number, line in enumerate(text[:whole].splitlines(), 1):
            self._read(number, line)
        self._whole = whole  # bytes of lines that hold
        if whole < len(text):
            self._file.truncate(whole)
        if not whole:
            self._append({"audit": self.key})

    def _read(self, number: int, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if "audit" in entry:
                self._same_data(entry["audit"])
            elif entry.get("undo"):
                self.state.undo(entry.get("row"))
            else:
                self.state.decide(_decision(entry))
        except BadInput:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BadInput(f"{self.path} line {number}: no decision; move the file away to start afresh") from None

    def _same_data(self, key: str) -> None:
        if key != self.key:
            raise BadInput(f"{self.path}: decisions about other data; move the file away to start afresh")

    def _append(self, entry: dict[str, Json]) -> None:
        """One line, on the disk before this returns; one that cannot be written whole leaves nothing behind.

        The file is unbuffered: a buffer would keep a line that was refused and write it together with the next.
        """
        if self._file.seek(0, os.SEEK_END) != self._whole:
            self._file.truncate(self._whole)  # what a failure left that could not be taken back then
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        try:
            self._write(line)
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._whole)
                os.fsync(self._file.fileno())
            raise
        self._whole += len(line)

    def _write(self, line: bytes) -> None:
        done = 0
        while done < len(line):  # a disk that is nearly full takes a part of it
            done += self._file.write(line[done:]) or 0
        os.fsync(self._file.fileno())

    def decide(
        self,
        row: int,
        decision: str,
        *,
        image: str | None = None,
        caption_row: int | None = None,
        image_row: int | None = None,
        reviewer: str = "",
    ) -> Decision | None:
        """Save a decision, then let it hold; gives the one that held before."""
        made = Decision(row, decision, image, caption_row, _now(), image_row, reviewer)
        with self._lock:
            self._append({"row": row, **made.as_json()})
            before = self.state.now.get(row)
            self.state.decide(made)
            return before

    def undo(self, row: int | None = None, *, reviewer: str = "") -> int | None:
        """Take the last decision (about `row`, or of a reviewer) back; gives its row, None if there is none."""
        with self._lock:
            if row is None and reviewer and (row := self.state.last_row_of(reviewer)) is None:
                return None
            if self.state.last(row) is None:
                return None
            self._append({"undo": True, **({} if row is None else {"row": row}), "at": _now()})
            return self.state.undo(row)

    def table(self) -> str:
        """All that holds now as CSV: what `matchlight data apply --decisions` reads."""
        with self._lock:
            return as_csv(one for _, one in sorted(self.state.now.items()))

    def close(self) -> None:
        """Let another server have it."""
        self._file.close()
        self._sole.release()


def _decision(entry: dict[str, Any]) -> Decision:
    if entry["decision"] not in DECISIONS:
        raise ValueError(entry["decision"])
    caption, own = (None if entry.get(name) is None else int(entry[name]) for name in ("caption_row", "image_row"))
    at, reviewer = str(entry.get("at")), str(entry.get("reviewer", ""))
    return Decision(int(entry["row"]), entry["decision"], entry.get("image"), caption, at, own, reviewer)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
