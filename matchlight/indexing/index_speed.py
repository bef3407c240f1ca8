"""A large index from end to end: built of drawn vectors, opened, asked, changed and asked again, with time and memory.

Nothing is left out but encoding: a vector of each picture and of each caption, given as `matchlight index --vectors`
takes them, go through everything that `Index.build` does. Each step is a process, so that its memory is its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight.data.formats.safety import load_npy
from matchlight.indexing.index import Index
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.search_speed import Clock, Milliseconds, timed
from matchlight.indexing.searcher import TOP
from matchlight.indexing.tuning import best_of_all
from matchlight.pairs import IMAGE, TEXT, Pairs
from matchlight.runs.folder import Run

BLOCK = 65_536  # vectors drawn at once
LATENT = 32  # dimensions of what a picture shares with its caption
NOISE = 0.3  # of what it does not, for each dimension, beside 1
WORDS = 2000  # that captions are made of
FILES = {IMAGE: "images.npy", TEXT: "texts.npy"}
INDEX, MORE = "index", "more"


class Spent(TypedDict):
    """What a step took."""

    seconds: float
    cpu_seconds: float
    memory_mb: float  # of its own: what no file holds
    with_files_mb: float  # with the pages of mapped files that happened to be there


class AskedSpeed(TypedDict):
    """An index opened and asked."""

    opening: Spent
    read_mb: float  # by opening it
    asking: Spent
    cold_milliseconds: Milliseconds  # none of its files in the system's cache
    milliseconds: Milliseconds
    recall: float
    questions: int
    candidates: int
    engine: str


class ChangedSpeed(TypedDict):
    """Items added and removed."""

    items: int
    adding: Spent
    removing: Spent
    added_found: float  # share of new pictures that come first when asked for by their own vector
    removed_found: int  # hits that should not be there any more


class LargeSpeed(TypedDict):
    """All of it."""

    items: int
    dim: int
    building: Spent
    disk_mb: float
    asked: AskedSpeed
    changed: ChangedSpeed
    asked_again: AskedSpeed


# ---- what is indexed -------------------------------------------------------------------------------------------------


def drawn(count: int, dim: int, seed: int) -> dict[str, np.ndarray]:
    """Unit vectors of pictures and of their captions, which share a point in a space of few dimensions.

    There are no clusters that cells could follow: neighbours of a point lie on all sides of it.
    """
    rng = np.random.default_rng(seed)
    spread = 1 / np.sqrt(np.arange(1, LATENT + 1))  # few directions tell most, as with learned vectors
    mix = np.random.default_rng(0).normal(size=(LATENT, dim)) * spread[:, None] / np.sqrt((spread**2).sum())
    shared = (rng.normal(size=(count, LATENT)) @ mix).astype(np.float32)
    both = {side: shared + NOISE * rng.normal(size=shared.shape).astype(np.float32) for side in FILES}
    return {side: rows / np.linalg.norm(rows, axis=1, keepdims=True) for side, rows in both.items()}


def draw_files(folder: Path, count: int, dim: int, *, seed: int = 1) -> None:
    """Vectors of so many items in half precision, a file a side."""
    folder.mkdir(parents=True, exist_ok=True)
    outs = {side: (folder / name).open("wb") for side, name in FILES.items()}
    header = {"descr": "<f2", "fortran_order": False, "shape": (count, dim)}
    for out in outs.values():
        np.lib.format.write_array_header_1_0(out, header)
    for start in range(0, count, BLOCK):
        made = drawn(min(BLOCK, count - start), dim, 1000 * seed + start)
        for side, out in outs.items():
            made[side].astype(np.float16).tofile(out)
    for out in outs.values():
        out.close()


def vectors_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What `draw_files` wrote, mapped."""
    return load_npy(folder / FILES[IMAGE]), load_npy(folder / FILES[TEXT])


def table_of(folder: Path, count: int) -> Pairs:
    """A data set of so many pictures with a caption of four words each."""
    words = np.random.default_rng(7).zipf(1.3, size=(count, 4)) % WORDS
    captions = [" ".join(f"word{one}" for one in four) for four in words.tolist()]
    names = [f"{number // 1000:05d}/{number:09d}.jpg" for number in range(count)]
    return Pairs(names, captions, np.arange(count), np.full(count, "train"), root=folder)


# ---- the steps, each in a process of its own -------------------------------------------------------------------------


@dataclass
class Meter:
    """Time and memory between `with` and its end."""

    clock: Clock = field(default_factory=Clock)
    own: float = 0.0  # MB

    def __enter__(self) -> Meter:
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()
        self.clock.__enter__()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.own = max(self.own, _memory_mb("RssAnon"))

    def __exit__(self, *problem: object) -> None:
        self.clock.__exit__()
        self._over.set()
        self._watching.join()
        self.own = max(self.own, _memory_mb("RssAnon"))

    def spent(self) -> Spent:
        """As numbers; the memory with files is the peak of the process so far."""
        times = {"seconds": round(self.clock.wall, 2), "cpu_seconds": round(self.clock.cpu, 2)}
        return {**times, "memory_mb": round(self.own, 1), "with_files_mb": round(_memory_mb("VmHWM"), 1)}  # type: ignore[typeddict-item]


