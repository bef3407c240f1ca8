"""Methods against noise: train each at each share of noise and each seed, measure on test, and put it in one table.

A comparison is a folder of cells, one a (method, noise, seed): a run and its report. A cell that is finished is not
trained again, one that was killed goes on where it stopped, and the table, the plot and the results are written anew
after every cell: stopping loses nothing, and asking for more methods, noise or seeds adds to what is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchlight import checkpoints, standings
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.noise import Truth, flip_labels, mismatch
from matchlight.pairs import Pairs
from matchlight.recipes import Method, arguments, grounded, method

PROTOCOLS = ("auto", "recall", "five-fold", "labels")


@dataclass(frozen=True)
class Entrant:
    """A method with arguments of its own: one line of the table."""

    name: str
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """How it is called in tables: scan direction=i2t."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.arguments)])

    @property
    def method(self) -> Method:
        """The method itself, with what it is built on."""
        return grounded(method(self.name), dict(self.arguments))

    @property
    def by_labels(self) -> bool:
        """Whether it learns from labels, so that noise means wrong labels."""
        return "labels" in self.method.needs


@dataclass(frozen=True)
class Cell:
    """One entry: a method at one share of noise with one seed."""

    entrant: Entrant
    noise: float
    seed: int

    @property
    def folder(self) -> str:
        """Its place below the comparison's folder; labels that look alike as file names stay apart by their hash."""
        plain = re.sub(r"[^A-Za-z0-9+._-]+", "-", self.entrant.label)[:60]
        tag = "" if plain == self.entrant.label else "-" + hashlib.sha256(self.entrant.label.encode()).hexdigest()[:8]
        return f"{plain}{tag}/noise{self.noise:g}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.entrant.label} at {100 * self.noise:g}% noise, seed {self.seed}"


