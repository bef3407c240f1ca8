"""`matchlight push | export`: a run where others find it, and in the form that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matchlight.cli.options import Json
from matchlight.cli.output import as_typed, emit, megabytes, say_next, tell


def push(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="What it is called on the Hugging Face hub.")],
    licence: Annotated[
        str, typer.Option("--license", help="The hub's short name of a licence: apache-2.0, mit, ...")
    ] = "",
    private: Annotated[bool, typer.Option("--private", help="Only you can see it.")] = False,
    into: Annotated[
        Path | None, typer.Option("--into", help="Write what would be pushed into a folder instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Put a run on the Hugging Face hub: model, vocabulary, card. No data, no checkpoints of training.

    Example: matchlight push runs/first me/first --license apache-2.0
    """
    from matchlight.runs.hub_runs import push as push_run
    from matchlight.runs.hub_runs import write_shareable

    if into is not None:
        written = write_shareable(run, into, licence=licence)
        emit({"folder": into, "files": written}) if json else tell(f"{into}: {', '.join(written)}")
        return
    address = push_run(run, name, licence=licence, private=private)
    emit({"address": address, "run": f"hf:{name}"}) if json else tell(address)
    if not json:
        say_next(f"matchlight evaluate {as_typed(f'hf:{name}')} --data my_photos", why="as anyone can now")


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.onnx", help="The file to write.")],
    int8: Annotated[
        bool, typer.Option("--int8", help="Round weights to int8: smaller, and not quite the same.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Pictures and captions to compare with torch, beside random ones."),
    ] = None,
    json: Json = False,
) -> None:
    """Write both towers of a run as one ONNX file, checked against torch; of a dual encoder it is a run by itself.

    Example: matchlight export runs/first -o first.onnx --data my_photos
    """
    from dataclasses import asdict

    from matchlight.pairs import Pairs
    from matchlight.runs.folder import Run
    from matchlight.runs.onnx_export import export_onnx

    made = export_onnx(Run.load(run, device="cpu"), out, int8=int8, pairs=Pairs.read(data) if data else None)
    if json:
        emit(asdict(made))
        return
    compared = made.random if made.real is None else max(made.random, made.real)
    near = f"mean cosine {made.cosine:.4f}" if int8 else f"largest difference {compared:.1e}"
    tell(f"{out}: opset {made.opset}, {megabytes(made.bytes)}; against torch: {near}")
    say_next(f"matchlight index --model {as_typed(out)} --data my_photos -o index")


def register(app: typer.Typer) -> None:
    """Add these commands to the main app."""
    app.command()(push)
    app.command()(export)
