"""`matchlight serve`: an index as a page and a REST API."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from matchlight.cli.options import Address


def serve(
    index: Annotated[Path, typer.Argument(help="An index folder of `matchlight index`.")],
    host: Annotated[str, typer.Option(help="The address to listen on; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 = any free one.")] = 8000,
    audit: Annotated[Path | None, typer.Option(help="A folder of `matchlight audit`, to review its suspects.")] = None,
    data: Annotated[Path | None, typer.Option(help="The indexed data, to show its pictures in full size.")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="MATCHLIGHT_TOKEN", show_envvar=True, help="A word that clients must know.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Another name this server goes by (behind a proxy).")
    ] = None,
    address: Address = None,
) -> None:
    """Serve an index: a page to search, look closer and review, and the API behind it.

    A new version of the index is taken up while running. Ctrl-C ends it.

    Example: matchlight serve indexes/one --audit audits/one
    """
    from matchlight.serve import require

    require()
    from matchlight.console import say
    from matchlight.serve import create, server
    from matchlight.serve.rules import Limits, Rules

    Rules.of(host, token)  # what is refused is refused before anything slow is loaded
    sock = server.bound(host, port)
    limits = Limits(workers=min(4, max(2, os.cpu_count() or 1)))
    share_cores(limits.workers)
    app = create(
        index,
        audit=audit,
        data=data,
        token=token,
        host=host,
        allow_hosts=allow_host or (),
        limits=limits,
        address=address,
    )
    typer.echo(server.address(sock, token))
    say("Ctrl-C ends it")
    server.run(app, sock)


def share_cores(workers: int) -> None:
    """As many threads in all as there are cores: workers that each take them all only wait for each other."""
    each = max(1, (os.cpu_count() or 1) // workers)
    os.environ["OMP_NUM_THREADS"] = str(each)  # for what is loaded from now on
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(each)


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(serve)
