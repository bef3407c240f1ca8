"""AOQ's figure: how far down a pair is, both ways, before and after the second round on offline negatives.

The cross-retrieval rank of a pair is the worse of two: its picture's rank for the caption, stretched as if there were
as many pictures as captions, and its caption's rank for the picture, siblings aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.files import DAMAGED_ARRAY
from matchlight.measuring.metrics import cross_ranks, rank_histogram
from matchlight.reproduce import style
from matchlight.reproduce.exhibits import MethodSetup, Paths, Result, Work, paths_of
from matchlight.reproduce.numbers import Row
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

PAPER = "Adaptive Offline Quintuplet Loss for Image-Text Matching (ECCV 2020)"
QUICK = {"epochs": 3}
MOST = 2


def ranks(work: Work, *, run: Paths | None = None, scores: Paths | None = None) -> Result:
    """Cross-retrieval ranks of the test pairs: of one or two runs or score files, else of rounds trained here."""
    work.check_splits(work.split)
    owner = work.pairs.subset(work.split).picture
    by_model = {name: cross_ranks(matrix, owner) for name, matrix in _scores(work, run, scores)}
    rows = [
        {"model": name, "ranks": bin, "pairs": count, "percent": 100 * count / len(values)}
        for name, values in by_model.items()
        for bin, count in rank_histogram(values).items()
    ]
    table = [_line(name, values) for name, values in by_model.items()]
    return work.save(rows, lambda: _draw(rows), table=table)


def _line(name: str, values: np.ndarray) -> Row:
    counts = rank_histogram(values)
    return {
        "model": name,
        "first both ways (%)": 100 * counts["1"] / len(values),
        "beyond 200 (%)": 100 * counts[">200"] / len(values),
        "median": float(np.median(values)),
        "mean": float(values.mean()),
    }


def _scores(work: Work, run: Paths | None, scores: Paths | None) -> list[tuple[str, np.ndarray]]:
    """Score matrices by name, in the order asked for."""
    if run is not None and scores is not None:
        raise BadInput(f"{work.name} takes runs or score files, not both")
    if run is not None or scores is not None:
        work.check_idle()
    if scores is not None:
        shape = (len(work.pairs.pictures_of(work.split)), len(work.pairs.rows(work.split)))
        return [(name, _read(path, shape)) for name, path in _named(_paths(work, scores, "score files"))]
    if run is not None:
        loaded = [Run.load(path, device=work.device) for path in _paths(work, run, "runs")]
    else:
        loaded = _rounds(work)
    names = [name for name, _ in _named([one.folder for one in loaded], [_called(one) for one in loaded])]
    return [(name, split_scores(one, work.pairs, work.split)) for name, one in zip(names, loaded, strict=True)]


def _called(run: Run) -> str:
    """A run's method, with what it is built on."""
    base = run.info["arguments"].get("base") if run.method == "aoq" else None
    return f"{run.method} on {base}" if base else run.method


def _paths(work: Work, given: Paths, what: str) -> list[Path]:
    paths = paths_of(given)
    if not 1 <= len(paths) <= MOST:
        raise BadInput(f"{work.name} compares one or two {what}; {len(paths)} were given")
    return paths


def _named(paths: Sequence[Path], titles: Sequence[str] | None = None) -> list[tuple[str, Path]]:
    """What each is called in the figure: two are before and after."""
    names = list(titles or [path.stem for path in paths])
    when = ["before: ", "after: "] if len(paths) == 2 else [""]
    return [(f"{order}{name}", path) for order, name, path in zip(when, names, paths, strict=True)]


def _read(path: Path, shape: tuple[int, int]) -> np.ndarray:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, *DAMAGED_ARRAY):
        raise BadInput(f"{path}: not a readable .npy matrix; `matchlight evaluate --scores` writes one") from None
    if not isinstance(matrix, np.ndarray) or matrix.shape != shape or matrix.dtype.kind not in "fiu":
        raise BadInput(f"{path}: scores of {shape[0]} pictures x {shape[1]} captions, the test split, are needed")
    return matrix


def _rounds(work: Work) -> list[Run]:
    """A first round of the base, then AOQ from its weights."""
    base = str(work.settings.get("base", "vse_infty" if work.quick else "vsrn"))
    one, two = MethodSetup(base, base, quick=QUICK), MethodSetup(f"AOQ on {base}", "aoq", {"base": base}, QUICK)
    work.check((one, two))
    first = work.train(one)
    return [first, work.train(two, start=first)]


def _draw(rows: list[Row]) -> style.Figure:
    names = list(dict.fromkeys(row["model"] for row in rows))
    bins = list(dict.fromkeys(row["ranks"] for row in rows))
    figure, axes = style.panels(1, 1, width=4.6, height=2.7)
    panel, wide = axes[0][0], 0.8 / len(names)
    for k, name in enumerate(names):
        share = [row["percent"] for row in rows if row["model"] == name]
        places = np.arange(len(bins)) + (k - (len(names) - 1) / 2) * wide
        look = {"color": style.COLOURS[k], "edgecolor": "white", "linewidth": 0.5, "hatch": ("", "////")[k]}
        panel.bar(places, share, wide, label=name, **look)
    panel.set_xticks(np.arange(len(bins)), [name.replace("-", "–") for name in bins])
    panel.set(xlabel="cross-retrieval rank of a pair", ylabel="pairs (%)")
    panel.grid(axis="x", visible=False)
    panel.legend(loc="best")
    return figure
