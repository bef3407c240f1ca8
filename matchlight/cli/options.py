"""Options that several commands share, written once so that they read and fail alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typer.models import OptionInfo

from matchlight import plugins
from matchlight.cli.errors import nearest

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


def choice(flag: str, names: Sequence[str], help: str, *, group: str | None = None) -> OptionInfo:
    """An option that takes one of some names, or a plug-in's of a group; a mistyped one is told the nearest."""

    def check(value: str | None) -> str | None:
        if value is None or value in names:
            return value
        known = [*names, *(plugins.added(group) if group else ())]
        if value in known:
            return value
        raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}{nearest(value, known)}")

    option: OptionInfo = typer.Option(flag, metavar="|".join(names), help=help, callback=check)
    return option
