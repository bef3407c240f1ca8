"""`matchlight data ...`: draw a data set, look at one, convert it, break it on purpose, compute its features."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchlight.cli.options import Json, choice, command_of
from matchlight.cli.output import as_typed, emit, help_alone, megabytes, say_next, shown, table, tell

if TYPE_CHECKING:
    from matchlight.data.noise import Truth

WEB_SHARE = 0.4  # of the pairs that --like web changes where no share is given
FORMATS = ("jsonl", "csv", "parquet", "webdataset", "datasets", "scan", "npz")
Source = Annotated[
    Path, typer.Argument(metavar="PATH", show_default=False, help="A data set: a folder, a file or hf-datasets:NAME.")
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write: a new or an empty folder.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same data.")]

data = typer.Typer(rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add `matchlight data` to the app."""
    app.add_typer(data, name="data")


@data.callback(invoke_without_command=True)
def group(context: typer.Context) -> None:
    """Draw, look at, convert and break data sets; compute features.

    Example: matchlight data info my_photos
    """
    help_alone(context)


@data.command()
def scenes(
    out: Out,
    pictures: Annotated[int, typer.Option(min=1, help="How many pictures.")] = 2000,
    captions: Annotated[int, typer.Option(min=1, help="Captions a picture.")] = 5,
    seed: Seed = 0,
    size: Annotated[str, typer.Option(metavar="WxH", help="Pixels of a picture.")] = "192x144",
    as_json: Json = False,
) -> None:
    """Draw picture-book scenes with captions and exact ground truth.

    Example: matchlight data scenes -o scenes --pictures 500
    """
    extent = _extent(size)
    from matchlight.data.scenes import draw

    draw(out, pictures=pictures, captions=captions, seed=seed, size=extent)
    finished({"out": out, "pictures": pictures, "captions": pictures * captions}, as_json)


@data.command()
def info(path: Source, as_json: Json = False) -> None:
    """Say what a data set holds and what is wrong with it.

    Counts per split, captions a picture, sizes, labels, and pictures or captions that are missing, unreadable, empty
    or there twice.

    Example: matchlight data info my_photos
    """
    from matchlight.data import formats

    facts = formats.info(formats.read(path), check=True)
    if as_json:
        emit(facts)
        return
    from matchlight.cli.describe import describe

    describe(str(path), facts)
    if facts["captions"]:
        say_next(f"matchlight train --data {as_typed(path)} -o run")
    else:
        why = "no captions: these pictures can be searched, and nothing can be learned from them"
        say_next(f"matchlight photos {as_typed(path)}", why=why)


