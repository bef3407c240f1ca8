"""DivE's Table A1: how well all that fits is found, not a picture's own captions alone; on ECCV Caption and on CxC.

On COCO's 5,000 test pictures the truth is that of the eccv-caption package. Elsewhere the data's relevance file takes
the place of ECCV Caption (drawn scenes have one); data without either say so, and have R@1 of own captions only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.protocols import evaluate_scores, figure
from matchlight.measuring.protocols.measured import Unfit
from matchlight.measuring.referee import read_scores
from matchlight.pairs import Pairs
from matchlight.reproduce.dive_runs import DIVE, QUICK
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import MethodSetup, Paths, Result, Work, paths_of
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.ranked_tables import draw_table, marked
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

VSE = MethodSetup("VSE-infinity", "vse_infty", quick=QUICK)
SETUPS = (MethodSetup("VSRN", "vsrn", quick=QUICK), VSE, DIVE)
SHOWN = ("mAP@R", "R-P", "R@1", "CxC R@1", "own R@1")
WAYS = {"i2t": "picture to text", "t2i": "text to picture"}
COLUMNS = [f"{way}, {name}" for way in WAYS for name in SHOWN]
PACKAGE = {"mAP@R": "eccv_map_at_r", "R-P": "eccv_rprecision", "R@1": "eccv_r1", "CxC R@1": "cxc_r1"}
PACKAGE |= {"own R@1": "coco_5k_r1"}
FILE = {"mAP@R": "map_at_r", "R-P": "r_precision", "R@1": "r1"}
SOURCE = "DivE, supplement, Table A1: the authors' best model; own R@1 (COCO 5K) is not in it"
PUBLISHED = {
    "VSRN": (30.8, 42.9, 73.8, 55.1, None, 53.8, 60.8, 89.2, 42.6, None),
    "VSE-infinity": (34.8, 45.4, 81.1, 67.9, None, 50.0, 57.5, 91.8, 53.7, None),
    "DivE": (36.0, 46.4, 84.7, 72.3, None, 51.0, 58.5, 91.6, 55.5, None),
}


def eccv(work: Work, *, run: Paths | None = None, scores: Paths | None = None) -> Result:
    """mAP@R, R-precision and R@1 of all that fits, both ways: of runs or score files, else of three methods."""
    work.check_splits(work.split)
    part = work.pairs.subset(work.split)
    rows: list[Row] = []
    facts: dict[str, None] = {}
    for name, seed, matrix, fact in _scored(work, run, scores):
        figures, truth = figures_of(work, matrix, part)
        rows.append({"model": name, "seed": seed, **figures})
        facts |= {fact: None, truth: None} if fact else {truth: None}
    table = [_mean(rows, name) for name in dict.fromkeys(row["model"] for row in rows)]
    printed = [{"model": name, **dict(zip(COLUMNS, line, strict=True))} for name, line in PUBLISHED.items()]
    groups = [(title, len(SHOWN)) for title in WAYS.values()]
    parts = {f"here: {work.pairs.root.name or 'in memory'}, {work.split}": table, "published: COCO 5K": printed}
    return work.save(
        rows,
        lambda: draw_table(parts, groups),
        table=table,
        on_page=marked(table),
        facts=list(facts),
        published=marked(printed),
        source=SOURCE,
    )


def _mean(rows: list[Row], name: str) -> Row:
    """A line of the table: means over seeds, none where nothing was measured."""
    own = [row for row in rows if row["model"] == name]
    return {"model": name} | {
        c: None if own[0][c] is None else float(np.mean([row[c] for row in own])) for c in COLUMNS
    }


def _scored(work: Work, run: Paths | None, scores: Paths | None) -> list[tuple[str, int, np.ndarray, str]]:
    """(name, seed, scores, a fact about the run) of every line."""
    if run is not None and scores is not None:
        raise BadInput(f"{work.name}: give runs or score files, not both")
    if scores is not None:
        work.check_idle()
        return [(path.stem, 0, _read(work, path), "") for path in paths_of(scores)]
    if run is not None:
        work.check_idle()
        given = [(path.name, 0, Run.load(path, device=work.device)) for path in paths_of(run)]
    else:
        work.check(SETUPS)
        given = [(one.shown, seed, work.train(one, seed=seed)) for seed in range(work.seeds) for one in SETUPS]
    return [(name, k, split_scores(one, work.pairs, work.split), run_facts(name, one)) for name, k, one in given]


def _read(work: Work, path: Path) -> np.ndarray:
    matrix = read_scores(path)
    wanted = len(work.pairs.pictures_of(work.split)), len(work.pairs.rows(work.split))
    if matrix.shape != wanted:
        shapes = f"{matrix.shape[0]} x {matrix.shape[1]}, but {work.split} has {wanted[0]} x {wanted[1]}"
        raise BadInput(f"{path}: scores are {shapes} (pictures x captions)")
    return matrix


def figures_of(work: Work, scores: np.ndarray, part: Pairs) -> tuple[Row, str]:
    """Percentages of one model by column, the mean over galleries, and which truth they are by."""
    lines, truth = [], ""
    for gallery in work.galleries():
        some = part.select(gallery.pictures, gallery.rows)
        line, truth = _figures(np.asarray(scores[np.ix_(gallery.pictures, gallery.rows)]), some)
        lines.append(line)
    return {c: None if lines[0][c] is None else float(np.mean([line[c] for line in lines])) for c in COLUMNS}, truth


def _figures(scores: np.ndarray, part: Pairs) -> tuple[Row, str]:
    line: Row = dict.fromkeys(COLUMNS)
    try:
        report = evaluate_scores(scores, part, protocol="eccv")
    except Unfit:
        return _without_package(scores, part, line)
    for way in WAYS:
        for name, key in PACKAGE.items():
            line[f"{way}, {name}"] = 100 * figure(report, key, way)
    return line, "truth: ECCV Caption and CxC"


def _without_package(scores: np.ndarray, part: Pairs, line: Row) -> tuple[Row, str]:
    report = evaluate_scores(scores, part, protocol="recall")
    for way in WAYS:
        line[f"{way}, own R@1"] = figure(report, way, "r1")
        for name, key in FILE.items() if "many" in report else ():
            line[f"{way}, {name}"] = figure(report, "many", way, key)
    if "many" in report:
        return line, "truth: the data's relevance file; CxC knows COCO's test pictures only"
    return (
        line,
        "this data is not COCO's test split and has no relevance file: what fits besides own captions is unknown",
    )