def entrants(words: Sequence[str]) -> list[Entrant]:
    """Methods from a command line: name=value belongs to the method before it, or to all if no method came yet."""
    common: dict[str, str] = {}
    found: list[tuple[str, dict[str, str]]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            found.append((word, {}))
        elif not name:
            raise BadInput(f"{word!r}: an override is written name=value, as in epochs=20")
        else:
            (found[-1][1] if found else common)[name] = value
    if not found:
        raise BadInput("compare needs at least one method; `matchlight methods` lists them")
    out = [Entrant(name, tuple({**common, **own}.items())) for name, own in found]
    for one in out:
        if out.count(one) > 1:
            raise BadInput(f"{one.label}: asked for twice")
    return out


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
    if cell.entrant.by_labels:
        return flip_labels(pairs, ratio=cell.noise, kind=settings.kind, seed=cell.seed)
    return mismatch(pairs, ratio=cell.noise, per=settings.per, seed=cell.seed)


def measured(report: dict[str, Any]) -> tuple[str, float]:
    """The one number a report is compared by: rsum, or MAP where labels judge."""
    return ("rsum", float(report["rsum"])) if "rsum" in report else ("MAP", float(report["map"]["mean"]))


def train_cell(cell: Cell, pairs: Pairs, folder: Path, settings: Settings) -> dict[str, Any]:
    """Train and measure one cell, or go on with it; its report is the last file to be written."""
    from matchlight.evaluation import evaluate
    from matchlight.runs import train

    began = time.monotonic()
    noisy, truth = broken(pairs, cell, settings)
    given: dict[str, Any] = dict(cell.entrant.arguments)
    if not (folder / "run" / "recipe.json").exists():  # killed before it was a run: nothing to go on with
        shutil.rmtree(folder / "run", ignore_errors=True)
    run = train(
        cell.entrant.name,
        noisy,
        folder / "run",
        seed=cell.seed,
        device=settings.device,
        precision=settings.precision,
        resume=True,
        save_minutes=settings.save_minutes,
        **given,
    )
    report = evaluate(run, pairs, settings.split, protocol=settings.protocol)
    truth.save(folder / "truth.json")
    name, value = measured(report)
    found = {
        "method": cell.entrant.label,
        "noise": cell.noise,
        "seed": cell.seed,
        "measure": name,
        "value": value,
        "seconds": round(time.monotonic() - began, 1),
        "report": report,
    }
    checkpoints.write_json(folder / "report.json", found)
    return found


# ---- the whole table -------------------------------------------------------------------------------------------------


def check(cells: Sequence[Cell], pairs: Pairs, settings: Settings) -> None:
    """Refuse what can be refused before the first cell is trained."""
    from matchlight.prepare import pick_device
    from matchlight.runs import check_needs, pick_precision

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("compare runs in one process; under torchrun, train and evaluate run by run")
    device = pick_device(settings.device)
    pick_precision(settings.precision, device)
    for split in ("train", settings.split):
        if split not in pairs.split_names:
            raise BadInput(f"{pairs.root}: no {split} split; it has {', '.join(pairs.split_names) or 'none'}")
    for one in dict.fromkeys(cell.entrant for cell in cells):
        check_needs(one.method, pairs)
        arguments(one.method, dict(one.arguments), pairs=len(pairs.rows("train")), device=device.type)
    tried = {(cell.entrant.by_labels, cell.noise): cell for cell in cells}
    for cell in tried.values():
        broken(pairs, cell, settings)  # a share of noise that this data cannot take


def agree(folder: Path, pairs: Pairs, settings: Settings) -> None:
    """A folder holds one comparison: cells of other data or another kind of noise must not stand in one table."""
    from matchlight.runs import fingerprint

    shared = ("per", "kind", "split", "protocol")
    mine = {"data": fingerprint(pairs), **{name: getattr(settings, name) for name in shared}}
    path = folder / "settings.json"
    if path.exists():
        old = checkpoints.read_json(path, "a comparison's settings")
        differs = [name for name in mine if old.get(name) != mine[name]]
        if differs:
            raise BadInput(f"{folder} holds another comparison ({', '.join(differs)} differ); choose another -o")
        return
    if folder.exists() and (not folder.is_dir() or any(not file.name.startswith(".") for file in folder.iterdir())):
        raise BadInput(f"{folder}: not empty and not a comparison; choose another -o")
    checkpoints.write_json(path, mine)


def described(methods: Sequence[Entrant]) -> list[dict[str, Any]]:
    """The lines of the table; where they are shown, arguments that all of them share are left out."""
    shared = set.intersection(*(set(one.arguments) for one in methods))
    lines = []
    for one in methods:
        own = Entrant(one.name, tuple(pair for pair in one.arguments if pair not in shared))
        lines.append({"label": one.label, "shown": own.label, "name": one.name, "arguments": dict(one.arguments)})
    return lines


def finished(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """What a cell found, if it got that far."""
    path = folder / "report.json"
    found = checkpoints.read_json(path, "a cell's report") if path.exists() else None
    same = found and (found.get("method"), found.get("noise"), found.get("seed"))
    if found and same != (cell.entrant.label, cell.noise, cell.seed):
        raise BadInput(f"{path}: the report of another cell; remove {folder} to train this one")
    return found


def compare(
    methods: Sequence[Entrant],
    pairs: Pairs,
    out: str | Path,
    *,
    noise: Sequence[float] = (0.0, 0.2, 0.4),
    seeds: int = 1,
    settings: Settings | None = None,
    show: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Train and measure every cell that is not finished; gives all results, and `show`s them after each new cell."""
    settings, folder = settings or Settings(), Path(out)
    shares = sorted(set(noise))
    # the whole table at the first seed, then at the next: what there is can be read at any time
    cells = [Cell(one, share, seed) for seed in range(seeds) for share in shares for one in methods]
    check(cells, pairs, settings)
    agree(folder, pairs, settings)
    results: dict[str, Any] = {
        "data": pairs.root.name,
        "split": settings.split,
        "noise": shares,
        "seeds": seeds,
        "methods": described(methods),
        "cells": [],
        "failed": [],
    }
    for number, cell in enumerate(cells, 1):
        place = folder / "cells" / cell.folder
        found = finished(place, cell)
        if found is not None:
            results["cells"].append(found)
            continue
        say(f"cell {number} of {len(cells)}: {cell}")
        try:
            results["cells"].append(found := train_cell(cell, pairs, place, settings))
            say(f"{cell}: {found['measure']} {found['value']:.4g} after {found['seconds']:.0f} s")
        except BadInput as problem:  # a rate that is too high for one method is no reason to give up on the others
            results["failed"].append(
                {"method": cell.entrant.label, "noise": cell.noise, "seed": cell.seed, "why": str(problem)}
            )
            say(f"{cell}: {problem}")
        standings.write(folder, results)
        if show is not None:
            show(results)
    standings.write(folder, results)
    return results


def failures(results: dict[str, Any]) -> None:
    """One clear line where cells could not be trained; everything else is written by then."""
    if results["failed"]:
        first, count = results["failed"][0], len(results["failed"])
        where = f"{first['method']} at {100 * first['noise']:g}% noise, seed {first['seed']}"
        raise BadInput(f"{count} of {count + len(results['cells'])} entries failed; {where}: {first['why']}")
