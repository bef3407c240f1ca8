"""`matchlight methods | train | embed | import | demo`: from a method's name to a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.evaluate import Device, print_report
from matchlight.cli.evaluate import evaluate as evaluate_command
from matchlight.cli.options import ClusterOptions, Data, Json, choice, command_of
from matchlight.cli.output import as_typed, emit, say_next, table, tell

if TYPE_CHECKING:
    from matchlight.runs.folder import Run
    from matchlight.training.registry import Method

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Everything random follows from it.")]
OPTIONS = (
    "data",
    "device",
    "from",
    "log",
    "out",
    "precision",
    "resume",
    "save-minutes",
    "seed",
    "stream",
    "tensorboard",
)  # of train
CHECKPOINTS = "Authors' files (several make an ensemble), hf:NAME_OR_FOLDER, or a run with LoRA adapters to merge."
OVERRIDES = "preset=auto|paper|small, strategy=ncr|ncr+|aoq, name=value ..."


def methods(
    name: Annotated[str | None, typer.Argument(help="One of them: its arguments and presets.")] = None,
    json: Json = False,
) -> None:
    """List every method: its name, its paper and what it needs; of one, its arguments and presets.

    Example: matchlight methods dive
    """
    from matchlight.training.registry import asked_for, methods

    if name is not None:
        _one(asked_for(name), json=json)
        return
    if json:
        emit([_described(method) for method in methods().values()])
        return
    table("", ["method", "needs", "paper"], [[m.name, ", ".join(m.needs), m.paper] for m in methods().values()])
    say_next("matchlight methods vse_infty", why="its arguments and presets")


def _one(chosen: Method, *, json: bool) -> None:
    """The arguments of a method, with the paper's values and what the presets change."""
    from matchlight.training.registry import Chosen

    if json:
        emit(_described(chosen))
        return
    whole = Chosen.of(chosen, {})
    presets = whole.presets.items()
    rows = [
        [name, str(value), ", ".join(f"{one} {preset[name]}" for one, preset in presets if name in preset)]
        for name, value in whole.defaults.items()
    ]
    table(f"{chosen.name}: {chosen.paper}", ["argument", "paper", "presets"], rows)
    say_next(f"matchlight train {as_typed(chosen.name)} --data my_photos -o run")


def _described(method: Method) -> dict[str, object]:
    from matchlight.training.registry import Chosen

    whole = Chosen.of(method, {})
    return {
        "name": method.name,
        "paper": method.paper,
        "needs": list(method.needs),
        "defaults": whole.defaults,
        "presets": ["auto", *whole.presets],
    }


@dataclass(kw_only=True)
class TrainOptions:
    """The options of `matchlight train`."""

    data: Data
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")]
    method: Annotated[
        str | None, typer.Argument(help="A name from `matchlight methods`; none: the best for data and machine.")
    ] = None
    overrides: Annotated[list[str] | None, typer.Argument(help=OVERRIDES)] = None
    start: Annotated[Path | None, typer.Option("--from", help="Start from another run's weights.")] = None
    seed: Seed = 0
    device: Device = "auto"
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or bf16.")] = "auto"
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a stopped run left off.")] = False
    save_minutes: Annotated[float, typer.Option(help="Save at the latest after so many minutes.")] = 2.0
    stream: Annotated[
        str,
        choice(
            "--stream", ("auto", "always", "never"), "Read pictures anew for each batch; auto: if a store is too large."
        ),
    ] = "auto"
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="wandb|mlflow|tensorboard", help="Curves for another tool; may be repeated."),
    ] = None
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="The same as --log tensorboard.")] = False
    json: Json = False


@command_of(TrainOptions)
def train(asked: TrainOptions) -> None:
    """Train a method on a data set; without a name, the most robust one for the data and the machine.

    Example: matchlight train --data scenes -o runs/first
    """
    from matchlight.pairs import Pairs
    from matchlight.runs.folder import Run
    from matchlight.runs.train_run import train as run_training
    from matchlight.training.registry import asked_for, parse

    unnamed = asked.method is not None and "=" in asked.method  # the first override, where no method is named
    method = None if unnamed else asked.method
    given = _arguments(parse([*([asked.method] if unnamed and asked.method else []), *(asked.overrides or [])]))
    if method is not None:
        asked_for(method)  # a mistyped name is reported before anything slow is read
    source = Run.load(asked.start, device="cpu") if asked.start else None
    run = run_training(
        method,
        Pairs.read(asked.data),
        asked.out,
        seed=asked.seed,
        device=asked.device,
        precision=asked.precision,
        resume=asked.resume,
        start=source,
        save_minutes=asked.save_minutes,
        stream=asked.stream,
        log=asked.log or [],
        tensorboard=asked.tensorboard,
        **given,
    )
    _finished(run, asked.data, json=asked.json)


def _arguments(given: dict[str, str]) -> dict[str, str]:
    """What was typed as name=value; an option typed that way, or a name of Python's own call, is refused."""
    from matchlight.console import BadInput

    for name in given:
        if (option := name.replace("_", "-")) in OPTIONS:
            raise BadInput(f"{name}={given[name]}: {name} is an option, written --{option}")
        if name in ("name", "pairs", "start"):
            raise BadInput(f"{name}={given[name]}: no method takes an argument {name!r}")
    return given


def _finished(run: Run, data: Path, *, json: bool) -> None:
    from matchlight.devices import rank
    from matchlight.files import read_json

    if rank() != 0:
        return
    chosen = read_json(run.folder / "metrics.json", "a run's metrics")
    if json:
        emit({"run": run.folder, **chosen})
    else:
        tell(f"{run.folder}: model of epoch {chosen['epoch'] + 1} kept ({chosen['select']})")
        say_next(f"matchlight index {as_typed(run.folder)} --data {as_typed(data)} -o index")


