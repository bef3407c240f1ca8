"""`matchlight data export`: an audit for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matchlight.cli.data import data
from matchlight.cli.options import Json, choice
from matchlight.cli.output import as_typed, emit, say_next, tell

TOOLS = ("label-studio", "fiftyone", "parquet", "datalab")
NEXT = {
    "label-studio": "matchlight data apply {audit} --decisions EXPORT.json -o DIR",
    "fiftyone": "fo.Dataset.from_dir({out!r}, dataset_type=fo.types.FiftyOneDataset)",
    "parquet": "datasets.load_dataset({out!r})",
    "datalab": "pandas.read_csv('{out}/issues.csv', index_col='row')",
}


def export(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT", help="The folder of an audit.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write: a new or an empty folder.")],
    to: Annotated[str, choice("--to", TOOLS, "The tool that shall read it.")],
    rows: Annotated[
        str | None,
        choice("--rows", ("suspects", "all"), "Which pairs; default: suspects for label-studio, all for the others."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--data", metavar="PATH", help="Where the audited data lies now, if it was moved.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an audit for another tool: Label Studio, FiftyOne, Hugging Face datasets, cleanlab.

    Example: matchlight data export audits/one --to label-studio -o tasks
    """
    from matchlight.auditing.travel import send

    done = send(audit, out, to=to, rows=rows, data=source)
    if as_json:
        emit(done)
        return
    tell(f"{out}: {done['pairs']:,} pairs for {to}")
    first = "once the tasks were imported, answered and exported as JSON" if to == "label-studio" else ""
    say_next(NEXT[to].format(audit=as_typed(audit), out=str(out)), why=first)


def register(app: typer.Typer) -> None:
    """Add the command to `matchlight data`."""
    data.command()(export)
