"""Many trainings as one resumable table: each cell is a process of its own, several at a time.

A GPU that trains a small model mostly waits for the next launch, so a handful of cells side by side take hardly longer
than one. A cell that is done is not trained again; one that was killed goes on where it stopped.

    from cells import Cell, run                                 # what the other scripts here do
    python benchmarks/cells.py DATA -o OUT scan sgr:warm=4,rate=2e-4 --noise 0,0.4 --seeds 2 --jobs 4
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One training: a method with its settings, on data broken in one way, from one seed."""

    name: str  # what its row is called
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    per: str = "caption"  # captions move one by one, or all of a picture together
    seed: int = 0
    clean: bool = False  # the pairs that were broken are left out: what knowing the truth is worth
    split: str = "test"
    begin: str = ""  # the folder of a finished cell whose weights this one starts from

    @property
    def folder(self) -> str:
        """Where it lives under the table's folder."""
        kind = "" if self.per == "caption" else f"-{self.per}"
        return f"{self.name}-{self.noise:g}{kind}-{self.seed}".translate(str.maketrans(" /:", "__-"))


def broken(data: Path, cell: Cell) -> Any:
    """The data as this cell sees them; the noise is the same for every seed of training."""
    import matchlight as ml
    from matchlight.data.noise import mismatch, without

    pairs = ml.Pairs.read(data)
    if not cell.noise:
        return pairs
    noisy, truth = mismatch(pairs, ratio=cell.noise, per=cell.per, seed=0)
    return without(noisy, truth) if cell.clean else noisy


def train_one(data: Path, out: Path, cell: Cell) -> dict[str, Any]:
    """Train and measure one cell; its result is kept beside its run."""
    import matchlight as ml
    from matchlight.files import write_json

    pairs, folder = broken(data, cell), out / cell.folder
    began = time.perf_counter()
    start = ml.Run.load(out / cell.begin / "run") if cell.begin else None
    run = ml.train(cell.method, pairs, folder / "run", seed=cell.seed, resume=True, start=start, **cell.settings)
    seconds = time.perf_counter() - began
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    last = [line["val"]["rsum"] for line in log if line["val"] and "rsum" in line["val"]]
    chosen = {"best_val": max(last, default=None), "last_val": last[-1] if last else None, "epochs": len(log)}
    report = ml.evaluate(run, pairs, cell.split)
    result = {"seconds": round(seconds, 1), **chosen, **report, "cell": asdict(cell)}
    write_json(folder / "result.json", result)
    return result


def _in_a_process(data: Path, out: Path, cell: Cell) -> tuple[Cell, dict[str, Any]]:
    kept = out / cell.folder / "result.json"
    if not kept.exists():
        (out / cell.folder).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, str(data), "-o", str(out), "--cell", json.dumps(asdict(cell))]
        with open(out / cell.folder / "output.txt", "a") as log:
            done = subprocess.run(command, stdout=log, stderr=log, env={"OMP_NUM_THREADS": "2", **os.environ})
        if done.returncode:
            tail = (out / cell.folder / "output.txt").read_text().strip().splitlines()[-1:]
            return cell, {"error": " ".join(tail)[-200:]}
    result = json.loads(kept.read_text())
    asked = json.loads(json.dumps(asdict(cell)))
    if differs := [name for name in asked if result["cell"].get(name) != asked[name]]:
        return cell, {"error": f"{kept.parent} holds another cell ({', '.join(differs)} differ); choose another -o"}
    return cell, result


HEAD = f"{'cell':34}{'noise':>7}{'seed':>5}{'rsum':>8}{'i2t R@1':>9}{'t2i R@1':>9}{'val best':>10}{'last':>7}{'s':>7}"


def row(cell: Cell, r: dict[str, Any]) -> str:
    """One line of the table."""
    kind = "p" if cell.per == "picture" else ""
    start = f"{cell.name:34}{f'{cell.noise:.0%}{kind}':>7}{cell.seed:5}"
    if "error" in r:
        return f"{start}  failed: {r['error']}"
    figures = f"{r['rsum']:8.1f}{r['i2t']['r1']:9.1f}{r['t2i']['r1']:9.1f}" if "rsum" in r else f"{'':26}"
    val = f"{r['best_val'] or 0:10.1f}{r['last_val'] or 0:7.1f}"
    return f"{start}{figures}{val}{r['seconds']:7.0f}"


def run(
    cells: Sequence[Cell],
    data: Path,
    out: Path,
    *,
    jobs: int,
    show: Callable[[Cell, dict[str, Any]], str] = row,
    head: str = HEAD,
) -> list[tuple[Cell, dict[str, Any]]]:
    """All cells, a few at a time; rows are printed as they come in."""
    out.mkdir(parents=True, exist_ok=True)
    results = []
    print(head, flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(_in_a_process, data, out, cell) for cell in cells]
        for done in as_completed(waiting):
            results.append(done.result())
            print(show(*results[-1]), flush=True)
    return results


def cell_of(word: str, *, noise: float, per: str, seed: int) -> Cell:
    """`method:name=value,name=value` as a cell."""
    from matchlight.training.registry import parse

    method, _, rest = word.partition(":")
    settings = parse([part for part in rest.split(",") if part])
    return Cell(word.replace(":", " "), method, settings, noise=noise, per=per, seed=seed)


def main() -> None:
    """The table of the methods that were named, or one cell of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("methods", nargs="*", metavar="METHOD[:name=value,...]")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--noise", default="0")
    parser.add_argument("--per", default="caption", choices=("caption", "picture"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()
    if args.cell:
        train_one(args.data, args.out, Cell(**json.loads(args.cell)))
        return
    grid = [
        (word, float(noise), seed)
        for noise in args.noise.split(",")
        for word in args.methods
        for seed in range(args.seeds)
    ]
    run(
        [cell_of(word, noise=noise, per=args.per, seed=seed) for word, noise, seed in grid],
        args.data,
        args.out,
        jobs=args.jobs,
    )


if __name__ == "__main__":
    main()
