"""`matchlight reproduce`: a table or figure of the papers, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matchlight.cli.options import Json, command_of
from matchlight.cli.output import emit, say_next, table, tell

if TYPE_CHECKING:
    from matchlight.pairs import Pairs


@dataclass(kw_only=True)
class ReproduceOptions:
    """The options of `matchlight reproduce`."""

    name: Annotated[str | None, typer.Argument(help="What to make, or all; without a name, what there is.")] = None
    settings: Annotated[
        list[str] | None, typer.Argument(help="name=value for whatever is trained, as in epochs=20 preset=paper.")
    ] = None
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="Any data that `matchlight data info` understands; for some, several times."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The folder for figures, numbers and runs; called again, it goes on."),
    ] = None
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Seeds 0, 1, ... to average over.")] = 1
    quick: Annotated[bool, typer.Option("--quick", help="Few methods, few epochs: to see that it works.")] = False
    noise: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of wrong labels or pairs (default: each exhibit's).")
    ] = None
    run: Annotated[
        list[Path] | None, typer.Option(help="Look at this run instead of training one; twice: before and after.")
    ] = None
    scores: Annotated[list[Path] | None, typer.Option(help="Score matrices (.npy) instead of runs.")] = None
    truth: Annotated[Path | None, typer.Option(help="truth.json of `data noise`: colours clean and noisy pairs.")] = (
        None
    )
    superclasses: Annotated[
        Path | None, typer.Option(help="JSON of {class: super-class}: names the cause of wrong answers.")
    ] = None
    split: Annotated[
        str | None, typer.Option(help="What is measured and shown (default: testall if there is one, else test).")
    ] = None
    fold: Annotated[
        int | None, typer.Option(min=1, help="Pictures of a gallery: figures are means over galleries of that size.")
    ] = None
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto"
    json: Json = False


@command_of(ReproduceOptions)
def reproduce(asked: ReproduceOptions) -> None:
    """Make a table or figure of the papers on your data: PNG, SVG, CSV and JSON; with the name `all`, every one.

    What it needs is trained into the folder `runs` below the output and not trained again.

    Example: matchlight reproduce mrl-pr --data wikipedia -o figures --noise 0.6
    """
    if asked.name is None:
        _list(json=asked.json)
        return
    from matchlight.console import BadInput
    from matchlight.reproduce import exhibit
    from matchlight.reproduce.everything import ALL

    chosen = None if asked.name == ALL else exhibit(asked.name)
    if not asked.data or asked.out is None:
        raise BadInput(f"{asked.name} needs {'-o DIR' if asked.data else '--data PATH'}")
    own = {name: getattr(asked, name) or None for name in ("run", "scores", "truth", "superclasses")}
    own["noise"] = asked.noise
    if chosen is None:
        _all(asked, own)
        return
    shared = _shared(asked)
    chosen.refuse(own | shared)
    result = chosen(_read(asked), asked.out, **own, **shared)
    emit(result) if asked.json else _print(result, asked.out)


def _shared(asked: ReproduceOptions) -> dict[str, Any]:
    """What any exhibit can be asked."""
    from matchlight.training.registry import parse

    given = {name: getattr(asked, name) for name in ("seeds", "quick", "device", "split", "fold")}
    return {**given, "settings": parse(asked.settings or [])}


def _read(asked: ReproduceOptions) -> list[Pairs]:
    from matchlight.pairs import Pairs

    return [Pairs.read(path) for path in asked.data or []]


def _all(asked: ReproduceOptions, own: dict[str, Any]) -> None:
    """Every exhibit; exit 1 where one failed, 2 where the data suits none."""
    from matchlight.console import BadInput
    from matchlight.reproduce import reproduce_all

    assert asked.out is not None
    for name, value in own.items():
        if value is not None:
            raise BadInput(f"all takes no option {name!r}: it belongs to single exhibits")
    if len(asked.data or []) > 1:
        raise BadInput(f"all is made of one data set; {len(asked.data or [])} were given")
    outcomes = reproduce_all(_read(asked)[0], asked.out, **_shared(asked))
    states = {
        state: [one for one in outcomes if one.state == state] for state in ("made", "kept", "left out", "failed")
    }
    if asked.json:
        emit([vars(one) for one in outcomes])
    else:
        counts = ", ".join(f"{len(some)} {state}" for state, some in states.items() if some)
        tell(f"{asked.out}: {counts}; all.md lists them, contact-sheet.png shows them")
    if states["failed"]:
        raise typer.Exit(1)
    if not states["made"] and not states["kept"]:
        raise BadInput(f"{asked.out}: no exhibit can be made of this data; {outcomes[0].why}")


def _list(*, json: bool) -> None:
    from matchlight.reproduce import EXHIBITS

    if json:
        fields = ("name", "paper", "shows", "needs", "options")
        emit([{field: getattr(one, field) for field in fields} for one in EXHIBITS.values()])
        return
    wide = max(map(len, EXHIBITS)) + 2
    for paper in dict.fromkeys(one.paper for one in EXHIBITS.values()):
        tell(paper)
        for one in EXHIBITS.values():
            if one.paper == paper:
                typer.echo(f"  {one.name:<{wide}}{one.shows}")
                typer.echo(f"  {'':<{wide}}  needs {one.needs}")
    typer.echo("all of them: matchlight reproduce all --quick --data PATH -o DIR")
    say_next(f"matchlight reproduce {next(iter(EXHIBITS))} --data scenes -o figures --quick")


def _print(result: dict[str, Any], out: Path) -> None:
    from matchlight.reproduce.numbers import shown

    lines = result["table"]
    if lines:
        columns = list(dict.fromkeys(name for line in lines for name in line))
        table("", columns, [[shown(line.get(name)) for name in columns] for line in lines])
    tell(f"{out}: {', '.join(result['files'])}")


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(reproduce)
