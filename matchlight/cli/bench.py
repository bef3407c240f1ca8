"""`matchlight bench score | train | search`: how much faster than the plain way this machine works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, choice
from matchlight.cli.output import emit, help_alone, table

if TYPE_CHECKING:
    from matchlight.comparing.speed import Speed

KNOWN = ("scan", "bfan", "sgr", "saf")
bench = typer.Typer(name="bench")
Which = Annotated[str, choice("--method", ("all", *KNOWN), "Which method's scores.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Dim = Annotated[int, typer.Option("--dim", min=16, help="Length of the vectors; the papers' is 1024.")]


@bench.callback(invoke_without_command=True)
def bare(context: typer.Context) -> None:
    """Speed as ratios against the plain way, on this machine.

    Example: matchlight bench score --method sgr
    """
    help_alone(context)


@bench.command()
def score(
    method: Which = "scan",
    device: Device = "auto",
    pictures: Annotated[int, typer.Option("--pictures", min=1, help="How many pictures.")] = 200,
    captions: Annotated[int, typer.Option("--captions", min=1, help="How many captions.")] = 1000,
    dim: Dim = 256,
    json: Json = False,
) -> None:
    """Score every picture with every caption, ours and caption by caption.

    Example: matchlight bench score --method sgr --pictures 1000 --captions 5000 --dim 1024
    """
    from matchlight.comparing.speed import score as measure

    lines = [measure(name, device=device, pictures=pictures, captions=captions, dim=dim) for name in chosen(method)]
    show("scoring", lines, json=json)


@bench.command()
def train(
    method: Which = "scan",
    device: Device = "auto",
    batch: Annotated[int | None, typer.Option("--batch", min=2, help="Pairs a step; 32 on a CPU, else 128.")] = None,
    dim: Dim = 256,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or bf16, for ours.")] = "auto",
    json: Json = False,
) -> None:
    """Take one training step, ours and caption by caption.

    Example: matchlight bench train --method sgr --dim 1024
    """
    from matchlight.comparing.speed import train as measure

    lines = [measure(name, device=device, batch=batch, dim=dim, precision=precision) for name in chosen(method)]
    show("one training step", lines, json=json)


@bench.command()
def search(
    items: Annotated[int, typer.Option("--items", min=100, help="How many pictures.")] = 10_000,
    each: Annotated[int, typer.Option("--each", min=1, max=64, help="Vectors a picture.")] = 4,
    dim: Dim = 256,
    target: Annotated[float, typer.Option("--target", min=0.5, max=1.0, help="Share of the true best ten.")] = 0.98,
    json: Json = False,
) -> None:
    """Search drawn sets with candidates from an engine, and by scoring everything.

    Example: matchlight bench search --items 100000
    """
    from matchlight.indexing.search_speed import time_drawn_sets

    line = time_drawn_sets(items, each=each, dim=dim, target=target)
    if json:
        emit(line)
        return
    rows = [
        ["candidates", line["milliseconds"]["p50"], line["milliseconds"]["p95"], line["candidates"]],
        ["everything", line["exact_milliseconds"]["p50"], line["exact_milliseconds"]["p95"], items],
    ]
    title = f"{line['ratio']} times faster, {line['recall']:.1%} of the true best ten"
    table(title, ["scored", "p50, ms", "p95, ms", "items"], rows)


def chosen(method: str) -> tuple[str, ...]:
    """The methods asked for."""
    return KNOWN if method == "all" else (method,)


def show(title: str, lines: list[Speed], *, json: bool) -> None:
    """A table, or one object (several methods: a list under "results")."""
    if json:
        emit(lines[0] if len(lines) == 1 else {"results": lines})
        return
    rows = [
        [
            line["method"],
            f"{line['ours_seconds']:.4g}",
            f"{line['naive_seconds']:.4g}",
            f"{line['ratio']:.1f}",
            f"{line['largest_difference']:.1g}",
        ]
        for line in lines
    ]
    columns = ["method", "ours, s", "caption by caption, s", "times faster", "largest difference"]
    table(f"{title} on {lines[0]['device']}", columns, rows)


def register(app: typer.Typer) -> None:
    """Add the group to the main app."""
    app.add_typer(bench)
