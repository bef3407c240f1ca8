"""Methods against noise: train each at each share of noise and each seed, measure on test, and put it in one table.

A comparison is a folder of cells, one a (method, noise, seed): a run and its report. A cell that is finished is not
trained again, one that was killed goes on where it stopped, and the table, the plot and the results are written anew
after every cell: stopping loses nothing, and asking for more methods, noise or seeds adds to what is there. A cell is
locked while it is trained, so several processes (one a GPU) can fill one folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matchlight import files
from matchlight.comparing import results_files
from matchlight.comparing.cell_run import Settings, broken, train_cell, without_weights
from matchlight.comparing.noise_columns import Noise, heading, in_order
from matchlight.comparing.results_table import Failure, Measurement, Results
from matchlight.comparing.variants import Cell, Variant, all_cells, described, part_of
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.training.registry import settings_of

PROTOCOLS = ("auto", "recall", "five-fold", "labels")
PATIENCE = 2.0  # seconds between two looks at what other processes are at
Show = Callable[[Results], None]

__all__ = ["Cell", "Settings", "Table", "check", "compare", "failures", "fill"]


def check(cells: Sequence[Cell], pairs: Pairs, settings: Settings) -> None:
    """Refuse what can be refused before the first cell is trained."""
    from matchlight.devices import pick_device, pick_precision
    from matchlight.runs.train_run import check_needs

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("compare runs in one process; under torchrun, train and evaluate run by run")
    pairs.need_captions("a comparison")
    device = pick_device(settings.device)
    pick_precision(settings.precision, device)
    for split in ("train", settings.split):
        if split not in pairs.split_names:
            raise BadInput(f"{pairs.root}: no {split} split; it has {', '.join(pairs.split_names) or 'none'}")
    for one in dict.fromkeys(cell.variant for cell in cells):
        check_needs(one.method, pairs)
        settings_of(one.method, dict(one.arguments), pairs=len(pairs.rows("train")), device=device.type)
    tried = {(cell.variant.by_labels, cell.variant.oracle, cell.noise): cell for cell in cells}
    for cell in tried.values():
        broken(pairs, cell, settings)  # a share of noise that this data cannot take


def agree(folder: Path, pairs: Pairs, settings: Settings) -> None:
    """A folder holds one comparison: cells of other data or another kind of noise must not stand in one table."""
    from matchlight.data.fingerprints import data_marks, differing

    shared = ("per", "kind", "split", "protocol")
    marks = data_marks(pairs)
    mine = {
        "data": marks["fingerprint"],
        "content": marks["content"],
        **{name: getattr(settings, name) for name in shared},
    }
    files.remove_leftovers(folder)
    path = folder / "settings.json"
    if path.exists():
        old = files.read_json(path, "a comparison's settings")
        differs = differing(old, mine)
        if differs:
            raise BadInput(f"{folder} holds another comparison ({', '.join(differs)} differ); choose another -o")
        return
    if folder.exists() and (not folder.is_dir() or any(not file.name.startswith(".") for file in folder.iterdir())):
        raise BadInput(f"{folder}: not empty and not a comparison; choose another -o")
    files.write_json(path, mine)


def finished(folder: Path, cell: Cell) -> Measurement | None:
    """What a cell measured, if it got that far; an oracle's without noise is that of the method itself."""
    path, trained = folder / "report.json", cell.trained
    if not path.exists():
        return None
    report: Measurement = files.read_json(path, "a cell's report")
    mine = (trained.variant.label, cell.noise, cell.seed)
    if (report.get("method"), report.get("noise"), report.get("seed")) != mine:
        raise BadInput(f"{path}: the report of another cell; remove {folder} to train this one")
    return {**report, "method": cell.variant.label}


# ---- one cell --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: what was measured, or why it could not be trained."""

    measurement: Measurement | None = None
    failure: Failure | None = None
    new: bool = True


def failed(cell: Cell, why: str) -> Outcome:
    """A cell that could not be trained."""
    say(f"{cell}: {why}")
    return Outcome(failure={"method": cell.variant.label, "noise": cell.noise, "seed": cell.seed, "why": why})