@data.command()
def convert(
    path: Source,
    out: Out,
    to: Annotated[
        str | None, choice("--to", FORMATS, "Format; default: jsonl, or npz for features.", group="formats")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a data set in another format.

    Example: matchlight data convert my_photos -o shards --to webdataset
    """
    from matchlight.data import formats

    pairs = formats.read(path)
    to = to or formats.format_for_copy(pairs, keep=False)
    written = formats.write(pairs, out, to=to)
    finished({"out": written, "format": to, "pictures": len(pairs.names), "captions": len(pairs)}, as_json)


@dataclass(kw_only=True)
class NoiseOptions:
    """The options of `matchlight data noise`."""

    path: Source
    out: Out
    mismatch: Annotated[float | None, typer.Option(metavar="RATIO", help="Share of pairs to mismatch, 0 to 1.")] = None
    labels: Annotated[float | None, typer.Option(metavar="RATIO", help="Share of labels to flip, 0 to 1.")] = None
    per: Annotated[
        str | None, choice("--per", ("caption", "picture"), "What --mismatch moves; caption if not said.")
    ] = None
    kind: Annotated[
        str | None, choice("--kind", ("symmetric", "asymmetric"), "How --labels flips; symmetric if not said.")
    ] = None
    like: Annotated[
        str | None,
        choice("--like", ("web", "ncr", "decl", "mrl"), "web: captions as pages have them; else a paper's own draw."),
    ] = None
    index: Annotated[
        Path | None, typer.Option("--index", help="Apply an index file that a paper's authors share (.npy or .json).")
    ] = None
    seed: Seed = 0
    split: Annotated[str, typer.Option(help="The split to break.")] = "train"
    drop: Annotated[
        bool, typer.Option("--drop", help="Leave the pairs out instead: the clean ones alone, to compare with.")
    ] = False
    as_json: Json = False


@data.command()
@command_of(NoiseOptions)
def noise(asked: NoiseOptions) -> None:
    """Break a share of a data set on purpose; truth.json beside the copy says which rows.

    Example: matchlight data noise scenes -o noisy --mismatch 0.3 --seed 4
    """
    if asked.like == "web" and asked.mismatch is asked.labels is asked.index is None:
        asked.mismatch = WEB_SHARE
    _one_kind(asked.mismatch, asked.labels, asked.index, asked.per, asked.kind)
    from matchlight.data import formats
    from matchlight.data import noise as noises
    from matchlight.files import new_folder

    pairs = formats.read(asked.path)
    if asked.index is not None:
        broken, truth = noises.replay(pairs, asked.index, split=asked.split)
    elif asked.mismatch is not None:
        ratio, per = asked.mismatch, asked.per or "caption"
        broken, truth = noises.mismatch(
            pairs, ratio=ratio, per=per, seed=asked.seed, split=asked.split, like=asked.like
        )
    else:
        ratio, kind = asked.labels or 0.0, asked.kind or "symmetric"
        broken, truth = noises.flip_labels(
            pairs, ratio=ratio, kind=kind, seed=asked.seed, split=asked.split, like=asked.like
        )
    if asked.drop:
        broken = noises.without(broken, truth, bare=False)
    to = formats.format_for_copy(broken)
    with new_folder(asked.out) as folder:  # the data and the truth about it appear together or not at all
        formats.write(broken, folder, to=to)
        if not asked.drop:  # its rows are those of the broken copy, not of what is left
            truth.save(folder / "truth.json")
    finished(
        {"out": asked.out, "format": to, "rows": len(pairs.rows(asked.split)), "moved": _moved(truth)}, asked.as_json
    )


@data.command()
def labels(
    path: Source,
    out: Out,
    top: Annotated[int, typer.Option(min=1, help="How many labels, those of most pictures first.")] = 50,
    words: Annotated[
        Path | None, typer.Option("--words", metavar="FILE", help="Labels of your own, one a line, instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Label pictures by the things their captions name, for data that has no labels.

    The words are found by how they are used, in the training captions alone.

    Example: matchlight data labels my_photos -o labelled --top 80
    """
    from matchlight.data import caption_labels, formats
    from matchlight.data.formats.array_values import text_lines

    own = None if words is None else [line for line in text_lines(words) if line]
    pairs = caption_labels.labelled_by_words(formats.read(path), top=top, words=own)
    to = formats.format_for_copy(pairs)
    written = formats.write(pairs, out, to=to)
    finished({"out": written, "format": to, **caption_labels.summary(pairs)}, as_json)


@data.command()
def apply(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT", show_default=False, help="The folder of an audit.")],
    out: Out,
    drop: Annotated[bool, typer.Option("--drop", help="Leave suspects out (if not said otherwise).")] = False,
    rematch: Annotated[
        bool, typer.Option("--rematch", help="Give a suspect's caption to the picture it fits; drop the rest.")
    ] = False,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Give a wrong label the likelier class instead of dropping its pair.")
    ] = False,
    decisions: Annotated[
        Path | None,
        typer.Option(
            "--decisions", metavar="FILE", help="What a person decided: an export of the report or of Label Studio."
        ),
    ] = None,
    source: Annotated[Path | None, typer.Option("--data", help="Where the audited data is now, if it moved.")] = None,
    as_json: Json = False,
) -> None:
    """Write a cleaned copy of an audited data set; the original is never touched.

    Example: matchlight data apply audits/one -o cleaned
    """
    if drop and (rematch or relabel):
        raise typer.BadParameter("alone, or the others", param_hint="--drop, --rematch and --relabel")
    from matchlight.auditing.apply import apply as write_cleaned

    counts = write_cleaned(audit, out, rematch=rematch, relabel=relabel, decisions=decisions, data=source)
    finished(counts, as_json)


@data.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything that is cached.")] = False,
    as_json: Json = False,
) -> None:
    """List what is cached and how large it is, or clear it.

    Example: matchlight data cache --clear
    """
    from matchlight.data import cache as store

    freed = store.cache_clear() if clear else 0
    listing, folder = store.cache_listing(), store.folder()
    total = sum(entry["bytes"] for entry in listing)
    if as_json:
        emit({"folder": folder, "bytes": total, "entries": listing} | ({"freed": freed} if clear else {}))
        return
    rows = [[entry["what"], entry["name"][:8], megabytes(entry["bytes"]), entry["last_used"]] for entry in listing]
    if rows:
        table("", ["what", "name", "size", "last used (UTC)"], rows)
    tell(f"{megabytes(total)} in {folder}" + (f"; {megabytes(freed)} freed" if clear else ""))
    if listing and not clear:
        say_next("matchlight data cache --clear", why="removes it; what is needed again is computed again")


def _extent(size: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", size.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{size!r} is no size; give width x height, as in 192x144", param_hint="--size")
    return int(match[1]), int(match[2])


def _one_kind(
    mismatch: float | None, labels: float | None, index: Path | None, per: str | None, kind: str | None
) -> None:
    if sum(given is not None for given in (mismatch, labels, index)) != 1:
        raise typer.BadParameter("give one of them, as in --mismatch 0.3", param_hint="--mismatch, --labels or --index")
    if kind and labels is None:
        raise typer.BadParameter("goes with --labels; --mismatch takes --per", param_hint="--kind")
    if per and mismatch is None:
        raise typer.BadParameter("goes with --mismatch; --labels takes --kind", param_hint="--per")


def _moved(truth: Truth) -> int | dict[str, int]:
    moved = truth.moved
    return {side: len(items) for side, items in moved.items()} if isinstance(moved, dict) else len(moved)


def finished(result: Mapping[str, object], as_json: bool) -> None:
    """What was written, and what to look at next."""
    if as_json:
        emit(result)
        return
    facts = [f"{name} {shown(value)}" for name, value in result.items() if name != "out"]
    tell(f"{result['out']}: {', '.join(facts)}")
    say_next(f"matchlight data info {as_typed(str(result['out']))}")
