"""`matchlight compare`: how well methods stand noise, in one table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, choice, command_of
from matchlight.cli.output import emit, table, tell

if TYPE_CHECKING:
    from matchlight.comparing.cell_run import Settings
    from matchlight.comparing.noise_columns import Noise
    from matchlight.comparing.results_table import Results
    from matchlight.comparing.variants import Variant

PROTOCOLS = ("auto", "recall", "five-fold", "labels")
LONGEST = 48  # characters of a row's name while the table grows


@dataclass(kw_only=True)
class CompareOptions:
    """The options of `matchlight compare`."""

    methods: Annotated[
        list[str], typer.Argument(help="Names from `matchlight methods`; name=value belongs to the method before it.")
    ]
    data: Annotated[Path, typer.Option("--data", help="Any data set that `matchlight data info` understands.")]
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for runs and results; called again, it goes on.")]
    noise: Annotated[
        str,
        typer.Option(
            metavar="SHARES", help="Shares of noise to train with; 0.6p: of pictures, with all their captions."
        ),
    ] = "0,0.2,0.4"
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
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Entries trained side by side on each device.")] = 1
    keep: Annotated[
        str, choice("--keep", ("runs", "reports"), "What stays of a run that is measured: all, or its report and log.")
    ] = "runs"
    share: Annotated[
        str, typer.Option(metavar="K/N", help="The K-th of N parts of the table, for machines without a common folder.")
    ] = "1/1"
    merge: Annotated[
        list[Path] | None,
        typer.Option("--merge", metavar="FOLDER", help="Take over what is finished in this folder; may be repeated."),
    ] = None
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or bf16.")] = "auto"
    json: Json = False


@command_of(CompareOptions)
def compare(asked: CompareOptions) -> None:
    """Train methods at several shares of noise, measure them on test, and put the results in one table.

    Writes report.html, table.md, table.tex, table.csv, curves.svg and results.json beside the runs. A killed comparison
    goes on where it stopped; finished entries are not trained again. name=value before the first method is for all.

    Behind a method, as=NAME is what its row is called, oracle=true trains it on the right pairs only, and from=NAME
    begins it with the runs of the row NAME of the same noise and seed.

    Example: matchlight compare vse++ scan ncr scorer=saf --data scenes --noise 0,0.2,0.4 -o compared
    """
    from matchlight.comparing.cell_run import Settings
    from matchlight.comparing.grid import failures
    from matchlight.comparing.noise_columns import parse_noise
    from matchlight.comparing.several_devices import compare_on
    from matchlight.comparing.variants import parse_variants

    variants, noise = parse_variants(asked.methods), parse_noise(asked.noise)
    devices = [name.strip() for name in asked.device.split(",")]
    settings = Settings(
        per=asked.per,
        kind=asked.kind,
        split=asked.split,
        protocol=asked.protocol,
        precision=asked.precision,
        keep="reports" if asked.keep == "reports" else "runs",
        jobs=asked.jobs,
        part=_part(asked.share),
    )
    if asked.merge:
        _merge(asked, variants, noise, settings)
    results = compare_on(
        devices, variants, asked.data, asked.out, noise=noise, seeds=asked.seeds, settings=settings, show=_shower()
    )
    emit(results) if asked.json else _print(results, asked.out)
    failures(results)


def _merge(asked: CompareOptions, variants: list[Variant], noise: list[Noise], settings: Settings) -> None:
    from matchlight.comparing.merging import merge
    from matchlight.comparing.variants import all_cells
    from matchlight.pairs import Pairs

    merge(asked.merge or [], asked.out, all_cells(variants, noise, asked.seeds), Pairs.read(asked.data), settings)


def _part(text: str) -> tuple[int, int]:
    from matchlight.console import BadInput

    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise BadInput(f"--share {text}: which of how many parts, as in 1/3, 2/3 and 3/3")
    return int(number), int(parts)


def _print(results: Results, out: Path) -> None:
    from matchlight.comparing.results_table import wide
    from matchlight.measuring.significance import NOTE

    header, rows = wide(results)
    table("", header, rows)
    if any("*" in entry for row in rows for entry in row[2:]):
        tell(NOTE)
    tell(f"look at {out / 'report.html'}")


def _shower() -> Callable[[Results], None]:
    """Shows the table as it stands, with the time since now, for whoever watches."""
    from matchlight.comparing.results_table import wide
    from matchlight.console import say

    began = time.monotonic()

    def show(results: Results) -> None:
        for line in as_lines(*wide(results)):
            say(line)
        done, lost = len(results["cells"]), len(results["failed"])
        left = f", {lost} failed" if lost else ""
        say(f"{done} entries measured{left} after {time.monotonic() - began:.0f} s")

    return show


def as_lines(header: list[str], rows: list[list[str]]) -> list[str]:
    """The table as text: names as wide as the longest, columns as wide as their heading."""
    names = [_short(row[0]) for row in (header, *rows)]
    first = max(map(len, names))
    columns = [max(14, len(heading)) for heading in header[1:]]
    return [
        "  ".join([f"{name:<{first}}", *(f"{entry:>{width}}" for entry, width in zip(row[1:], columns, strict=True))])
        for name, row in zip(names, (header, *rows), strict=True)
    ]


def _short(name: str) -> str:
    """A name without its middle where it is long: what tells two variants of a method apart stands at the end."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[: half - 2]} .. {name[2 - half :]}"


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(compare)
