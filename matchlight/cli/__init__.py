"""The commands of `matchlight`: nothing but parsing and printing; each part of this folder registers its own.

`main` is what the shell calls. A command imports what it needs when it runs, so that `--help` never waits for torch.
A file is named for the commands in it. In the order of use:

    data.py       data scenes | info | convert | noise | labels | apply | cache
    features.py   data features
    travel.py     data export
    describe.py   what `data info` shows
    weights.py    weights list | get | where | remove
    models.py     methods, train, embed, import, demo
    share.py      push, export
    demo.py       what `demo` does, step by step
    evaluate.py   evaluate
    mine.py       mine
    compare.py    compare
    audit.py      audit
    index.py      index, search
    serve.py      serve
    photos.py     photos
    bench.py      bench score | train | search
    reproduce.py  reproduce
    options.py    options that several commands share
    output.py     what is printed, for a person or as JSON
    errors.py     an exception as an exit code and a line
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.errors import INTERRUPTED, report
from matchlight.console import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

# Torch's threads wait for each other by spinning, which on a machine with other work to do is ten times slower than
# sleeping. The setting is read when torch is loaded, so it is made here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# modules of this folder with a `register(app)`
PARTS = (
    "data",
    "features",
    "travel",
    "weights",
    "models",
    "share",
    "mine",
    "bench",
    "audit",
    "compare",
    "reproduce",
    "index",
    "serve",
    "photos",
)

BEGIN = f"""matchlight {VERSION}: search pictures by words, and find which captions of a data set are wrong

three commands to begin with:
  matchlight photos my_photos                         search a folder of pictures at once, in the browser
  matchlight data info my_photos                      what is in a folder of pictures, and what is wrong with it
  matchlight train --data my_photos -o run            teach a model; `matchlight index` makes it a search

all commands: matchlight --help"""

app = typer.Typer(
    name="matchlight",
    no_args_is_help=False,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"matchlight {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def matchlight(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Image-text retrieval that learns from messy data, finds what is wrong with it, and serves the search.

    Example: matchlight data scenes -o scenes
    """
    if context.invoked_subcommand is None:
        typer.echo(BEGIN)


def _register() -> None:
    for part in PARTS:
        import_module(f"{__name__}.{part}").register(app)


_register()


@cache
def _command() -> Callable[..., object]:
    """What runs a command line; to make the tree of commands takes longer than some of them."""
    return typer.main.get_command(app).main


def main(arguments: list[str] | None = None) -> int:
    """Run one command line (default: the shell's) and return its exit code; errors become a line on stderr."""
    try:
        code = _command()(arguments, prog_name="matchlight", standalone_mode=False)
    except SystemExit as stop:  # the reader of our output went away
        return stop.code if isinstance(stop.code, int) else 1
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    if code == INTERRUPTED:  # Typer turns an interrupt into this code and says nothing
        return report(KeyboardInterrupt())
    return code if isinstance(code, int) else 0
