"""The parts of an index that is opened: stored sets, engines, what proposes, thumbnails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matchlight.core import IMAGE, TEXT
from matchlight.indexing import versions
from matchlight.indexing.build import ENGINE, MAPS, SETS
from matchlight.indexing.candidate_vectors import Plain, Proposer
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.distil import Distilled
from matchlight.indexing.engines import Engine
from matchlight.indexing.engines.faiss import Faiss
from matchlight.indexing.engines.milvus import Milvus, connect
from matchlight.indexing.records import JoinedRecords, Records
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS
from matchlight.indexing.stored_sets import Sets
from matchlight.runs.folder import Run


def open_sets(folder: Path, info: dict[str, Any], side: str) -> Sets:
    """The stored sets of one side."""
    return Sets([folder / SETS / name for name in info["shards"][side]])


def open_thumbs(folder: Path, info: dict[str, Any]) -> Sequence[bytes] | None:
    """All thumbnails; None where there are none."""
    names = info["shards"][THUMBS]
    return JoinedRecords([Records(folder / SETS / name) for name in names]) if names else None


def open_engines(root: Path, folder: Path, info: dict[str, Any]) -> dict[str, Engine]:
    """The engine of each side."""
    how = info["engine"]
    if how["name"] == "faiss":
        return {side: Faiss.load(folder / ENGINE / side) for side in (IMAGE, TEXT)}
    client = connect(how["address"] or str(root / versions.DATABASE))
    return {
        side: Milvus.open(client, f"matchlight_{how['uid']}_{side}", one["each"], dim=one["dim"])
        for side, one in info["sides"].items()
    }


def open_proposer(folder: Path, info: dict[str, Any], run: Run) -> Proposer:
    """The model's own vectors, or the distilled ones."""
    return Distilled.load(folder / MAPS) if info["coarse"] == "distilled" else Plain(run.matcher)


def open_searcher(
    root: Path, folder: Path, info: dict[str, Any], run: Run, catalogue: Catalogue, *, engines: bool = True
) -> Searcher:
    """Everything that a search needs."""
    found: dict[str, Engine] = open_engines(root, folder, info) if engines else {}
    numbers = {IMAGE: catalogue.ids, TEXT: catalogue.rows}
    alive, sides = catalogue.alive_sides(), {}
    for side, one in info["sides"].items():
        parts = (open_sets(folder, info, side), numbers[side], found.get(side), one["candidates"], one["merge"])
        sides[side] = Side(*parts, alive=alive[side])
    return Searcher(run.matcher, open_proposer(folder, info, run), sides, run.device)
