"""A comparison by several processes: worker processes train cells side by side, this one deals them out and writes.

A worker trains one cell after another. One that dies (killed, or for want of memory) costs the cell it was at, which is
reported as failed, and another takes its place. A worker ends with its parent, however that ends, and what it leaves
half done is continued at the next call. What it says goes to `workers/K.txt` in the comparison's folder.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

from matchlight.comparing import grid, results_files
from matchlight.comparing.cell_run import Settings
from matchlight.comparing.grid import Outcome, Show, Table, begun, check, compare, failed, fill
from matchlight.comparing.noise_columns import Noise
from matchlight.comparing.results_table import Results
from matchlight.comparing.variants import Cell, Variant, all_cells
from matchlight.console import say
from matchlight.pairs import Pairs


def compare_on(
    devices: Sequence[str],
    methods: Sequence[Variant],
    data: Path,
    out: Path,
    *,
    noise: Sequence[Noise],
    seeds: int,
    settings: Settings,
    show: Show | None = None,
) -> Results:
    """`compare`, with `settings.jobs` worker processes for each device; one alone is this process itself."""
    pairs, places = Pairs.read(data), [device for device in devices for _ in range(settings.jobs)]
    for device in devices:  # refused here, once, before any worker starts
        check(all_cells(methods, noise, seeds), pairs, replace(settings, device=device))
    first = replace(settings, device=devices[0])
    if len(places) == 1:
        return compare(methods, pairs, out, noise=noise, seeds=seeds, settings=first, show=show)
    table = begun(methods, pairs, out, noise=noise, seeds=seeds, settings=settings, show=show)
    waiting = _taken(table, pairs, first)
    if waiting:
        _look_at_pictures(waiting, pairs, first)
        asked = Asked(str(data), out, table.cells, len(places))
        crew = [Worker(asked, k, replace(settings, device=place)) for k, place in enumerate(places[: len(waiting)])]
        _deal(table, crew, waiting)
    results_files.write(out, table.results)
    return table.results


def _taken(table: Table, pairs: Pairs, settings: Settings) -> list[Cell]:
    """The cells that are left to do; those that are finished are taken."""
    left = []
    for cell in table.cells:
        if (table.folder / "cells" / cell.folder / "report.json").exists():
            outcome = fill(cell, table.cells, pairs, table.folder, settings)
            assert outcome is not None
            table.take(cell, outcome)
        else:
            left.append(cell)
    return left


def _look_at_pictures(cells: Sequence[Cell], pairs: Pairs, settings: Settings) -> None:
    """What networks see in the pictures is stored once, before many processes read it."""
    from matchlight import devices
    from matchlight.runs.train_run import look_at_pictures

    for one in dict.fromkeys(cell.variant for cell in cells):
        look_at_pictures(one.name, pairs, device=settings.device, given=dict(one.arguments))
    devices.free_memory()


def _deal(table: Table, crew: list[Worker], waiting: list[Cell]) -> None:
    """Give each idle worker the next cell that can be begun, until all are done."""
    try:
        while waiting or any(worker.cell for worker in crew):
            for cell in list(waiting):
                if (outcome := table.lost(cell)) is not None:
                    waiting.remove(cell)
                    table.take(cell, outcome)
            _give(table, crew, waiting)
            for worker in _heard(crew):
                cell, outcome = worker.answer()
                _give(table, crew, waiting)  # before the files are written, which takes a moment
                if outcome is None:  # a process elsewhere is at it: asked again after the others
                    waiting.append(cell)
                    time.sleep(grid.PATIENCE / len(crew))
                else:
                    table.take(cell, outcome)
    finally:
        for worker in crew:
            worker.end()


def _give(table: Table, crew: list[Worker], waiting: list[Cell]) -> None:
    busy = {worker.cell.trained for worker in crew if worker.cell}
    for worker in crew:
        ready = (cell for cell in waiting if table.is_ready(cell) and cell.trained not in busy)
        if worker.cell is None and (cell := next(ready, None)) is not None:
            waiting.remove(cell)
            busy.add(cell.trained)
            worker.give(cell)


def _heard(crew: list[Worker]) -> list[Worker]:
    """Workers that have an answer or have died, after a while at most."""
    busy = [worker for worker in crew if worker.cell]
    found = wait([worker.pipe for worker in busy], timeout=grid.PATIENCE)
    if not busy:
        time.sleep(grid.PATIENCE)  # what is left begins with a cell that is trained elsewhere
    return [worker for worker in busy if worker.pipe in found]


@dataclass(frozen=True)
class Asked:
    """What every worker is told once."""

    data: str
    out: Path
    cells: list[Cell]
    workers: int


@dataclass
class Worker:
    """A process that trains one cell after another; it is started with its first."""

    asked: Asked
    number: int
    settings: Settings
    cell: Cell | None = None
    context: SpawnContext = field(default_factory=lambda: multiprocessing.get_context("spawn"))  # a GPU knows no fork
    process: SpawnProcess | None = None
    _pipe: Connection | None = None

    @property
    def pipe(self) -> Connection:
        """To the process that runs."""
        assert self._pipe is not None
        return self._pipe

    def give(self, cell: Cell) -> None:
        """Let it train this cell; a process that has ended is replaced."""
        self.cell = cell
        if self.process is None or not self.process.is_alive():
            self._start()
        with suppress(BrokenPipeError):  # it died just now: known when its answer is read
            self.pipe.send(cell)

    def _start(self) -> None:
        self._pipe, theirs = self.context.Pipe()
        told = (os.getpid(), theirs, self.asked, self.number, self.settings)
        self.process = self.context.Process(target=START, args=told, daemon=True)
        with _threads(self.asked.workers):
            self.process.start()
        theirs.close()  # so that its end is the end of the pipe

    def answer(self) -> tuple[Cell, Outcome | None]:
        """The cell it was at, and what became of it."""
        assert self.cell is not None and self.process is not None
        cell, self.cell = self.cell, None
        outcome: Outcome | None
        try:
            outcome, ends = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            outcome = failed(cell, f"its process ended ({_ending(self.process.exitcode)})")
            self.process = None
        else:
            if ends:  # waited for, so that it is given nothing more
                self.process.join()
                self.process = None
            if outcome is not None and outcome.failure is None and outcome.new and outcome.measurement:
                say(f"{cell}: {outcome.measurement['value']:.4g} after {outcome.measurement['seconds']:.0f} s")
        return cell, outcome

    def end(self) -> None:
        """Let the process end."""
        if self.process is not None:
            self.pipe.close()
            self.process.terminate() if self.cell else self.process.join()


@contextmanager
def _threads(workers: int) -> Iterator[None]:
    """What begins now takes its part of the cores: libraries read this when they are loaded."""
    from matchlight import devices

    named = "OMP_NUM_THREADS"
    before = os.environ.get(named)
    os.environ[named] = before or str(devices.threads_each(workers))
    try:
        yield
    finally:
        os.environ.pop(named)
        if before is not None:
            os.environ[named] = before


def _ending(code: int | None) -> str:
    if code == -9:
        return "killed by signal 9; the machine's memory may be full: fewer --jobs"
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"


# ---- in the worker ---------------------------------------------------------------------------------------------------


def _work(parent: int, pipe: Connection, asked: Asked, number: int, settings: Settings) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _talk_to(asked.out / "workers" / f"{number}.txt")
    from matchlight import devices

    devices.share_machine(asked.workers, on_device=settings.jobs)
    pairs = Pairs.read(asked.data)
    while True:
        try:
            cell: Cell = pipe.recv()
        except EOFError:
            return
        try:
            outcome = fill(cell, asked.cells, pairs, asked.out, settings)
        except Exception as problem:  # whatever it is, it costs this cell alone
            traceback.print_exc()
            why = f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
            pipe.send((failed(cell, why), True))
            os._exit(1)  # what a GPU does after an error of its own is not known
        pipe.send((outcome, False))
        devices.free_memory()


def _talk_to(path: Path) -> None:
    """All that this process prints goes to a file: several at once would be read by nobody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


START = _work  # what a worker process begins with
