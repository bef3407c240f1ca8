"""How much faster than scoring everything: drawn sets, or a trained run and its data, searched and timed both ways."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.console import track
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Matcher
from matchlight.indexing.build import Settings
from matchlight.indexing.candidate_vectors import all_rows
from matchlight.indexing.engines.faiss import Faiss
from matchlight.indexing.index import Index
from matchlight.indexing.index_json import SideInfo
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import MatcherScores, Plain, as_item_sets
from matchlight.indexing.searcher import TOP, Searcher, Side
from matchlight.indexing.shards import SHARD
from matchlight.indexing.stored_sets import Sets, write_shard
from matchlight.indexing.tuning import measure, true_best
from matchlight.pairs import Pairs
from matchlight.parts.set_similarities import SmoothChamfer
from matchlight.runs.folder import Run

CPU = torch.device("cpu")
SPREAD = 0.8  # how far a set's vectors lie from their centre, which has length 1 in every dimension


Milliseconds = dict[str, float]  # p50, p95, cpu_p50, cpu_p95


class DrawnSpeed(TypedDict):
    """How fast a collection of drawn sets is searched."""

    items: int
    vectors: int
    dim: int
    engine: str
    build_seconds: float
    build_cpu_seconds: float
    measuring_seconds: float
    disk_mb: float
    peak_memory_mb: float
    candidates: int
    recall: float
    questions: int
    milliseconds: Milliseconds
    exact_milliseconds: Milliseconds
    per_second: float
    per_cpu_second: float
    ratio: float
    cpu_ratio: float


class RunSpeed(TypedDict):
    """How fast an index of a trained run is searched."""

    method: str
    pictures: int
    captions: int
    coarse: str
    build_seconds: float
    build_cpu_seconds: float
    disk_mb: float
    candidates: int
    share: float
    recall: float
    questions: int
    milliseconds: Milliseconds
    exact_milliseconds: Milliseconds
    reading_milliseconds: Milliseconds
    ratio: float
    cpu_ratio: float
    cpu_ratio_without_reading: float
    measured: dict[str, SideInfo]


class Drawn:
    """Sets around centres, by place: the same place always gives the same set."""

    def __init__(self, items: int, each: int, dim: int):
        draw = torch.Generator().manual_seed(0)
        self.centres = torch.randn(max(16, items // 100), dim, generator=draw)
        self.owner = torch.randint(len(self.centres), (items,), generator=draw)
        self.each, self.dim = each, dim

    def sets(self, owners: Tensor, seed: int) -> ItemSets:
        """One set for each of these centres."""
        draw = torch.Generator().manual_seed(seed)
        own = torch.randn(len(owners), 1, self.dim, generator=draw)  # what makes an item differ from its neighbours
        apart = torch.randn(len(owners), self.each, self.dim, generator=draw)
        drawn = F.normalize(self.centres[owners][:, None] + 0.5 * own + SPREAD * apart, dim=-1)
        return as_item_sets(Embedding(drawn))


def _sides(folder: Path, items: int, each: int, dim: int, questions: int) -> dict[str, Side]:
    drawn = Drawn(items, each, dim)
    starts = range(0, items, SHARD)
    for number, start in enumerate(track(starts, "drawing")):
        write_shard(folder / f"image-{number:05d}", drawn.sets(drawn.owner[start : start + SHARD], 1 + number))
    origins = torch.randint(items, (questions,), generator=torch.Generator().manual_seed(9))
    write_shard(folder / "text-00000", drawn.sets(drawn.owner[origins], 0))
    images = Sets([folder / f"image-{number:05d}" for number in range(len(starts))])
    texts = Sets([folder / "text-00000"])
    return {
        IMAGE: Side(images, np.arange(items), None, 0),
        TEXT: Side(texts, np.arange(questions), None, 0),
    }


@dataclass
class Clock:
    """Seconds by the wall and of the processor between `with` and its end: on a shared machine they differ."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Clock:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *problem: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def timed(work: Callable[[int], object], count: int, *, warm: bool = True) -> Milliseconds:
    """Median and 95th percentile of milliseconds, by the wall and of the processor; `warm` does it once before."""
    if warm:
        work(0)
    wall, cpu = [], []
    for number in track(range(count), "asking"):
        with Clock() as clock:
            work(number)
        wall.append(1000 * clock.wall)
        cpu.append(1000 * clock.cpu)
    return {**_middle(wall), **{f"cpu_{name}": value for name, value in _middle(cpu).items()}}


def _middle(spent: list[float]) -> Milliseconds:
    p50, p95 = np.percentile(spent, [50, 95])
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}


