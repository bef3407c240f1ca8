"""Ranked lists as JSON: `{query: {item: score}}` as ranx keeps them, or inside the predictions file of an MTEB task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from matchlight.core import BadInput, Json
from matchlight.files import read_json
from matchlight.measuring.rankings.ranked_lists import Ranking, Side

LAYOUT = '{"query": {"item": number}}'
ABOUT = "mteb_model_meta"  # the one key of an MTEB predictions file that is no subset


def write_run(path: Path, side: Side, *, depth: int) -> None:
    """What `ranx.Run.from_file` reads, a query a line."""
    _write(
        path, ((query, dict(zip(items, scores.tolist(), strict=True))) for query, items, scores in side.rankings(depth))
    )


def write_qrels(path: Path, side: Side) -> None:
    """What `ranx.Qrels.from_file` reads."""
    _write(path, ((query, dict.fromkeys(items, 1)) for query, items in side.judged()))


def _write(path: Path, entries: Iterable[tuple[str, Mapping[str, float]]]) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("{")
        for number, (query, inside) in enumerate(entries):
            file.write(f"{',' if number else ''}\n{json.dumps(query)}: {json.dumps(inside)}")
        file.write("\n}\n")


def read_json_run(path: Path) -> dict[str, Ranking]:
    """The lists by query; their order in the file is the file's own order."""
    return {
        query: Ranking(list(mine), np.array(list(mine.values()), np.float64), np.arange(len(mine)))
        for query, mine in read_json_numbers(path).items()
    }


def read_json_numbers(path: Path) -> dict[str, dict[str, float]]:
    """Numbers by query and item."""
    value: Json = read_json(path, f"ranked lists or judgements: {LAYOUT}")
    if isinstance(value, dict) and ABOUT in value:
        value = _predictions(path, {name: part for name, part in value.items() if name != ABOUT})
    if not isinstance(value, dict):
        raise BadInput(f"{path}: not {LAYOUT}")
    return {query: _numbers(inside, f"{path}: query {query!r}") for query, inside in value.items()}


def _predictions(path: Path, subsets: Mapping[str, Json]) -> Json:
    """The lists of the one split of the one subset of a task."""
    splits = [
        (f"{subset}/{split}", lists)
        for subset, inside in subsets.items()
        if isinstance(inside, dict)
        for split, lists in inside.items()
    ]
    if len(splits) != 1:
        raise BadInput(
            f"{path}: predictions of {', '.join(name for name, _ in splits) or 'nothing'}; a file of one split is read"
        )
    return splits[0][1]


def _numbers(inside: Json, where: str) -> dict[str, float]:
    if not isinstance(inside, dict):
        raise BadInput(f"{where}: not {LAYOUT}")
    for item, value in inside.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BadInput(f"{where}: item {item!r} has {value!r}, no number")
    return {item: float(value) for item, value in inside.items() if isinstance(value, int | float)}
