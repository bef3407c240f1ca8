"""Ranked lists in files of any kind read here, and a folder with both directions of one evaluation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.data.cells import safe_cell
from matchlight.files import new_folder, regular
from matchlight.measuring.rankings import ranking_json, trec_files
from matchlight.measuring.rankings.ranked_lists import Ranking, both_sides
from matchlight.pairs import Pairs

DEPTH = 1000  # items a query, as TREC's tracks ask for
KINDS = {"trec": "trec", "ranx": "json"}  # and their files' endings


def read_run(path: str | Path) -> dict[str, Ranking]:
    """What each query found: TREC's lines, or JSON of ranx or MTEB."""
    path = Path(path)
    lists = ranking_json.read_json_run(path) if _is_json(path) else trec_files.read_trec_run(path)
    if not lists:
        raise BadInput(f"{path}: no ranked list in it; TREC's lines are `{trec_files.RUN}`")
    return lists


def read_qrels(path: str | Path) -> dict[str, dict[str, float]]:
    """What was judged relevant: TREC's lines, or JSON of ranx."""
    path = Path(path)
    return ranking_json.read_json_numbers(path) if _is_json(path) else trec_files.read_trec_qrels(path)


def _is_json(path: Path) -> bool:
    try:
        with open(regular(path), "rb") as file:
            return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror})") from None


def write_rankings(
    out: str | Path,
    scores: np.ndarray,
    part: Pairs,
    *,
    kind: str = "trec",
    depth: int = DEPTH,
    name: str = "matchlight",
) -> Path:
    """A folder with run.i2t, qrels.i2t, run.t2i and qrels.t2i, and ids.csv, which says what the names stand for."""
    if kind not in KINDS:
        raise BadInput(f"{kind!r} is no kind of ranking files; known: {', '.join(KINDS)}")
    ending, sides = KINDS[kind], both_sides(scores, part)
    with new_folder(Path(out)) as folder:
        for direction, side in sides.items():
            run, qrels = (folder / f"{what}.{direction}.{ending}" for what in ("run", "qrels"))
            if kind == "trec":
                trec_files.write_run(run, side, depth=depth, name="-".join(name.split()) or "matchlight")
                trec_files.write_qrels(qrels, side)
            else:
                ranking_json.write_run(run, side, depth=depth)
                ranking_json.write_qrels(qrels, side)
        with open(folder / "ids.csv", "w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(["id", "what"])
            lines.writerows(
                [one, safe_cell(str(text))] for one, text in zip(sides["i2t"].queries, part.names, strict=True)
            )
            lines.writerows(
                [one, safe_cell(text)] for one, text in zip(sides["t2i"].queries, part.captions, strict=True)
            )
    return Path(out)
