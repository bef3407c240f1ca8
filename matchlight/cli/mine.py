"""`matchlight mine`: what a trained model confuses over a whole split, as lists that a second round trains on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from matchlight.cli.options import Json, choice, command_of
from matchlight.cli.output import as_typed, emit, say_next, tell


@dataclass(kw_only=True)
class MineOptions:
    """The options of `matchlight mine`."""

    run: Annotated[Path, typer.Argument(help="A run folder.")]
    data: Annotated[Path, typer.Option("--data", help="Any data set that `matchlight data info` understands.")]
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write the lists to.")]
    top: Annotated[int, typer.Option(min=1, help="Captions a picture; pictures a caption follow from it.")] = 300
    split: Annotated[str, typer.Option(help="Which split.")] = "train"
    coarse: Annotated[
        int | None,
        typer.Option(min=1, help="Propose so many times --top with single vectors and score only those exactly."),
    ] = None
    memory: Annotated[
        float | None, typer.Option(min=0.01, help="GB to work in (default: a share of what is free).")
    ] = None
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto"
    precision: Annotated[str, choice("--precision", ("fp32", "tf32"), "Exact products, or a GPU's fast ones.")] = "fp32"
    json: Json = False


@command_of(MineOptions)
def mine(asked: MineOptions) -> None:
    """List each picture's and each caption's hardest negatives in a whole split. A stopped search goes on.

    Example: matchlight mine runs/first --data scenes -o candidates --top 100
    """
    from matchlight.pairs import Pairs
    from matchlight.runs.evaluation import products_in
    from matchlight.runs.folder import Run
    from matchlight.runs.hard_negatives import mine_run

    loaded = Run.load(asked.run, device=asked.device)
    room = None if asked.memory is None else int(asked.memory * 1e9)
    with products_in(asked.precision, loaded.device):
        found, about = mine_run(
            loaded,
            Pairs.read(asked.data),
            asked.out,
            top=asked.top,
            split=asked.split,
            coarse=asked.coarse,
            memory=room,
        )
    texts, images = found.texts.shape[1], found.images.shape[1]
    if asked.json:
        emit({"folder": asked.out, **about, "top": texts, "images": images})
        return
    lists = f"{texts} captions for each of {len(found.pictures)} pictures, {images} pictures for each caption"
    tell(f"{asked.out}: {lists}, in {about['seconds']} s")
    lists, data = as_typed(asked.out), as_typed(asked.data)
    say_next(f"matchlight train aoq base={loaded.method} candidates={lists} --data {data} -o second")


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(mine)
