"""`matchlight index | search`: a trained run and a data set become a folder that answers questions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Address, DataOrNone, Json, Vectors, choice, command_of, data_set
from matchlight.cli.output import as_typed, emit, megabytes, say_next, table, tell

if TYPE_CHECKING:
    from matchlight.indexing import Hit
    from matchlight.indexing.index import Description
    from matchlight.inputs.onnx_towers import OnnxTowers
    from matchlight.runs.folder import Run

Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]


@dataclass(kw_only=True)
class IndexOptions:
    """The options of `matchlight index`."""

    out: Annotated[Path, typer.Option("-o", "--out", help="The index folder to make or to replace.")]
    run: Annotated[Path | None, typer.Argument(help="A run folder.")] = None
    data: DataOrNone = None
    vectors: Vectors = None
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="RUN|FILE.onnx",
            help="The run that made --vectors: it reads questions; or an exported model, in place of a run folder.",
        ),
    ] = None
    engine: Annotated[str, choice("--engine", ("faiss", "milvus"), "What proposes candidates.", group="engines")] = (
        "faiss"
    )
    address: Annotated[
        str | None, typer.Option("--address", help="A Milvus server (http://HOST:19530); default: inside the index.")
    ] = None
    split: Annotated[str, typer.Option(help="Which split; all = everything.")] = "all"
    target: Annotated[float, typer.Option(help="Share of the true best ten that candidates must hold.")] = 0.99
    candidates: Annotated[int | None, typer.Option(help="How many candidates; default: measured.")] = None
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Everything random follows from it.")] = 0
    onnx_words: Annotated[
        bool, typer.Option("--onnx-words", help="Keep what reads words as ONNX too: such searches begin without torch.")
    ] = False
    device: Device = "auto"
    json: Json = False


@command_of(IndexOptions)
def index(asked: IndexOptions) -> None:
    """Build a search index: vectors, thumbnails, the model, an engine. A build that was stopped goes on.

    Example: matchlight index runs/first --data scenes -o scenes.index
    """
    from matchlight.indexing import Index
    from matchlight.indexing.processes import rank

    made = Index.build(
        _model(asked),
        data_set(asked.data, asked.vectors),
        asked.out,
        engine=asked.engine,
        address=asked.address,
        split=asked.split,
        target=asked.target,
        candidates=asked.candidates,
        seed=asked.seed,
        vectors=asked.vectors,
        onnx_words=asked.onnx_words,
    )
    with made:
        if rank() == 0:
            _built(asked.out, made.describe(), json=asked.json)


def _model(asked: IndexOptions) -> Run | OnnxTowers | None:
    """The model that answers questions; an exported one is opened without torch."""
    named = _answering(asked)
    if named is None:
        return None
    if named.suffix == ".onnx" and not named.is_dir():
        from matchlight.inputs.onnx_towers import OnnxTowers

        towers = OnnxTowers.open(named)
        towers.check_dual()
        return towers
    from matchlight.runs.folder import Run

    return Run.load(named, device=asked.device)


def _answering(asked: IndexOptions) -> Path | None:
    """The run that answers questions: the one that encodes the data, or the one that made given vectors."""
    from matchlight.console import BadInput

    if asked.model is not None and asked.model.suffix == ".onnx" and asked.run is None and asked.vectors is None:
        return asked.model
    if (asked.run is None) == (asked.vectors is None):
        raise BadInput("index takes a run folder, or --vectors that were made already (and the --model that made them)")
    if asked.model is not None and asked.vectors is None:
        raise BadInput("--model is the run that made --vectors; without them the run folder is all that is needed")
    return asked.run or asked.model


def _built(out: Path, about: Description, *, json: bool) -> None:
    if json:
        emit({"index": out, **about})
        return
    tell(
        f"{out}: {about['version']}, {about['items']:,} pictures, {about['captions']:,} captions, "
        f"{megabytes(about['bytes'])}"
    )
    say_next(
        f'matchlight search {as_typed(out)} "a dog under a tree"', why=f"or a page: matchlight serve {as_typed(out)}"
    )


@dataclass(kw_only=True)
class SearchOptions:
    """The options of `matchlight search`."""

    index: Annotated[Path, typer.Argument(help="An index folder.")]
    words: Annotated[
        str | None, typer.Argument(help='What to look for; +more -less "a caption says this"; -- before a leading -.')
    ] = None
    image: Annotated[Path | None, typer.Option("--image", help="A picture; with words: like it, but ...")] = None
    like: Annotated[int | None, typer.Option("--like", help="The same with a picture of the index, by its id.")] = None
    top: Annotated[int, typer.Option("--top", min=1, max=10_000, help="How many results.")] = 10
    exact: Annotated[bool, typer.Option("--exact", help="Score everything instead of candidates.")] = False
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="split, label, name, folder, camera, from, to, caption=VALUE; may be repeated."),
    ] = None
    fold: Annotated[bool, typer.Option("--fold/--no-fold", help="Show near-duplicates as one.")] = True
    address: Address = None
    find: Annotated[str | None, choice("--find", ("image", "text"), "Pictures or captions.")] = None
    device: Device = "auto"
    json: Json = False


@command_of(SearchOptions)
def search(asked: SearchOptions) -> None:
    """Search an index by words (finds pictures), by a picture (finds captions), or by both (pictures like it, but ...).

    Example: matchlight search scenes.index "a dog +red -car" --where from=2024-05 --top 5
    """
    from matchlight.console import BadInput, say
    from matchlight.indexing import Index

    if asked.words is None and asked.image is None and asked.like is None:
        raise BadInput('search takes "words", --image FILE, --like ID, or words and a picture together')
    narrowed = _where(asked.where or [])
    with Index.load(asked.index, device=asked.device, address=asked.address) as index:
        question = None if asked.image is None else str(asked.image)
        results = index.search(
            asked.words,
            image=question,
            like=asked.like,
            top=asked.top,
            exact=asked.exact,
            where=narrowed,
            find=asked.find,
            fold=asked.fold,
        )
    if results.unknown:
        say(f"words the model does not know: {', '.join(results.unknown)}")
    if asked.json:
        emit(results.plain())
        return
    if results.nothing_fits:
        say("nothing here looks like that; nearest:")
    how = f"{results.scored:,} of {results.total:,} scored, {results.milliseconds:.0f} ms"
    captioned = any(hit.row >= 0 for hit in results.hits)
    said = ["caption", "row"] if captioned else []
    names = ["rank", "score", *(["chance"] if results.chances_from else []), "image", *said]
    table(f"{results.query}: {how}", names, [_line(hit)[: len(names)] for hit in results.hits])
    say_next(f"matchlight serve {as_typed(asked.index)}", why="shows the pictures")


def _line(hit: Hit) -> list[str]:
    from matchlight.indexing.results import in_words

    image = f"{hit.image} (and {len(hit.alike)} alike)" if hit.alike else hit.image
    chance = [] if hit.chance is None else [f"{hit.chance:.0%} {in_words(hit.chance)}"]
    return [str(hit.rank), f"{hit.score:.3f}", *chance, image, hit.caption, str(hit.row)]


def _where(given: list[str]) -> dict[str, list[str]]:
    """name=value pairs; the same name twice means either."""
    from matchlight.console import BadInput

    out: dict[str, list[str]] = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise BadInput(f"--where {pair}: written name=value, such as split=test")
        out.setdefault(name, []).append(value)
    return out


def register(app: typer.Typer) -> None:
    """Add these commands to the main app."""
    app.command()(index)
    app.command()(search)
