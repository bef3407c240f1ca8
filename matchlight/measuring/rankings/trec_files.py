"""TREC's files: a run has `query Q0 item rank score name` a line, qrels have `query 0 item relevance`.

Scores are written with as many digits as their type holds, so that equal scores stay equal and others apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.files import regular
from matchlight.measuring.rankings.ranked_lists import Ranking, Side

RUN = "query Q0 item rank score name"
QRELS = "query 0 item relevance"


def write_run(path: Path, side: Side, *, depth: int, name: str) -> None:
    """One line an item, the best first."""
    digits = 9 if side.scores.dtype.itemsize <= 4 else 17  # what a float32 and a float64 need to come back the same
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, items, scores in side.rankings(depth):
            for rank, (item, score) in enumerate(zip(items, scores.tolist(), strict=True), 1):
                file.write(f"{query} Q0 {item} {rank} {score:.{digits}g} {name}\n")


def write_qrels(path: Path, side: Side) -> None:
    """One line a relevant item."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, items in side.judged():
            file.writelines(f"{query} 0 {item} 1\n" for item in items)


def read_trec_run(path: Path) -> dict[str, Ranking]:
    """The lists of a run by query; what a line's rank says matters for equal scores only."""
    found: dict[str, dict[str, tuple[int, float]]] = {}
    for where, (query, _, item, rank, score, _) in _lines(path, RUN):
        mine = found.setdefault(query, {})
        if item in mine:
            raise BadInput(f"{where}: {item} stands there twice for query {query}")
        mine[item] = (int(_number(rank, f"{where}: rank")), _number(score, f"{where}: score"))
    return {
        query: Ranking(
            list(mine), np.array([score for _, score in mine.values()]), np.array([r for r, _ in mine.values()])
        )
        for query, mine in found.items()
    }


def read_trec_qrels(path: Path) -> dict[str, dict[str, float]]:
    """How relevant each judged item is, by query."""
    found: dict[str, dict[str, float]] = {}
    for where, (query, _, item, gain) in _lines(path, QRELS):
        mine = found.setdefault(query, {})
        if item in mine:
            raise BadInput(f"{where}: {item} is judged twice for query {query}")
        mine[item] = _number(gain, f"{where}: relevance")
    return found


def _lines(path: Path, layout: str) -> Iterator[tuple[str, list[str]]]:
    """(where, the line's words) of each line that is not blank."""
    wanted = len(layout.split())
    try:
        with open(regular(path), encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if words and len(words) != wanted:
                    raise BadInput(f"{path} line {number}: {len(words)} words; TREC's lines are `{layout}`")
                if words:
                    yield f"{path} line {number}", words
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file; TREC's lines are `{layout}`") from None


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise BadInput(f"{where} is {text!r}, no number")
    return value
