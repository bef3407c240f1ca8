"""How much faster than scoring everything: sets drawn around centres, stored, searched, and timed both ways."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.console import track
from matchlight.core import IMAGE, TEXT, Embedding, Matcher
from matchlight.indexing.coarse import Plain, all_rows
from matchlight.indexing.engines.faiss import Faiss
from matchlight.indexing.searching import Searcher, Side
from matchlight.indexing.shards import SHARD
from matchlight.indexing.tuning import TOP, measure, true_best
from matchlight.indexing.vectors import Sets, write_shard
from matchlight.sets import SmoothChamfer

SPREAD = 0.8  # how far a set's vectors lie from their centre, which has length 1 in every dimension


class Drawn:
    """Sets around centres, by place: the same place always gives the same set."""

    def __init__(self, items: int, each: int, dim: int):
        draw = torch.Generator().manual_seed(0)
        self.centres = torch.randn(max(16, items // 100), dim, generator=draw)
        self.owner = torch.randint(len(self.centres), (items,), generator=draw)
        self.each, self.dim = each, dim

    def sets(self, owners: Tensor, seed: int) -> Embedding:
        """One set for each of these centres."""
        draw = torch.Generator().manual_seed(seed)
        own = torch.randn(len(owners), 1, self.dim, generator=draw)  # what makes an item differ from its neighbours
        apart = torch.randn(len(owners), self.each, self.dim, generator=draw)
        return Embedding(F.normalize(self.centres[owners][:, None] + 0.5 * own + SPREAD * apart, dim=-1))


def _sides(folder: Path, items: int, each: int, dim: int, questions: int) -> dict[str, Side]:
    drawn = Drawn(items, each, dim)
    starts = range(0, items, SHARD)
    for number, start in enumerate(track(starts, "drawing")):
        write_shard(folder / f"image-{number:05d}", drawn.sets(drawn.owner[start : start + SHARD], 1 + number))
    asked = torch.randint(items, (questions,), generator=torch.Generator().manual_seed(9))
    write_shard(folder / "text-00000", drawn.sets(drawn.owner[asked], 0))
    images = Sets([folder / f"image-{number:05d}" for number in range(len(starts))])
    texts = Sets([folder / "text-00000"])
    return {
        IMAGE: Side(images, np.arange(items), None, 0),
        TEXT: Side(texts, np.arange(questions), None, 0),
    }


def timed(work: Callable[[int], Any], count: int) -> tuple[float, float]:
    """Median and 95th percentile of milliseconds."""
    work(0)
    spent = []
    for number in track(range(count), "asking"):
        began = time.perf_counter()
        work(number)
        spent.append(1000 * (time.perf_counter() - began))
    return float(np.median(spent)), float(np.percentile(spent, 95))


def grown(
    items: int, *, each: int = 4, dim: int = 256, target: float = 0.98, questions: int = 200, exact: int = 12
) -> dict[str, Any]:
    """Build and ask one collection of drawn sets; memory is this process's peak so far."""
    with tempfile.TemporaryDirectory() as folder:
        sides = _sides(Path(folder), items, each, dim, questions)
        matcher = Matcher({}, SmoothChamfer())
        matcher.register_parameter("somewhere", torch.nn.Parameter(torch.zeros(1)))  # a model is asked where it lives
        searcher = Searcher(matcher, Plain(matcher), sides, torch.device("cpu"))
        began = time.perf_counter()
        rows = all_rows(searcher.proposer, sides[IMAGE].sets, IMAGE, searcher.device)
        engine = Faiss.build(sides[IMAGE].numbers, rows)
        built = time.perf_counter() - began
        del rows
        sides[IMAGE].engine = engine
        engine.save(Path(folder) / "engine")
        found = measure(searcher, true_best(searcher, TEXT, seed=0), target)
        sides[IMAGE].candidates, sides[IMAGE].merge = found.candidates, found.merge

        def ask(number: int, *, everything: bool = False) -> Any:
            query = sides[TEXT].sets.take(np.array([number % questions]))
            return searcher.top(query, TEXT, IMAGE, top=TOP, exact=everything)

        quick, slow = timed(ask, questions), timed(lambda number: ask(number, everything=True), exact)
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "items": items,
        "vectors": items * each,
        "dim": dim,
        "engine": engine.kind,
        "build_seconds": round(built, 2),
        "disk_mb": round(disk / 1e6, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "candidates": found.candidates,
        "recall": round(found.recall, 4),
        "milliseconds": {"p50": round(quick[0], 2), "p95": round(quick[1], 2)},
        "exact_milliseconds": {"p50": round(slow[0], 2), "p95": round(slow[1], 2)},
        "per_second": round(1000 / quick[0], 1),
        "ratio": round(slow[0] / quick[0], 1),
    }
