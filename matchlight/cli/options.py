"""Options that several commands share, written once so that they read and fail alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from matchlight.cli.errors import nearest

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


def choice(flag: str, names: Sequence[str], help: str) -> Any:
    """An option that takes one of some names; a mistyped one is told the nearest."""

    def check(value: str | None) -> str | None:
        if value is None or value in names:
            return value
        raise typer.BadParameter(f"{value!r} is none of {', '.join(names)}{nearest(value, list(names))}")

    return typer.Option(flag, metavar="|".join(names), help=help, callback=check)
