"""What a person sees while something lasts: progress and notes on stderr, so that stdout stays clean for results."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

VERSION = "0.1.0"
JOINERS, SEPARATORS = "\u200c\u200d", "\x1c\x1d\x1e\x1f\x85"  # the second are spaces to Python, commands to a terminal
NOTEBOOK_EVERY = 0.2  # seconds between two pictures of a bar in a notebook
NAME = 24  # letters of what is downloaded
T = TypeVar("T")
err = Console(stderr=True, highlight=False, soft_wrap=True)


class BadInput(ValueError):
    """What a user gave cannot be used; the message is one line: what, where, and what would have worked."""


def say(message: str) -> None:
    """One line for the person at the terminal; never parsed as markup, since it may quote a user's file."""
    err.print("\n".join(visible(line) for line in message.split("\n")), markup=False)


def visible(text: str) -> str:
    """Text of a stranger's file for a terminal: on one line, and what a terminal would obey is shown, not sent.

    An escape sequence in a caption could set the window's title, and marks of direction could turn a line around. What
    joins letters (Persian, Hindi, families of emoji) stays.
    """
    return "".join(one if one.isprintable() or one in JOINERS else _shown(one) for one in text)


def _shown(one: str) -> str:
    return " " if one.isspace() and one not in SEPARATORS else repr(one)[1:-1]


class Display(Progress):
    """A progress display that is known while it is shown: what lasts inside it gets a line there, not its own."""

    shown: list[Progress] = []

    def start(self) -> None:
        """Show it."""
        super().start()
        self.shown.append(self)

    def stop(self) -> None:
        """Take it away."""
        super().stop()
        if self in self.shown:
            self.shown.remove(self)


class NotebookDisplay(Display):
    """The same bars in a notebook: HTML that is replaced in its place and taken away at the end.

    Rich would need widgets for it, which many notebooks do not have.
    """

    def __init__(self) -> None:
        super().__init__(console=err, disable=True)
        self.place: Replaceable | None = None
        self.drawn = 0.0

    def stop(self) -> None:
        """Take it away."""
        super().stop()
        if self.place is not None:
            self.place.update({"text/html": "", "text/plain": ""}, raw=True)
            self.place = None

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Some steps further."""
        super().advance(task_id, advance)
        self.refresh()

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """New values of a bar."""
        super().update(task_id, **fields)
        self.refresh()

    def refresh(self) -> None:
        """Draw the bars, a few times a second at most."""
        if (now := time.monotonic()) - self.drawn < NOTEBOOK_EVERY:
            return
        self.drawn = now
        shown = {"text/html": "".join(map(_bar, self.tasks)), "text/plain": ""}
        if self.place is None:
            from IPython.display import display

            self.place = display(shown, raw=True, display_id=True)
        else:
            self.place.update(shown, raw=True)


class Replaceable(Protocol):
    """What IPython gives for something shown under an id."""

    def update(self, shown: dict[str, str], *, raw: bool) -> None:
        """Show this in its place."""


def _bar(task: Task) -> str:
    """One bar as HTML: what, how far, how long, how much longer."""
    total = "" if task.total is None else f' value="{task.completed:g}" max="{task.total:g}"'
    count = f"{task.completed:,.0f}" + ("" if task.total is None else f" of {task.total:,.0f}")
    left = "" if task.time_remaining is None else f", {task.time_remaining:.0f} s left"
    words = f"{count}, {task.elapsed or 0:.0f} s{left} {task.fields.get('note', '')}"
    return f"<div>{html.escape(task.description)} <progress{total}></progress> {html.escape(words)}</div>"


def progress() -> Progress:
    """A progress display with time left; silent when stderr is neither a terminal nor a notebook's."""
    if err.is_jupyter:
        return NotebookDisplay()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    more = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    return Display(*columns, *more, console=err, disable=not err.is_terminal, transient=True)


def track(things: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar that says what is going on and how long it will take."""
    with nullcontext(Display.shown[-1]) if Display.shown else progress() as bar:
        task = bar.add_task(what, total=total if total is not None else len(things), note="")  # type: ignore[arg-type]
        try:
            for thing in things:
                yield thing
                bar.advance(task)
        finally:
            bar.remove_task(task)


@contextmanager
def download_progress(what: str, *, total: int, start: int = 0) -> Iterator[Callable[[int], None]]:
    """A progress bar in bytes with their speed; call it with the number that came."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    plain = Display(*columns, TimeRemainingColumn(), console=err, disable=not err.is_terminal, transient=True)
    with NotebookDisplay() if err.is_jupyter else plain as bar:
        name = what if len(what) <= NAME else what[: NAME - 3] + "..."  # the figures need their room
        task = bar.add_task(name, total=total, completed=start)
        yield lambda count: bar.advance(task, count)
