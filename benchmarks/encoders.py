"""Rsum through wrong pairs with a pretrained encoder, frozen and tuned: one row a run, several runs side by side.

    python benchmarks/encoders.py DATA -o OUT --noise 0,0.4 --seeds 2 --jobs 4 \
        --row "frozen: lantern backbone=dinov2-small" --row "tuned: lantern backbone=dinov2-small preset=tuned"

A row is a name, a method and its settings; `from=ROW` among them begins with the weights of that row's run of the same
noise and seed, which has to stand before it. Every cell (row, noise, seed) is a process of its own, so that a large GPU
is busy; its result is kept in OUT, and a table that was interrupted goes on where it stopped, runs included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Cell:
    """One run of the table."""

    row: str  # "name: method setting=value ..."
    noise: float
    seed: int

    @property
    def start(self) -> Cell | None:
        """The cell whose weights this one begins with."""
        begun = [word[5:] for word in self.row.split() if word.startswith("from=")]
        return Cell(f"{begun[0]}:", self.noise, self.seed) if begun else None

    @property
    def folder(self) -> str:
        """Where it is kept."""
        return f"{self.row.partition(':')[0]}-{round(100 * self.noise):02d}-{self.seed}"


def train_cell(data: Path, out: Path, cell: Cell) -> None:
    """Train and measure; the best model by validation is measured on the test pictures."""
    import matchlight as ml
    from matchlight.data.noise import mismatch
    from matchlight.files import write_json
    from matchlight.training.registry import parse

    method, *settings = [word for word in cell.row.partition(":")[2].split() if not word.startswith("from=")]
    pairs = ml.Pairs.read(data)
    if cell.noise:
        pairs, _ = mismatch(pairs, ratio=cell.noise, seed=cell.seed)
    began = time.perf_counter()
    begun = {"start": ml.Run.load(out / cell.start.folder)} if cell.start else {}
    run = ml.train(method, pairs, out / cell.folder, seed=cell.seed, resume=True, **begun, **parse(settings))
    report = ml.evaluate(run, ml.Pairs.read(data), "test")
    seconds = round(time.perf_counter() - began)
    log = [json.loads(line) for line in (out / cell.folder / "log.jsonl").read_text().splitlines()]
    epoch = float(np.median([line["seconds"] for line in log if "seconds" in line]))
    write_json(out / f"{cell.folder}.json", {**report, "seconds": seconds, "epoch_seconds": round(epoch, 1)})


def started(args: argparse.Namespace, cell: Cell, before: Future[Cell] | None) -> Cell:
    """A process for a cell, unless its result is there; the cell it begins with is waited for."""
    out: Path = args.out
    if before is not None and not (out / f"{before.result().folder}.json").is_file():
        (out / f"{cell.folder}.txt").write_text("the run it begins with failed")
        return cell
    if not (out / f"{cell.folder}.json").is_file():
        threads = str(max(1, (os.cpu_count() or 2) // args.jobs))
        one = ["--cell", json.dumps([cell.row, cell.noise, cell.seed])]
        with (out / f"{cell.folder}.txt").open("w") as log:
            command = [sys.executable, __file__, str(args.data), "-o", str(out), *one]
            subprocess.run(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": threads}, check=False)
    return cell


def line(out: Path, cell: Cell) -> str:
    """A finished cell as a line of the table."""
    kept = out / f"{cell.folder}.json"
    if not kept.is_file():
        log = (out / f"{cell.folder}.txt").read_text().strip().splitlines()
        return f"{cell.folder:28} failed: {log[-1][:200] if log else 'no output'}"
    report = json.loads(kept.read_text())
    ways = " ".join(
        f"{report[way]['r1']:5.1f} {report[way]['r5']:5.1f} {report[way]['r10']:5.1f}" for way in ("i2t", "t2i")
    )
    took = f"{report['seconds']:5.0f} s, {report['epoch_seconds']} an epoch"
    return f"{cell.folder:28} {report['rsum']:6.1f}  {ways}  {took}"


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """All cells, seed by seed: a table cut short has all its rows, and a row stands behind the one it begins with."""
    for seed in range(args.seeds):
        for row in args.row:
            for noise in args.noise.split(","):
                yield Cell(row, float(noise), seed)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--row", action="append", default=[], help='"name: method setting=value ..."')
    parser.add_argument("--noise", default="0")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.cell:
        train_cell(args.data, args.out, Cell(*json.loads(args.cell)))
        return
    with ThreadPoolExecutor(args.jobs) as pool:
        going: dict[str, Future[Cell]] = {}
        for cell in cells(args):
            before = going[cell.start.folder] if cell.start else None  # it was submitted earlier
            going[cell.folder] = pool.submit(started, args, cell, before)
        for done in as_completed(going.values()):
            print(line(args.out, done.result()), flush=True)


if __name__ == "__main__":
    main()