def _memory_mb(what: str) -> float:
    """A line of what Linux says of this process; 0 on other systems."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:")), 0.0)


def _read_mb() -> float:
    """What this process has read so far, from the disk or the system's cache; mapped pages are not counted."""
    try:
        line = Path("/proc/self/io").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0.0
    return int(line.split()[1]) / 1e6


def build_step(folder: Path, items: int) -> tuple[Spent, float]:
    """Build the index; how much it takes, and the size of it in MB."""
    data = table_of(folder, items)
    with Meter() as meter:
        index = Index.build(None, data, folder / INDEX, vectors=vectors_of(folder))
    with index:
        return meter.spent(), round(index.describe()["bytes"] / 1e6, 1)


def ask_step(folder: Path, dim: int, questions: int) -> AskedSpeed:
    """Open the index and ask it: questions are new captions of items like those in it."""
    _drop_cached(folder / INDEX)
    before = _read_mb()
    with Meter() as opening:
        index = Index.load(folder / INDEX, device="cpu")
    read = _read_mb() - before
    given = drawn(2 * questions, dim, 99)[TEXT]
    with index:
        with Meter() as asking:
            cold = timed(lambda number: _found(index, given[questions + number]), questions, warm=False)
            quick = timed(lambda number: _found(index, given[number]), questions)
        spent = asking.spent()
        there = index.searcher.sides[IMAGE].remaining()
        truth = best_of_all(index.searcher, TEXT, _query(given[:questions]), there)
        kept = [np.isin(best, _found(index, given[number])).mean() for number, best in enumerate(truth)]
        about = index.describe()
    return {
        "opening": opening.spent(),
        "read_mb": round(read, 1),
        "asking": spent,
        "cold_milliseconds": cold,
        "milliseconds": quick,
        "recall": round(float(np.mean(kept)), 4),
        "questions": questions,
        "candidates": about["candidates"][IMAGE],
        "engine": str(about["engines"][IMAGE]["kind"]),
    }


def _query(vectors: np.ndarray) -> ItemSets:
    return ItemSets.single(vectors.astype(np.float32).reshape(-1, vectors.shape[-1]))


def _found(index: Index, vector: np.ndarray) -> np.ndarray:
    """The places of the best ten pictures for the vector of a caption."""
    return index.searcher.top(_query(vector), TEXT, IMAGE, top=TOP)[0]


def _drop_cached(folder: Path) -> None:
    """Ask the system to forget what it keeps of these files in memory, where it can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def change_step(folder: Path, items: int, dim: int, count: int) -> ChangedSpeed:
    """Add so many items and take as many of the old ones out; ask for both."""
    draw_files(folder / MORE, count, dim, seed=2)
    more = Run.of_vectors(vectors_of(folder / MORE), table_of(folder / MORE, count), device="cpu")[1]
    with Index.load(folder / INDEX, device="cpu") as index:
        with Meter() as adding:
            new = index.add(more)
        spent = adding.spent()
        gone = np.random.default_rng(3).choice(items, count, replace=False)
        with Meter() as removing:
            index.remove(gone)
        some = np.linspace(0, count - 1, min(200, count)).astype(np.int64)
        images = vectors_of(folder / MORE)[0]
        own = [index.catalogue.ids[_found(index, images[one])[0]] == new[one] for one in some.tolist()]
        old = vectors_of(folder)[0]
        hits = np.concatenate([index.catalogue.ids[_found(index, old[one])] for one in gone[some].tolist()])
        return {
            "items": count,
            "adding": spent,
            "removing": removing.spent(),
            "added_found": round(float(np.mean(own)), 4),
            "removed_found": int(np.isin(hits, gone).sum()),
        }


# ---- all of them -----------------------------------------------------------------------------------------------------


def time_whole_index(
    folder: Path, items: int, *, dim: int = 128, questions: int = 200, told: Callable[[str, object], None]
) -> LargeSpeed:
    """Every step, each in a fresh process; `told` hears of each as soon as it is done."""
    draw_files(folder, items, dim)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        building, disk = pool.submit(build_step, folder, items).result()
        told("building", {**building, "disk_mb": disk})
        asked = pool.submit(ask_step, folder, dim, questions).result()
        told("asked", asked)
        changed = pool.submit(change_step, folder, items, dim, max(1, items // 100)).result()
        told("changed", changed)
        again = pool.submit(ask_step, folder, dim, questions).result()
        told("asked again", again)
    return {
        "items": items,
        "dim": dim,
        "building": building,
        "disk_mb": disk,
        "asked": asked,
        "changed": changed,
        "asked_again": again,
    }
