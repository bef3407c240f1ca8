"""AOQ's Figure 1 (supplement): how far down a pair is, both ways, before and after the second round.

The cross-retrieval rank of a pair is the worse of two: its picture's rank for the caption, stretched as if there were
as many pictures as captions, and its caption's rank for the picture, siblings aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import cross_ranks, rank_histogram
from matchlight.measuring.referee import read_scores
from matchlight.reproduce import style
from matchlight.reproduce.aoq_rounds import bases, both_rounds, first, second, title
from matchlight.reproduce.exhibits import Paths, Result, Work, paths_of
from matchlight.reproduce.numbers import Row
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

COUNTS = (1, 2, 4)  # runs or score files: one alone, before and after, or that for two bases
BINS_NOTE = "the paper's intervals but for 1 and >200 are not in its text; these are ours"
CLAIM = "the paper prints no figures: after the second round more pairs are at rank 1, and fewer beyond 200"


@dataclass(frozen=True)
class Model:
    """The scores of one model: in which panel they are drawn, and when they were computed."""

    panel: str
    name: str
    scores: np.ndarray


def ranks(work: Work, *, run: Paths | None = None, scores: Paths | None = None) -> Result:
    """Cross-retrieval ranks of the test pairs before and after the second round, a panel a base."""
    work.check_splits(work.split)
    owner = work.pairs.subset(work.split).picture
    by_model = [(one, _ranks_of(work, one.scores, owner)) for one in _models(work, run, scores)]
    rows = [
        {"base": one.panel, "model": one.name, "ranks": bin, "pairs": count, "percent": 100 * count / len(values)}
        for one, values in by_model
        for bin, count in rank_histogram(values).items()
    ]
    table = [_line(one, values) for one, values in by_model]
    facts = [f"split {work.split}, {len(by_model[0][1]):,} pairs", BINS_NOTE, CLAIM]
    return work.save(rows, lambda: _draw(rows), table=table, facts=facts)


def _ranks_of(work: Work, scores: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Ranks of all pairs, each within its own gallery."""
    parts = []
    for gallery in work.galleries():
        own = np.searchsorted(gallery.pictures, owner[gallery.rows])
        parts.append(cross_ranks(scores[np.ix_(gallery.pictures, gallery.rows)], own))
    return np.concatenate(parts)


def _line(one: Model, values: np.ndarray) -> Row:
    counts = rank_histogram(values)
    return {
        "base": one.panel,
        "model": one.name,
        "first both ways (%)": 100 * counts["1"] / len(values),
        "beyond 200 (%)": 100 * counts[">200"] / len(values),
        "median": float(np.median(values)),
        "mean": float(values.mean()),
    }


# ---- whose scores ----------------------------------------------------------------------------------------------------


def _models(work: Work, run: Paths | None, scores: Paths | None) -> list[Model]:
    """Of score files or runs that were named; else two rounds a base, trained here."""
    if run is not None and scores is not None:
        raise BadInput(f"{work.name} takes runs or score files, not both")
    if run is not None or scores is not None:
        work.check_idle()
    if scores is not None:
        paths = _paths(work, scores, "score files")
        shape = (len(work.pairs.pictures_of(work.split)), len(work.pairs.rows(work.split)))
        return _named([path.stem for path in paths], [_read(path, shape, work.split) for path in paths])
    if run is not None:
        loaded = [Run.load(path, device=work.device) for path in _paths(work, run, "runs")]
        return _named([_called(one) for one in loaded], [split_scores(one, work.pairs, work.split) for one in loaded])
    names = bases(work)
    work.check([setup for base in names for setup in (first(base), second(base))])
    models = []
    for base in names:
        both = (split_scores(one, work.pairs, work.split) for one in both_rounds(work, base))
        labels = (f"before: {title(base)}", f"after: {title(base)} + AOQ")
        models += [Model(title(base), name, matrix) for name, matrix in zip(labels, both, strict=True)]
    return models


def _called(run: Run) -> str:
    """A run's method, with what it is built on."""
    base = run.info["arguments"].get("base") if run.method == "aoq" else None
    return f"{run.method} on {base}" if base else run.method


def _paths(work: Work, given: Paths, what: str) -> list[Path]:
    paths = paths_of(given)
    if len(paths) not in COUNTS:
        raise BadInput(f"{work.name} compares one or two {what}, or four for two bases; {len(paths)} were given")
    return paths


def _named(names: Sequence[str], matrices: Sequence[np.ndarray]) -> list[Model]:
    """What was given: two are before and after, four are that twice, one is itself."""
    if len(names) == 1:
        return [Model(names[0], names[0], matrices[0])]
    when = ("before", "after")
    return [Model(names[k - k % 2], f"{when[k % 2]}: {names[k]}", matrices[k]) for k in range(len(names))]


def _read(path: Path, shape: tuple[int, int], split: str) -> np.ndarray:
    matrix = read_scores(path)
    if matrix.shape != shape:
        raise BadInput(f"{path}: scores of {shape[0]} pictures x {shape[1]} captions, the {split} split, are needed")
    return matrix


# ---- the figure ------------------------------------------------------------------------------------------------------


def _draw(rows: list[Row]) -> style.Figure:
    panels = list(dict.fromkeys(row["base"] for row in rows))
    bins = list(dict.fromkeys(row["ranks"] for row in rows))
    figure, axes = style.panels(
        1, len(panels), width=4.6 if len(panels) == 1 else style.DOUBLE, height=2.7, sharey=True
    )
    for panel, base in zip(axes[0], panels, strict=True):
        names = list(dict.fromkeys(row["model"] for row in rows if row["base"] == base))
        wide = 0.8 / len(names)
        for k, name in enumerate(names):
            share = [row["percent"] for row in rows if row["base"] == base and row["model"] == name]
            places = np.arange(len(bins)) + (k - (len(names) - 1) / 2) * wide
            look = {"color": style.COLOURS[k], "edgecolor": "white", "linewidth": 0.5, "hatch": ("", "////")[k]}
            panel.bar(places, share, wide, label=name, **look)
        panel.set_xticks(np.arange(len(bins)), [name.replace("-", "–") for name in bins], rotation=30)
        panel.set(xlabel="cross-retrieval rank of a pair")
        panel.grid(axis="x", visible=False)
        panel.legend(loc="best")
    axes[0][0].set_ylabel("pairs (%)")
    return figure
