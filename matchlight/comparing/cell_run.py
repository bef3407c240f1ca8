"""One cell of a comparison: its data made wrong, the run that learns from them, and what was measured."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchlight import files
from matchlight.comparing.noise_columns import is_per_picture, share_of
from matchlight.comparing.results_table import Measurement
from matchlight.comparing.variants import Cell
from matchlight.core import BadInput
from matchlight.data.noise import Truth, flip_labels, mismatch, without
from matchlight.measuring import significance
from matchlight.pairs import Pairs

Keep = Literal["runs", "reports"]


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
    keep: Keep = "runs"  # "reports": what a run weighs is removed once it is measured, and hardly saved before
    jobs: int = 1  # cells side by side on each device
    part: tuple[int, int] = (1, 1)  # the k-th of n parts of the table is this machine's


def broken(pairs: Pairs, cell: Cell, settings: Settings) -> tuple[Pairs, Truth]:
    """The training data of a cell: pairs mismatched, or labels flipped for a method that learns from labels."""
    share = share_of(cell.noise)
    if cell.variant.by_labels:
        if is_per_picture(cell.noise):
            raise BadInput(f"{cell.variant.name} learns from labels: {cell.noise} moves the captions of whole pictures")
        noisy, truth = flip_labels(pairs, ratio=share, kind=settings.kind, seed=cell.seed)
    else:
        if is_per_picture(cell.noise) and len(np.unique(pairs.picture)) == len(pairs):
            raise BadInput(f"{pairs.root}: a caption a picture, so {cell.noise} and {share:g} are one noise")
        per = "picture" if is_per_picture(cell.noise) else settings.per
        noisy, truth = mismatch(pairs, ratio=share, per=per, seed=cell.seed)
    return without(noisy, truth) if cell.variant.oracle else noisy, truth


def train_cell(cell: Cell, pairs: Pairs, folder: Path, settings: Settings, *, start: Path | None = None) -> Measurement:
    """Train and measure one cell, or go on with it; its report is the last file to be written.

    `start` is the run that it begins with.
    """
    from matchlight.runs.evaluation import scored
    from matchlight.runs.folder import Run
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
        start=Run.load(start, device="cpu") if start else None,
        save_minutes=settings.save_minutes,
        passing=settings.keep == "reports",
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
        "report": scores.with_spread(measured.report),
    }
    files.write_json(folder / "report.json", measurement)
    return measurement


def without_weights(run: Path, *, whole: bool) -> None:
    """Remove what a measured run weighs; one that others begin with (not `whole`) keeps its model."""
    shutil.rmtree(run / "state", ignore_errors=True)
    for file in run.rglob("*.safetensors") if whole else ():
        file.unlink(missing_ok=True)


def logged_seconds(run: Path) -> float:
    """What a run's epochs took, those before an interruption too."""
    try:
        lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return sum(float(json.loads(line).get("seconds", 0)) for line in lines if line.strip())
    except (OSError, ValueError):
        return 0.0