def time_drawn_sets(
    items: int, *, each: int = 4, dim: int = 256, target: float = 0.98, questions: int = 200, exact: int = 12
) -> DrawnSpeed:
    """Build and search one collection of drawn sets; memory is this process's peak so far."""
    with tempfile.TemporaryDirectory() as folder:
        sides = _sides(Path(folder), items, each, dim, questions)
        matcher = Matcher({}, SmoothChamfer())
        matcher.register_parameter("somewhere", torch.nn.Parameter(torch.zeros(1)))  # its device is that of a parameter
        searcher = Searcher(MatcherScores(matcher, CPU), Plain(matcher, CPU), sides)
        with Clock() as building:
            engine = Faiss.of(sides[IMAGE].numbers, all_rows(searcher.proposer, sides[IMAGE].sets, IMAGE))
            engine.save(Path(folder) / "engine")
        sides[IMAGE].engine = engine
        with Clock() as measuring:
            measured = measure(searcher, true_best(searcher, TEXT, seed=0, questions=questions), target)
        sides[IMAGE].candidates, sides[IMAGE].merge = measured.candidates, measured.merge

        def search(number: int, *, everything: bool = False) -> object:
            query = sides[TEXT].sets.take(np.array([number % questions]))
            return searcher.top(query, TEXT, IMAGE, top=TOP, exact=everything)

        quick, slow = timed(search, questions), timed(partial(search, everything=True), exact)
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "items": items,
        "vectors": items * each,
        "dim": dim,
        "engine": engine.kind,
        "build_seconds": round(building.wall, 2),
        "build_cpu_seconds": round(building.cpu, 2),
        "measuring_seconds": round(measuring.wall, 2),
        "disk_mb": round(disk / 1e6, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "candidates": measured.candidates,
        "recall": round(measured.recall or 0.0, 4),
        "questions": measured.questions,
        "milliseconds": quick,
        "exact_milliseconds": slow,
        "per_second": round(1000 / quick["p50"], 1),
        "per_cpu_second": round(1000 / quick["cpu_p50"], 1),
        "ratio": _ratio(slow, quick),
        "cpu_ratio": _ratio(slow, quick, "cpu_p50"),
    }


def _ratio(slow: dict[str, float], quick: dict[str, float], by: str = "p50", common: float = 0.0) -> float:
    """How many times as long everything takes; `common` milliseconds are no part of either."""
    return round((slow[by] - common) / max(1e-3, quick[by] - common), 1)


def time_run(run: Run, pairs: Pairs, out: Path, *, questions: int = 200, **settings: Unpack[Settings]) -> RunSpeed:
    """Index all pictures with all captions but the last of each, and search with the last captions of the test split.

    So neither the model nor the index has seen a question. The settings are those of `Index.build`.
    """
    last = len(pairs) - 1 - np.unique(pairs.picture[::-1], return_index=True)[1]
    own = last[pairs.splits[pairs.picture[last]] == "test"]
    if not len(own):
        raise BadInput(f"{pairs.root}: no captions in the split test to ask with")
    rows = own[np.linspace(0, len(own) - 1, min(questions, len(own))).astype(np.int64)]
    with Clock() as building:
        left = np.delete(np.arange(len(pairs)), last)
        index = Index.build(run, pairs.select(np.arange(len(pairs.names)), left), out, **settings)
    with index:
        words = [pairs.captions[row] for row in rows]
        answers: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}
        reading = timed(lambda number: index.encoder.words(words[number]), len(words))

        def search(number: int, *, everything: bool) -> None:
            hits = index.search(words[number], top=TOP, exact=everything).hits
            answers[everything][number] = [hit.id for hit in hits]

        spent = {way: timed(partial(search, everything=way), len(words)) for way in answers}
        kept = [np.isin(best, answers[False][number]).mean() for number, best in answers[True].items()]
        about = index.describe()
    return {
        "method": run.method,
        "pictures": about["items"],
        "captions": about["captions"],
        "coarse": about["coarse"],
        "build_seconds": round(building.wall, 1),
        "build_cpu_seconds": round(building.cpu, 1),
        "disk_mb": round(about["bytes"] / 1e6, 1),
        "candidates": about["candidates"][IMAGE],
        "share": round(about["candidates"][IMAGE] / about["items"], 4),
        "recall": round(float(np.mean(kept)), 4),
        "questions": len(words),
        "milliseconds": spent[False],
        "exact_milliseconds": spent[True],
        "reading_milliseconds": reading,
        "ratio": _ratio(spent[True], spent[False]),
        "cpu_ratio": _ratio(spent[True], spent[False], "cpu_p50"),
        "cpu_ratio_without_reading": _ratio(spent[True], spent[False], "cpu_p50", reading["cpu_p50"]),
        "measured": about["measured"],
    }
