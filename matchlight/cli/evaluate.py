"""`matchlight evaluate`: a run, an ensemble or another tool's scores before the referee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import DataOrNone, Json, Vectors, choice, command_of, data_set
from matchlight.cli.output import as_typed, emit, say_next
from matchlight.console import say

if TYPE_CHECKING:
    from matchlight.measuring.referee import Scored
    from matchlight.pairs import Pairs

PROTOCOLS = ("auto", "recall", "five-fold", "eccv", "cxc", "pmrp", "cross-rank", "labels", "all")
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]


@dataclass(kw_only=True)
class EvaluateOptions:
    """The options of `matchlight evaluate`."""

    run: Annotated[list[Path] | None, typer.Argument(help="A run folder; several are ranked as an ensemble.")] = None
    data: DataOrNone = None
    split: Annotated[str, typer.Option(help="Which split to measure.")] = "test"
    protocol: Annotated[str, choice("--protocol", PROTOCOLS, "What to measure; all: whatever the data allows.")] = (
        "auto"
    )
    ties: Annotated[
        str, choice("--ties", ("worst", "official"), "Ties count against the model, or as old code does.")
    ] = "worst"
    ci: Annotated[bool, typer.Option("--ci", help="Add 95% intervals, by drawing pictures with their captions.")] = (
        False
    )
    against: Annotated[
        Path | None, typer.Option(help="Another run, or its FILE.npy: how much better, and how sure (a paired test).")
    ] = None
    fold: Annotated[
        int | None, typer.Option(min=1, help="Pictures a fold, for five-fold (default 1000) and pmrp (no folds).")
    ] = None
    scores: Annotated[Path | None, typer.Option(help="Keep the score matrix as FILE.npy.")] = None
    from_scores: Annotated[
        list[Path] | None, typer.Option(help="Measure another tool's FILE.npy instead of a run; several: their mean.")
    ] = None
    from_run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.trec|FILE.json",
            help="Measure ranked lists instead: TREC's run, or JSON of ranx or MTEB. Twice: pictures ask, captions.",
        ),
    ] = None
    qrels: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="What is relevant, for each --from-run.")] = (
        None
    )
    trec: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write TREC's runs and qrels of both directions.")
    ] = None
    ranx: Annotated[Path | None, typer.Option(metavar="DIR", help="The same as JSON that ranx reads.")] = None
    mteb: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the figures as results of MTEB tasks.")] = None
    depth: Annotated[
        int, typer.Option(min=10, help="Items a query, for --trec and --ranx; ties with the last one stay.")
    ] = 1000
    vectors: Vectors = None
    device: Device = "auto"
    precision: Annotated[
        str,
        choice("--precision", ("fp32", "tf32"), "Exact products, or a GPU's fast ones (scores move by about 1e-4)."),
    ] = "fp32"
    json: Json = False


@command_of(EvaluateOptions)
def evaluate(asked: EvaluateOptions) -> None:
    """Measure a run, or vectors, a score matrix or ranked lists of any tool, on a split.

    Example: matchlight evaluate runs/first --data scenes --split test --ci
    """
    from matchlight.console import BadInput

    if asked.from_run or asked.qrels:
        report_on_lists(asked)
        return
    if sum(map(bool, (asked.run, asked.from_scores, asked.vectors))) != 1:
        raise BadInput(
            "evaluate takes a run folder, --from-scores FILE.npy, --vectors FILE.npz or --from-run FILE, one of them"
        )
    if asked.from_scores and asked.scores is not None:
        raise BadInput("--scores keeps the scores of a run; with --from-scores they are in a file already")
    if asked.against is not None and asked.protocol == "all":
        raise BadInput("--against compares by one protocol; name it instead of all")
    from matchlight.measuring.referee import report_of

    pairs = _data(asked.data, asked.vectors, asked.scores)

    def read(paths: list[Path]) -> Scored:
        return _scored(
            paths, pairs, asked.split, protocol=asked.protocol, device=asked.device, precision=asked.precision
        )

    if asked.vectors is not None:
        mine = _of_vectors(asked.vectors, pairs, asked.split, device=asked.device)
    else:
        mine = read(list(asked.run or asked.from_scores or []))
    if asked.scores is not None:
        from matchlight.files import write_array

        write_array(asked.scores, mine.on_host())
    write_lists(asked, mine, pairs)
    other = None if asked.against is None else read([asked.against])
    report = report_of(
        mine,
        pairs.subset(asked.split),
        protocol=asked.protocol,
        ties=asked.ties,
        fold=asked.fold,
        ci=asked.ci,
        against=other,
    )
    if asked.json:
        emit(report)
        return
    print_report(report)
    if asked.run and asked.data is not None:
        say_next(f"matchlight index {as_typed(asked.run[0])} --data {as_typed(asked.data)} -o index")


def _data(data: Path | None, vectors: Path | None, scores: Path | None) -> Pairs:
    """The data set; a file that scores must not be written to is refused before anything slow."""
    pairs = data_set(data, vectors)
    if scores is not None:
        from matchlight.runs.evaluation import check_scores_file

        check_scores_file(scores, pairs)
    return pairs


def _scored(paths: list[Path], pairs: Pairs, split: str, *, protocol: str, device: str, precision: str) -> Scored:
    """Scores from run folders, or from files where they are no folders."""
    from matchlight.measuring.referee import Scored, read_scores
    from matchlight.runs.evaluation import Scoring, scored
    from matchlight.runs.folder import Run

    if all(path.suffix == ".npy" or (path.is_file() and path.suffix != ".onnx") for path in paths):
        return Scored(read_scores(paths))
    runs = [Run.load(path, device=device) for path in paths]
    how = Scoring(precision=precision, quiet=False)
    return scored(runs[0], pairs, split, protocol=protocol, others=runs[1:], scoring=how)


def _of_vectors(vectors: Path, pairs: Pairs, split: str, *, device: str) -> Scored:
    """Scores of vectors that were made already: their cosines."""
    from matchlight.runs.evaluation import scored
    from matchlight.runs.folder import Run

    return scored(*Run.of_vectors(vectors, pairs, device=device), split)


def report_on_lists(asked: EvaluateOptions) -> None:
    """Print the report on ranked lists of any tool."""
    from matchlight.console import BadInput
    from matchlight.measuring.rankings import evaluate_both, evaluate_rankings, ranked_table, read_qrels, read_run

    theirs, truths = asked.from_run or [], asked.qrels or []
    if len(theirs) != len(truths) or len(theirs) > 2:
        raise BadInput("--from-run FILE goes with --qrels FILE, once, or twice: pictures asking, then captions asking")
    if asked != EvaluateOptions(from_run=asked.from_run, qrels=asked.qrels, ties=asked.ties, json=asked.json):
        raise BadInput("--from-run measures ranked lists alone; beside --qrels it takes --ties and --json")
    runs, judged = [read_run(path) for path in theirs], [read_qrels(path) for path in truths]
    report: Mapping[str, object]
    if len(runs) == 1:
        report = evaluate_rankings(runs[0], judged[0], ties=asked.ties)
    else:
        report = evaluate_both((runs[0], runs[1]), (judged[0], judged[1]), ties=asked.ties)
    if asked.json:
        emit(report)
        return
    from rich.console import Console

    Console(highlight=False).print(ranked_table(report))


def write_lists(asked: EvaluateOptions, scored: Scored, pairs: Pairs) -> None:
    """What was asked for beside the report: the lists or the figures in other tools' files."""
    from matchlight.measuring.rankings import write_mteb, write_rankings

    part, name = pairs.subset(asked.split), "matchlight" if not asked.run else asked.run[0].resolve().name
    for kind, out in (("trec", asked.trec), ("ranx", asked.ranx)):
        if out is not None:
            say(f"written: {write_rankings(out, scored.on_host(), part, kind=kind, depth=asked.depth, name=name)}")
    if asked.mteb is not None:
        task = pairs.root.resolve().name
        for path in write_mteb(asked.mteb, scored.on_host(), part, task=task, split=asked.split, ties=asked.ties):
            say(f"written: {path}")


def print_report(report: Mapping[str, object]) -> None:
    """A report as tables, and what a paired test says of it."""
    from rich.console import Console

    from matchlight.console import visible
    from matchlight.measuring.protocols import tables

    console = Console(highlight=False)
    for one in tables(report):
        console.print(one)
    against = report.get("against")
    for name, test in against.items() if isinstance(against, Mapping) else ():
        low, high = test["interval"]
        line = f"{visible(name)}: {test['difference']:+.4g} ({low:+.4g} to {high:+.4g}), p = {test['p']:.4f}"
        console.print(line, markup=False)
