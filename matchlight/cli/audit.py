"""`matchlight audit`: which pairs of a data set are wrong, why, and what would fit better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import ClusterOptions, DataOrNone, Json, Vectors, choice, command_of, data_set
from matchlight.cli.output import emit, table, tell

if TYPE_CHECKING:
    from matchlight.auditing import Audit
    from matchlight.cluster.ray_workers import RayWorkers
    from matchlight.pairs import Pairs

SHOWN = 5  # suspects printed
KEYS = ("pairs", "flagged", "estimated_noise", "seconds")
TRUTH = (("auroc", "average_precision", "precision", "recall"), ("recall_at_precision_95", "calibration_error"))
Pictures = Annotated[
    str,
    typer.Option(
        metavar="auto|own|NAME+NAME",
        help="Which networks' vectors of the pictures are compared: dinov2-small, hf:FOLDER, timm:NAME, lite0@224, "
        "joined by +; own is the audit's features alone (what the data or --vectors bring, else lite0); auto adds "
        "lite1 and lite2 where installed, each about 10 s per 1,000 pictures on two CPU cores.",
    ),
]
Captions = Annotated[
    str,
    typer.Option(
        metavar="auto|words|NAME+NAME",
        help="Which sentence encoders' vectors of the captions are compared beside their words: minilm, gte-small, "
        "mpnet, hf:FOLDER, joined by +; auto is minilm where installed.",
    ),
]
Also = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="RUN",
        help="A further run to ask, such as a joint model that `matchlight import` made; it must not have been trained "
        "on these pairs. May be repeated.",
    ),
]


@dataclass(kw_only=True)
class AuditOptions(ClusterOptions):
    """The options of `matchlight audit`."""

    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for the findings; an unfinished audit goes on.")]
    data: DataOrNone = None
    run: Annotated[Path | None, typer.Argument(help="A run folder whose model and history are asked as well.")] = None
    split: Annotated[str, typer.Option(help="The split to audit; all = everything.")] = "train"
    truth: Annotated[Path | None, typer.Option(help="truth.json of `data noise`, to measure the audit.")] = None
    quick: Annotated[
        str,
        choice("--quick", ("on", "off"), "on trains small cross-validated models as well, at twenty times the price."),
    ] = "off"
    models: Annotated[int, typer.Option(min=1, max=9, help="Small models a fold, averaged.")] = 1
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=20,
            help="Parts that are judged by models blind to them: 5, or 10 with 400 pictures and --quick off.",
        ),
    ] = None
    captions: Captions = "auto"
    pictures: Pictures = "auto"
    vectors: Vectors = None
    also: Also = None
    siblings: Annotated[
        bool, typer.Option("--siblings/--no-siblings", help="Compare the captions of one picture with each other.")
    ] = True
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Everything random follows from it.")] = 0
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto"
    json: Json = False


@command_of(AuditOptions)
def audit(asked: AuditOptions) -> None:
    """Find the pairs of a data set that are wrong: pairs.csv, summary.json and report.html.

    Works without a run: models are fitted on parts of the data and asked about the rest.

    Example: matchlight audit --data my_photos -o audits/one
    """
    if not asked.spread:
        _audit(asked, data_set(asked.data, asked.vectors), None)
        return
    from matchlight.cluster.reading import read_on
    from matchlight.console import BadInput
    from matchlight.files import passing_folder

    if asked.data is None:
        raise BadInput("--data is missing: --engine ray reads a data set")
    with asked.on_cluster(asked.device) as workers:
        with passing_folder(asked.out) as beside:
            pairs, broken = read_on(workers, asked.data, beside)
        _audit(asked, pairs, workers, [f"{one.name} was left out: {one.reason}" for one in broken])


def _audit(asked: AuditOptions, pairs: Pairs, workers: RayWorkers | None, notes: Sequence[str] = ()) -> None:
    from matchlight.auditing import audit as look
    from matchlight.data.noise import Truth
    from matchlight.runs.folder import Run

    known = Truth.load(asked.truth) if asked.truth else None
    loaded = Run.load(asked.run, device=asked.device) if asked.run else None
    audited = look(
        loaded,
        pairs,
        asked.out,
        split=asked.split,
        truth=known,
        siblings=asked.siblings,
        source=asked.data or asked.vectors,
        quick=asked.quick == "on",
        models=asked.models,
        folds=asked.folds,
        seed=asked.seed,
        device=asked.device,
        captions=asked.captions,
        pictures=asked.pictures,
        vectors=asked.vectors,
        also=[Run.load(path, device=asked.device) for path in asked.also or []],
        workers=workers,
        notes=notes,
    )
    emit(audited.summary) if asked.json else _print(audited)


def _print(audited: Audit) -> None:
    from matchlight.auditing.report import in_a_sentence

    tell(in_a_sentence(audited.summary))
    if reasons := audited.summary["reasons"]:
        table("", ["reason", "pairs"], [[reason, count] for reason, count in reasons.items()])
    worst = [[one["image"], f"{one['score']:.3g}", one["caption"]] for one in audited.suspects[:SHOWN]]
    if worst:
        table("", ["worst", "score", "caption"], worst)
    if "auroc" in audited.summary:
        measured: Mapping[str, object] = audited.summary
        for keys in TRUTH:
            table("", list(keys), [[_figure(measured[key]) for key in keys]])
    if kinds := audited.summary.get("kinds"):
        rows = [
            [name, of["means"], of["pairs"], f"{of['flagged']:.1%}", f"{of['told']:.1%}"] for name, of in kinds.items()
        ]
        table("", ["kind", "is", "pairs", "suspect", "told for what it is"], rows)
    tell(f"look at {audited.folder / 'report.html'}; `matchlight data apply {audited.folder} -o DIR` cleans the data")


def _figure(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-"


def register(app: typer.Typer) -> None:
    """Add the command to the main app."""
    app.command()(audit)
