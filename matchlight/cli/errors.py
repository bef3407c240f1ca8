"""Errors in one line: an exception -> the exit code and the lines for stderr. No traceback reaches a user.

Exit 2 is bad usage or bad input (a mistyped option, a broken file, a folder that cannot be written), 130 an interrupt,
1 a failure of ours. `MATCHLIGHT_DEBUG=1` adds the traceback to any of them.
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from typing import Protocol, TypeGuard

import typer

from matchlight.console import BadInput, visible

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
DEBUG = "MATCHLIGHT_DEBUG"


def explain(error: BaseException) -> tuple[int, list[str]]:
    """The exit code and the lines to print for whatever stopped a command."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, ["interrupted"]
    if _is_usage(error):
        return BAD_INPUT, _usage(error)
    if isinstance(error, BadInput):
        return BAD_INPUT, [one_line(str(error))]
    if isinstance(error, OSError):
        return BAD_INPUT, [_system(error)]
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error):
        return BAD_INPUT, ["not enough memory for these sizes; a smaller batch= or dim= needs less"]
    if type(error).__name__ == "ProcessLost":  # its class is not known here before torch is loaded
        return FAILURE, [one_line(str(error))]
    what = one_line(f"{type(error).__name__}: {error}".removesuffix(": "))
    return FAILURE, [f"internal failure: {what}", f"set {DEBUG}=1 for the traceback"]


def report(error: BaseException) -> int:
    """Print what `explain` says to stderr, with the traceback if it is asked for; the exit code comes back."""
    code, lines = explain(error)
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error)
    devices = sys.modules.get("matchlight.devices")  # not loaded: there is one process
    if devices is not None and not devices.is_first_to_say(lines[0]):
        return code
    for number, line in enumerate(lines):
        print(line if number else f"matchlight: {line}", file=sys.stderr)
    return code


def one_line(text: str, limit: int = 500) -> str:
    """The text on one line; what a terminal would obey (escapes hidden in a file's name) is shown, not sent."""
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def nearest(word: str, known: list[str]) -> str:
    """'; did you mean X?' for the known word nearest to a mistyped one, else nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


class UsageError(Protocol):
    """What a wrong command line raises, in Click and in Typer's copy of it."""

    message: str
    exit_code: int

    def format_message(self) -> str:
        """The message for a person."""


def _is_usage(error: BaseException) -> TypeGuard[UsageError]:
    # Older Typers raise Click's errors, newer ones those of a copy inside: ask what an error can do, not for its class.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _usage(error: UsageError) -> list[str]:
    context = getattr(error, "ctx", None)
    lines = [one_line(_usage_message(error, context))]
    return [*lines, f"try '{context.command_path} --help'"] if context else lines


def _usage_message(error: UsageError, context: typer.Context | None) -> str:
    message = error.message or error.format_message()
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):  # no such option
        known = [name for param in context.command.params for name in param.opts] if context else []
        return f"no option {option}{nearest(option, known)}"
    commands = getattr(getattr(context, "command", None), "commands", None)
    if commands and message.startswith("No such command"):
        word = message.split("'")[1] if "'" in message else ""
        return f"no command {word!r}{nearest(word, list(commands)) or '; known: ' + ', '.join(commands)}"
    text = error.format_message().removesuffix(".")
    return text[:1].lower() + text[1:]


def _system(error: OSError) -> str:
    files = sys.modules.get("matchlight.files")  # not loaded: nothing was written
    full: str | None = files.FULL if files is not None and files.is_full(error) else None
    places = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    if not places:
        return one_line(full or str(error) or type(error).__name__.lower())
    return one_line(f"{' -> '.join(places)}: {full or (error.strerror or type(error).__name__).lower()}")
