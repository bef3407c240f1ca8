"""`matchlight photos`: a folder of pictures becomes a page to search it with, in one command and with no training."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, command_of
from matchlight.cli.output import as_typed, emit, say_next, tell

if TYPE_CHECKING:
    from matchlight.indexing.photo_folder import Look


@dataclass(kw_only=True)
class PhotosOptions:
    """The options of `matchlight photos`."""

    folder: Annotated[Path, typer.Argument(help="A folder of pictures, with or without captions.")]
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME|RUN", help="starter, starter-small or a run; default: the best here."),
    ] = None
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The index folder; default: in the cache.")] = None
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on looking for new, changed and removed files until Ctrl-C.")
    ] = False
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Open the page, or stop before it.")] = True
    port: Annotated[int, typer.Option(min=0, max=65535, help="The page's port; another if it is taken.")] = 8000
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto"
    json: Json = False


@command_of(PhotosOptions)
def photos(asked: PhotosOptions) -> None:
    """Index a folder of pictures with the best starter on this machine and open the page.

    Called again it takes up only what is new, changed or gone. The folder itself is never written to.

    Example: matchlight photos ~/Pictures
    """
    from matchlight.indexing.photo_folder import follow

    if asked.serve:
        from matchlight.serve import require

        require()
    look = partial(follow, asked.folder, _model(asked.model), asked.out, device=asked.device)
    found = look()
    if asked.serve:
        _serve(asked, found, look)
        return
    _told(found, json=asked.json)
    if not asked.json:
        index = as_typed(found.index)
        say_next(f'matchlight search {index} "a dog on a beach"', why=f"or a page: matchlight serve {index}")
    if asked.watch:
        _watch(look, threading.Event())


def _model(named: str | None) -> str:
    """What reads the pictures: as asked, else the best that is here, and what would be better is said."""
    from matchlight.console import say
    from matchlight.runs.starters import LARGE, best_starter

    if named is not None:
        return named
    best = best_starter()
    better = "" if best is LARGE else f"; `{LARGE.fix}` makes the search better, and reading the pictures slower"
    say(f"{best.name} reads the pictures ({best.what}){better}")
    return best.name


def _told(found: Look, *, json: bool, **more: object) -> None:
    from matchlight.indexing.photo_folder import in_a_sentence

    if json:
        emit({**found.to_json(), **more})
        return
    tell(f"{found.index}: {in_a_sentence(found)}")


def _watch(look: Callable[[], Look], end: threading.Event) -> None:
    from matchlight.indexing.photo_folder import watch

    watch(look, stopped=end.wait)


def _serve(asked: PhotosOptions, found: Look, look: Callable[[], Look]) -> None:
    """The page until Ctrl-C; with --watch a thread keeps the index up to date, and the page takes up each version."""
    from matchlight.cli.serve import share_cores
    from matchlight.console import say
    from matchlight.serve import create, server
    from matchlight.serve.rules import Limits

    share_cores(Limits().workers)
    app = create(found.index, data=asked.folder, changing=True)
    sock = server.bound_here(asked.port)
    address, end = server.address(sock), threading.Event()
    _told(found, json=asked.json, address=address)
    if not asked.json:
        tell(address)
    say("Ctrl-C ends it")
    if asked.watch:
        threading.Thread(target=_watch, args=(look, end), name="watch", daemon=True).start()
    if sys.stdout.isatty():
        webbrowser.open(address)
    try:
        server.run(app, sock)
    finally:
        end.set()


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(photos)
