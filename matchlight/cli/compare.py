"""`matchlight compare`: how well methods stand noise, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, choice, command_of
from matchlight.cli.output import emit, table, tell

if TYPE_CHECKING:
    from matchlight.comparing.results_table import Results

PROTOCOLS = ("auto", "recall", "five-fold", "labels")


@dataclass(kw_only=True)
class CompareOptions:
    """The options of `matchlight compare`."""

    methods: Annotated[
        list[str], typer.Argument(help="Names from `matchlight methods`; name=value belongs to the method before it.")
    ]
    data: Annotated[Path, typer.Option("--data", help="Any data set that `matchlight data info` understands.")]
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for runs and results; called again, it goes on.")]
    noise: Annotated[str, typer.Option(metavar="SHARES", help="Shares of noise to train with.")] = "0,0.2,0.4"
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds 0, 1, ... of every entry.")] = 1
    per: Annotated[
        str, choice("--per", ("caption", "picture"), "Captions move one by one, or a picture's all together.")
    ] = "caption"
    kind: Annotated[
        str, choice("--kind", ("symmetric", "asymmetric"), "How labels flip, for methods that learn from labels.")
    ] = "symmetric"
    split: Annotated[str, typer.Option(help="Which split to measure.")] = "test"
    protocol: Annotated[str, choice("--protocol", PROTOCOLS, "What to measure.")] = "auto"
    device: Annotated[
        str, typer.Option("--device", help="auto, cpu or cuda; cuda:0,cuda:1 trains two entries at a time.")
    ] = "auto"
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or bf16.")] = "auto"
    json: Json = False


@command_of(CompareOptions)
def compare(asked: CompareOptions) -> None:
    """Train methods at several shares of noise, measure them on test, and put the results in one table.

    Writes report.html, table.md, table.tex, table.csv, curves.svg and results.json beside the runs. A killed comparison
    goes on where it stopped; finished entries are not trained again. name=value before the first method is for all.

    Example: matchlight compare vse++ scan ncr scorer=saf --data scenes --noise 0,0.2,0.4 -o compared
    """
    from matchlight.comparing.grid import Settings, failures
    from matchlight.comparing.several_devices import compare_on
    from matchlight.comparing.variants import parse_variants

    variants, shares = parse_variants(asked.methods), _shares(asked.noise)
    devices = [name.strip() for name in asked.device.split(",")]
    settings = Settings(
        per=asked.per, kind=asked.kind, split=asked.split, protocol=asked.protocol, precision=asked.precision
    )
    results = compare_on(
        devices, variants, asked.data, asked.out, noise=shares, seeds=asked.seeds, settings=settings, show=_so_far
    )
    emit(results) if asked.json else _print(results, asked.out)
    failures(results)


def _shares(text: str) -> list[float]:
    from matchlight.console import BadInput

    try:
        shares = [float(word) for word in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 1 for share in shares):  # False for nan
        raise BadInput(f"--noise {text}: shares between 0 and 1 with commas between them, as in 0,0.2,0.4")
    return shares


def _print(results: Results, out: Path) -> None:
    from matchlight.comparing.results_table import wide
    from matchlight.measuring.significance import NOTE

    header, rows = wide(results)
    table("", header, rows)
    if any("*" in entry for row in rows for entry in row[2:]):
        tell(NOTE)
    tell(f"look at {out / 'report.html'}")


def _so_far(results: Results) -> None:
    """The table as it stands, for whoever watches."""
    from matchlight.comparing.results_table import wide
    from matchlight.console import say

    header, rows = wide(results)
    for row in [header, *rows]:
        say("  ".join(f"{entry:<24.24}" if k == 0 else f"{entry:>14}" for k, entry in enumerate(row)))


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(compare)