def fill(cell: Cell, cells: Sequence[Cell], pairs: Pairs, folder: Path, settings: Settings) -> Outcome | None:
    """Train and measure a cell where that is still to be done; None while another process is at it."""
    from torch.cuda import OutOfMemoryError

    place, name = folder / "cells" / cell.folder, f"cells/{cell.folder}"
    report = finished(place, cell)
    if report is not None:
        return Outcome({**report, "folder": name}, new=False)
    with files.try_lock(place) as mine:
        if not mine:
            return None
        report = finished(place, cell)  # another process may have been quicker
        if report is not None:
            return Outcome({**report, "folder": name})
        say(f"cell {cells.index(cell) + 1} of {len(cells)}: {cell}")
        try:
            train_cell(cell.trained, pairs, place, settings, **_start_of(cell, folder))
        except BadInput as problem:  # a rate that is too high for one method is no reason to give up on the others
            return failed(cell, str(problem))
        except (OutOfMemoryError, MemoryError) as problem:
            return failed(cell, f"the memory is full: {' '.join(str(problem).split())[:200]}")
        if settings.keep == "reports":
            without_weights(place / "run", whole=not any(one.begin == cell.trained for one in cells))
        report = finished(place, cell)
        assert report is not None
        say(f"{cell}: {report['measure']} {report['value']:.4g} after {report['seconds']:.0f} s")
        return Outcome({**report, "folder": name})


def _start_of(cell: Cell, folder: Path) -> dict[str, Path]:
    """The run that a cell begins with, which is finished by then."""
    return {"start": folder / "cells" / cell.begin.folder / "run"} if cell.begin else {}


# ---- the whole table -------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """What is known of all cells so far; the files are written anew when a cell comes in."""

    folder: Path
    results: Results
    cells: list[Cell]
    show: Show | None = None
    measured: dict[Cell, Measurement] = field(default_factory=dict)
    failed: dict[Cell, Failure] = field(default_factory=dict)

    def take(self, cell: Cell, outcome: Outcome) -> None:
        """A cell that is done, one way or the other."""
        if outcome.failure is not None:
            self.failed[cell] = outcome.failure
        if outcome.measurement is not None:
            self.measured[cell] = outcome.measurement
        self.results["cells"] = [self.measured[one] for one in self.cells if one in self.measured]
        self.results["failed"] = [self.failed[one] for one in self.cells if one in self.failed]
        if outcome.new:
            results_files.write(self.folder, self.results)
            if self.show is not None:
                self.show(self.results)

    def is_ready(self, cell: Cell) -> bool:
        """Whether the run that a cell begins with is there."""
        return cell.begin is None or (self.folder / "cells" / cell.begin.folder / "report.json").exists()

    def lost(self, cell: Cell) -> Outcome | None:
        """A cell whose beginning could not be trained cannot be either."""
        gone = cell.begin is not None and any(one.trained == cell.begin for one in self.failed)
        return failed(cell, f"the run it begins with failed: {cell.begin}") if gone else None


def begun(
    methods: Sequence[Variant],
    pairs: Pairs,
    out: Path,
    *,
    noise: Sequence[Noise],
    seeds: int,
    settings: Settings,
    show: Show | None,
) -> Table:
    """The table of a comparison that was checked, in its folder, with nothing in it yet."""
    agree(out, pairs, settings)
    results: Results = {
        "data": pairs.root.name,
        "split": settings.split,
        "noise": in_order(noise),
        "seeds": seeds,
        "methods": described(methods),
        "cells": [],
        "failed": [],
    }
    return Table(out, results, part_of(all_cells(methods, noise, seeds), settings.part), show)


def compare(
    methods: Sequence[Variant],
    pairs: Pairs,
    out: str | Path,
    *,
    noise: Sequence[Noise] = (0.0, 0.2, 0.4),
    seeds: int = 1,
    settings: Settings | None = None,
    show: Show | None = None,
) -> Results:
    """Train and measure every cell that is not finished; gives all results, and `show`s them after each new cell."""
    settings, folder = settings or Settings(), Path(out)
    check(all_cells(methods, noise, seeds), pairs, settings)
    table = begun(methods, pairs, folder, noise=noise, seeds=seeds, settings=settings, show=show)
    waiting = list(table.cells)
    while waiting:
        elsewhere = []
        for cell in waiting:
            outcome = table.lost(cell)
            if outcome is None and table.is_ready(cell):
                outcome = fill(cell, table.cells, pairs, folder, settings)
            if outcome is None:
                elsewhere.append(cell)
            else:
                table.take(cell, outcome)
        if elsewhere and len(elsewhere) == len(waiting):
            time.sleep(PATIENCE)  # others are at work on all that is left
        waiting = elsewhere
    results_files.write(folder, table.results)
    return table.results


def failures(results: Results) -> None:
    """One clear line where cells could not be trained; everything else is written by then."""
    if results["failed"]:
        first, count = results["failed"][0], len(results["failed"])
        where = f"{first['method']} at {heading(first['noise'])}, seed {first['seed']}"
        raise BadInput(f"{count} of {count + len(results['cells'])} entries failed; {where}: {first['why']}")
