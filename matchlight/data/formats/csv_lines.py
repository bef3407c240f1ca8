"""Rows of a CSV file with their line numbers; a stray quote or a separator without quotes loses no row silently.

A quote that opens a cell and is not closed before a separator or the end of a line would swallow all lines up to the
next quote: such a line is read as it stands, and counted. A row with more cells than the header has separators in its
caption: they are put back, and counted. A quoted cell whose lines look like rows is kept, and counted.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from matchlight.console import BadInput, say
from matchlight.data.formats.annotations import problem
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.pairs import Problem

LONGEST_CELL = 1 << 24
STRAY, UNQUOTED, SWALLOWED = "stray quote", "unquoted separator", "rows inside a quote"


class Lines:
    """The lines of a file, of which those of the row at hand can be given back."""

    def __init__(self, file: TextIO, first: int):
        self.file = file
        self.again: deque[str] = deque()
        self.taken: list[str] = []  # of the row at hand
        self.number = first  # of its first line

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.again.popleft() if self.again else next(self.file)
        self.taken.append(line)
        return line

    def give_back(self) -> str:
        """Let the row at hand be its first line alone."""
        self.again.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]
        return self.taken[0]

    def finish(self) -> None:
        """The row at hand is read."""
        self.number += len(self.taken)
        self.taken.clear()


@dataclass
class CsvRows:
    """The rows below the header of a table, and what is wrong with them."""

    path: Path
    separator: str
    width: int  # columns of the header
    image: int  # column of the picture's name
    caption: int | None  # column of the captions, where there is one alone
    first: int = 2  # the line of the first row; the header is line 1
    wrong: dict[str, list[str]] = field(default_factory=lambda: {STRAY: [], UNQUOTED: [], SWALLOWED: []})

    def read(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of each row."""
        lines = Lines(file, self.first)
        reader = csv.reader(lines, delimiter=self.separator, strict=True)
        while True:
            try:
                cells = next(reader, None)
            except csv.Error:
                cells = self._alone(lines)
                reader = csv.reader(lines, delimiter=self.separator, strict=True)
            if cells is None:
                return
            self._look_inside(lines)
            if cells:
                yield lines.number, self._fitted(cells, lines.number)
            lines.finish()

    def _alone(self, lines: Lines) -> list[str]:
        """The first line of a row whose quotes do not fit, its quotes taken as they stand."""
        if not lines.taken or len(lines.taken[0]) > LONGEST_CELL:
            raise csv.Error(f"line {lines.number} is longer than {LONGEST_CELL:,} characters")
        line = lines.give_back().rstrip("\r\n")
        self.wrong[STRAY].append(f"{self.path} line {lines.number}: {line[:80]}")
        return line.split(self.separator)

    def _look_inside(self, lines: Lines) -> None:
        for number, line in enumerate(lines.taken[1:], lines.number + 1):
            cells = line.rstrip("\r\n").split(self.separator)
            if len(cells) == self.width and cells[self.image].lower().endswith(SUFFIXES):
                self.wrong[SWALLOWED].append(f"{self.path} line {number}: {line.strip()[:80]}")

    def _fitted(self, cells: list[str], line: int) -> list[str]:
        """As many cells as the header has; what is too much belongs to the caption."""
        while len(cells) > self.width and not cells[-1].strip():
            cells.pop()  # a spreadsheet fills lines up
        more = len(cells) - self.width
        if more <= 0:
            return cells
        if self.caption is None:
            wanted = f'put "..." around a cell that holds {self.separator!r}'
            raise BadInput(f"{self.path} line {line}: {len(cells)} cells below {self.width} columns; {wanted}")
        end = self.caption + more + 1
        whole = self.separator.join(cells[self.caption : end])
        self.wrong[UNQUOTED].append(f"{self.path} line {line}: {whole[:80]}")
        return [*cells[: self.caption], whole, *cells[end:]]

    def problems(self) -> list[Problem]:
        """What was found, which is also said."""
        for kind, found in self.wrong.items():
            if found:
                say(f"{self.path}: {kind} in {len(found)} lines, the first {found[0].removeprefix(f'{self.path} ')}")
        return [one for kind, found in self.wrong.items() for one in problem(kind, found)]
