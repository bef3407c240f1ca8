"""Methods against noise: train each at each share of noise and each seed, measure on test, and put it in one table.

A comparison is a folder of cells, one a (method, noise, seed): a run and its report. A cell that is finished is not
trained again, one that was killed goes on where it stopped, and the table, the plot and the results are written anew
after every cell: stopping loses nothing, and asking for more methods, noise or seeds adds to what is there. A cell is
locked while it is trained, so several processes (one a GPU) can fill one folder.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchlight import files
from matchlight.comparing import results_files
from matchlight.comparing.results_table import Failure, Measurement, Results
from matchlight.comparing.variants import Cell, Variant, all_cells, described
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.noise import Truth, flip_labels, mismatch
from matchlight.measuring import significance
from matchlight.pairs import Pairs
from matchlight.training.registry import settings_of

PROTOCOLS = ("auto", "recall", "five-fold", "labels")
PATIENCE = 2.0  # seconds between two looks at what other processes are at


@dataclass(frozen=True)
class Settings:
    """What all cells share."""

    per: str = "caption"  # what mismatched noise moves
    kind: str = "symmetric"  # how labels flip
    split: str = "test"
    protocol: str = "auto"
    device: str = "auto"
    precision: str = "auto"
    save_minutes: float = 2.0


def broken(pairs: Pairs, cell: Cell, settings: Settings) -> tuple[Pairs, Truth]:
    """The training data of a cell: pairs mismatched, or labels flipped for a method that learns from labels."""
    if cell.variant.by_labels:
        return flip_labels(pairs, ratio=cell.noise, kind=settings.kind, seed=cell.seed)
    return mismatch(pairs, ratio=cell.noise, per=settings.per, seed=cell.seed)


def train_cell(cell: Cell, pairs: Pairs, folder: Path, settings: Settings) -> Measurement:
    """Train and measure one cell, or go on with it; its report is the last file to be written."""
    from matchlight.runs.evaluation import scored
    from matchlight.runs.train_run import train

    began = time.monotonic()
    noisy, truth = broken(pairs, cell, settings)
    given: dict[str, Any] = dict(cell.variant.arguments)
    if not (folder / "run" / "recipe.json").exists():  # killed before it was a run: nothing to go on with
        shutil.rmtree(folder / "run", ignore_errors=True)
    run = train(
        cell.variant.name,
        noisy,
        folder / "run",
        seed=cell.seed,
        device=settings.device,
        precision=settings.precision,
        resume=True,
        save_minutes=settings.save_minutes,
        **given,
    )
    trained = time.monotonic()
    scores = scored(run, pairs, settings.split, protocol=settings.protocol)
    measured = scores.measured(pairs.subset(settings.split), protocol=settings.protocol)
    truth.save(folder / "truth.json")
    name, path = measured.main
    files.write_array(folder / significance.SHARES, measured.figures.shares(path))
    measurement: Measurement = {
        "method": cell.variant.label,
        "noise": cell.noise,
        "seed": cell.seed,
        "measure": name,
        "value": measured.figures.value(path),
        "seconds": round(max(trained - began, logged_seconds(folder / "run")) + time.monotonic() - trained, 1),
        "report": measured.report,
    }
    files.write_json(folder / "report.json", measurement)
    return measurement


def logged_seconds(run: Path) -> float:
    """What a run's epochs took, those before an interruption too."""
    try:
        lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return sum(float(json.loads(line).get("seconds", 0)) for line in lines if line.strip())
    except (OSError, ValueError):
        return 0.0


# ---- the whole table -------------------------------------------------------------------------------------------------


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
    tried = {(cell.variant.by_labels, cell.noise): cell for cell in cells}
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
    """What a cell measured, if it got that far."""
    path = folder / "report.json"
    if not path.exists():
        return None
    report: Measurement = files.read_json(path, "a cell's report")
    if (report.get("method"), report.get("noise"), report.get("seed")) != (cell.variant.label, cell.noise, cell.seed):
        raise BadInput(f"{path}: the report of another cell; remove {folder} to train this one")
    return report


def compare(
    methods: Sequence[Variant],
    pairs: Pairs,
    out: str | Path,
    *,
    noise: Sequence[float] = (0.0, 0.2, 0.4),
    seeds: int = 1,
    settings: Settings | None = None,
    show: Callable[[Results], None] | None = None,
) -> Results:
    """Train and measure every cell that is not finished; gives all results, and `show`s them after each new cell."""
    settings, folder = settings or Settings(), Path(out)
    shares, cells = sorted(set(noise)), all_cells(methods, noise, seeds)
    check(cells, pairs, settings)
    agree(folder, pairs, settings)
    results: Results = {
        "data": pairs.root.name,
        "split": settings.split,
        "noise": shares,
        "seeds": seeds,
        "methods": described(methods),
        "cells": [],
        "failed": [],
    }
    measured: dict[Cell, Measurement] = {}
    failed: dict[Cell, Failure] = {}
    waiting = list(cells)
    while waiting:
        elsewhere = []
        for cell in waiting:
            outcome = fill(cell, cells, pairs, folder, settings)
            if outcome is None:
                elsewhere.append(cell)
                continue
            if outcome.failure is not None:
                failed[cell] = outcome.failure
            if outcome.measurement is not None:
                measured[cell] = outcome.measurement
            results["cells"] = [measured[one] for one in cells if one in measured]
            results["failed"] = [failed[one] for one in cells if one in failed]
            if outcome.new:
                results_files.write(folder, results)
                if show is not None:
                    show(results)
        if elsewhere and len(elsewhere) == len(waiting):
            time.sleep(PATIENCE)  # others are at work on all that is left
        waiting = elsewhere
    results_files.write(folder, results)
    return results


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: what was measured, or why it could not be trained."""

    measurement: Measurement | None = None
    failure: Failure | None = None
    new: bool = True


def fill(cell: Cell, cells: Sequence[Cell], pairs: Pairs, folder: Path, settings: Settings) -> Outcome | None:
    """Train and measure a cell where that is still to be done; None while another process is at it."""
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
            report = train_cell(cell, pairs, place, settings)
        except BadInput as problem:  # a rate that is too high for one method is no reason to give up on the others
            say(f"{cell}: {problem}")
            why = str(problem)
            return Outcome(failure={"method": cell.variant.label, "noise": cell.noise, "seed": cell.seed, "why": why})
        say(f"{cell}: {report['measure']} {report['value']:.4g} after {report['seconds']:.0f} s")
        return Outcome({**report, "folder": name})


def failures(results: Results) -> None:
    """One clear line where cells could not be trained; everything else is written by then."""
    if results["failed"]:
        first, count = results["failed"][0], len(results["failed"])
        where = f"{first['method']} at {100 * first['noise']:g}% noise, seed {first['seed']}"
        raise BadInput(f"{count} of {count + len(results['cells'])} entries failed; {where}: {first['why']}")
