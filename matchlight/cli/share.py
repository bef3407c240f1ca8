"""`matchlight push`: a run where others find it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matchlight.cli.options import Json
from matchlight.cli.output import as_typed, emit, say_next, tell


def push(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="What it is called on the Hugging Face hub.")],
    licence: Annotated[
        str, typer.Option("--license", help="The hub's short name of a licence: apache-2.0, mit, ...")
    ] = "",
    private: Annotated[bool, typer.Option("--private", help="Only you can see it.")] = False,
    into: Annotated[
        Path | None, typer.Option("--into", help="Write what would be pushed into a folder instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Put a run on the Hugging Face hub: model, vocabulary, card. No data, no checkpoints of training.

    Example: matchlight push runs/first me/first --license apache-2.0
    """
    from matchlight.runs.hub_runs import push as push_run
    from matchlight.runs.hub_runs import write_shareable

    if into is not None:
        written = write_shareable(run, into, licence=licence)
        emit({"folder": into, "files": written}) if json else tell(f"{into}: {', '.join(written)}")
        return
    address = push_run(run, name, licence=licence, private=private)
    emit({"address": address, "run": f"hf:{name}"}) if json else tell(address)
    if not json:
        say_next(f"matchlight evaluate {as_typed(f'hf:{name}')} --data my_photos", why="as anyone can now")


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(push)