@dataclass(kw_only=True)
class EmbedOptions(ClusterOptions):
    """The options of `matchlight embed`."""

    run: Annotated[Path, typer.Argument(help="A run folder, or what `matchlight export` wrote (needs no torch).")]
    data: Data
    out: Annotated[Path, typer.Option("-o", "--out", help="The .npz file to write, or with --to or --engine a folder.")]
    split: Annotated[str, typer.Option(help="Which split; all = everything.")] = "all"
    to: Annotated[str, choice("--to", ("npz", "faiss", "lancedb", "clip-retrieval"), "For which tool.")] = "npz"
    device: Device = "auto"
    json: Json = False


@command_of(EmbedOptions)
def embed(asked: EmbedOptions) -> None:
    """Write the vectors of pictures and captions for other tools.

    Example: matchlight embed runs/first --data scenes -o vectors.npz
    """
    from matchlight.pairs import Pairs

    if asked.spread:
        _spread_embeddings(asked)
        return
    pairs, run = Pairs.read(asked.data), asked.run
    if run.suffix == ".onnx" and not run.is_dir():
        from matchlight.runs.onnx_vectors import export_vectors

        written = export_vectors(run, pairs, asked.out, split=asked.split, to=asked.to)
    else:
        from matchlight.runs.embeddings import export
        from matchlight.runs.folder import Run

        written = export(Run.load(run, device=asked.device), pairs, asked.out, split=asked.split, to=asked.to)
    if asked.json:
        emit(written)
        return
    tell(f"{asked.out}: {written['pictures']} pictures, {written['captions']} captions")
    if asked.to == "npz":
        say_next(f"numpy.load({str(asked.out)!r})", why=f"holds {', '.join(written['arrays'][:4])}, ...")


def _spread_embeddings(asked: EmbedOptions) -> None:
    """The same by many processes, as Parquet shards."""
    from matchlight.console import BadInput
    from matchlight.runs.embedding_shards import spread_embeddings
    from matchlight.runs.folder import Run

    if asked.to != "npz":
        raise BadInput(f"--to {asked.to}: --engine ray writes Parquet shards; leave one of them away")
    if asked.run.suffix == ".onnx":
        raise BadInput(f"{asked.run}: an ONNX file is computed by one process; leave --engine away")
    device = "cuda" if asked.device.startswith("cuda") else "cpu"
    run = Run.load(asked.run, device="cpu")
    with asked.on_cluster(device) as workers:
        written = spread_embeddings(workers, run, asked.data, asked.out, split=asked.split, device=device)
    if asked.json:
        emit(written)
        return
    tell(f"{asked.out}: {written['pictures']} pictures, {written['captions']} captions in {written['shards']} shards")
    say_next(f"pyarrow.parquet.read_table({str(asked.out / 'images')!r})", why="a row a picture; captions/ likewise")


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for everything the demo makes.")] = Path("demo"),
    pictures: Annotated[int, typer.Option(help="How many scenes to draw.")] = 2000,
    seed: Seed = 0,
    serve: Annotated[bool, typer.Option("--serve", help="End with the page, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The page's port; another if it is taken.")] = 8000,
    json: Json = False,
) -> None:
    """Draw scenes, break 30% of their training pairs, train, measure, audit, index; --serve shows the page.

    Example: matchlight demo -o demo --serve
    """
    from matchlight.cli.demo import run_demo, serve_demo

    report = run_demo(out, pictures=pictures, seed=seed)
    emit(report) if json else print_report(report["test"])
    if serve:
        serve_demo(report, port=port)
    elif not json:
        say_next(f"matchlight serve {as_typed(report['index'])}", why="the page")


def import_(
    checkpoints: Annotated[list[str], typer.Argument(help=CHECKPOINTS)],
    out: Annotated[Path, typer.Option("-o", "--out", help="The run folder to make.")],
    method: Annotated[str | None, typer.Option(help="Which method the authors' files are of.")] = None,
    vocab: Annotated[Path | None, typer.Option(help="SCAN's JSON or the authors' pickled vocabulary.")] = None,
    json: Json = False,
) -> None:
    """Turn released checkpoints into a run: authors' files, or a joint model (CLIP, SigLIP, open_clip) by hf:NAME.

    The files are read without running any code of theirs.

    Example: matchlight import hf:NAME -o runs/clip
    """
    run = _imported(checkpoints, method, vocab, out)
    if json:
        emit({"run": run.folder, **run.info})
        return
    tell(f"{run.folder}: {run.method}, {len(checkpoints)} file(s)")
    say_next(f"matchlight index {as_typed(run.folder)} --data my_photos -o index")


def _imported(checkpoints: list[str], method: str | None, vocab: Path | None, out: Path) -> Run:
    from matchlight.console import BadInput
    from matchlight.runs.importing import import_checkpoints, import_joint_model, merge_adapters

    joint = checkpoints[0].startswith("hf:")
    if joint or (Path(checkpoints[0]) / "recipe.json").is_file():
        if len(checkpoints) > 1 or method is not None or vocab is not None:
            raise BadInput(f"{checkpoints[0]}: is imported by itself, without --method and --vocab")
        return import_joint_model(checkpoints[0], out) if joint else merge_adapters(checkpoints[0], out)
    if method is None or vocab is None:
        raise BadInput(f"{checkpoints[0]}: authors' files need --method and --vocab; a joint model is named hf:NAME")
    return import_checkpoints(checkpoints, method, vocab, out)


def register(app: typer.Typer) -> None:
    """Add these commands to the main app."""
    for command in (methods, train, evaluate_command, embed, demo):
        app.command()(command)
    app.command("import")(import_)
