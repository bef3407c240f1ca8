"""One vector or a set of them: rsum, how many fitting items are found, and how spread the sets are, method by method.

    python benchmarks/sets.py DATA -o OUT [--rows ROW,ROW...] [--noise 0,0.4] [--seeds 1] [--jobs 1]
                                     [--set name=value ...]

A row is a method with arguments of its own: `vse_infty`, `dive:similarity=mil`, `dive:similarity=mp:loss=rclog`. The
default is VSE-infinity, PVSE, PCME, DivE with each of its similarities, and Lantern. `--set` overrides hold for every
method that knows them. Prints one line a run as it goes: rsum and recalls of the test split; where the data knows more
than one fitting item a query (scenes) also mAP@R and R-precision both ways; the mean circular variance within picture
and caption sets; seconds of training; at the end the means over seeds. A run that is already in OUT is not trained
again, so an interrupted table goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from cells import Cell, run

import matchlight as ml
from matchlight.parts.set_similarities import SIMILARITIES
from matchlight.training.registry import Chosen, find, parse

ROWS = ["vse_infty", "pvse", "pcme", *(f"dive:similarity={name}" for name in SIMILARITIES), "lantern"]
RECALLS = [(side, f"r{k}") for side in ("i2t", "t2i") for k in (1, 5, 10)]
MANY = [(side, name) for side in ("i2t", "t2i") for name in ("map_at_r", "r_precision")]


def heading(many: bool) -> str:
    """The first line of the table."""
    recalls = "".join(f"{side + ' ' + name:>8}" for side, name in RECALLS)
    more = "".join(f"{side + ' ' + {'map_at_r': 'mAP@R', 'r_precision': 'R-P'}[name]:>11}" for side, name in MANY)
    return (
        f"{'row':34}{'noise':>6}{'seed':>5}{'rsum':>8}{recalls}{more if many else ''}{'CV img':>8}{'CV txt':>8}{'s':>9}"
    )


def line(cell: Cell, r: dict[str, Any]) -> str:
    """One run."""
    start = f"{cell.name:34}{cell.noise:6.0%}{cell.seed:5}"
    if "error" in r:
        return f"{start}  failed: {r['error']}"
    recalls = "".join(f"{r[side][name]:8.1f}" for side, name in RECALLS)
    more = "".join(f"{r['many'][side][name]:11.1f}" for side, name in MANY) if "many" in r else ""
    apart = "".join(f"{value:8.3f}" for value in r["spread"].values()) if "spread" in r else 2 * "       -"
    return f"{start}{r['rsum']:8.1f}{recalls}{more}{apart}{r['seconds']:9.1f}"


def means(results: list[tuple[Cell, dict[str, Any]]]) -> Iterator[str]:
    """Rsum over seeds, one line a row and share of noise."""
    for name, noise in dict.fromkeys((cell.name, cell.noise) for cell, _ in results):
        sums = [r["rsum"] for cell, r in results if (cell.name, cell.noise) == (name, noise) and "rsum" in r]
        if sums:
            yield f"{name:34}{noise:6.0%}{len(sums):4} seeds{mean(sums):8.1f} ± {pstdev(sums):.1f}"


def parsed(row: str) -> tuple[str, dict[str, str]]:
    """`name:argument=value:...` as a method and its arguments."""
    method, *words = row.split(":")
    return method, parse(words)


def table(args: argparse.Namespace) -> Iterator[Cell]:
    """The cells that were asked for; settings for all are left out where a method does not know them."""
    common = parse(args.set)
    for noise in map(float, args.noise.split(",")):
        for row in args.rows.split(","):
            name, own = parsed(row)
            known = {*Chosen.of(find(name), own).defaults, "preset"}
            settings = {key: value for key, value in common.items() if key in known} | own
            for seed in range(args.seeds):
                yield Cell(row, name, settings, noise=noise, seed=seed)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--noise", default="0")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="overrides for all that know them")
    args = parser.parse_args()
    head = heading(ml.Pairs.read(args.data).relevance is not None)
    results = run(list(table(args)), args.data, args.out, jobs=args.jobs, show=line, head=head)
    print("\n" + "\n".join(means(results)), flush=True)


if __name__ == "__main__":
    main()
