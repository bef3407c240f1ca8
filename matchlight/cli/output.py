"""What a command leaves on stdout: one JSON object under `--json`, else lines and tables for a person."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from matchlight.console import say, visible


def help_alone(context: typer.Context) -> None:
    """A group called without a command says what its commands are."""
    if context.invoked_subcommand is None and (text := context.get_help()):  # Rich has printed it by then
        typer.echo(text)


def tell(line: str) -> None:
    """A line for a person on stdout; a path or a name of a stranger's that a terminal would obey is shown, not sent."""
    typer.echo(visible(line))


def say_next(command: str, *, why: str = "") -> None:
    """The last line of a command, on stderr: what to do next."""
    say(f"next: {command}" + (f"  ({why})" if why else ""))


def as_typed(path: Path | str) -> str:
    """A path as it is typed in a shell, quoted where it has to be."""
    return shlex.quote(str(path))


def emit(result: object) -> None:
    """Print one JSON value; arrays become lists, paths text, and what JSON cannot say (nan, infinity) null."""
    typer.echo(json.dumps(_plain(result), allow_nan=False))


def table(title: str, columns: list[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a neat table: the first column is names, the others are numbers or short texts, set to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    sheet = Table(title=Text(visible(title)) if title else None, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        sheet.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        sheet.add_row(*(Text(visible(shown(value))) for value in row))
    Console(highlight=False).print(sheet)


def shown(value: object) -> str:
    """A value for a person: 12,345; 36 x 2048; image 12, text 14."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " ".join(map(shown, value))
    return str(value)


def megabytes(count: int) -> str:
    """Bytes for a person: 12.3 MB."""
    return f"{count / 1e6:,.1f} MB"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's and torch's arrays and numbers, without importing either
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
