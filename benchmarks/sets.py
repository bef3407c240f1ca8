"""One vector or a set of them: rsum, how many fitting items are found, and how spread the sets are, method by method.

    python benchmarks/sets.py DATA -o OUT [--rows ROW,ROW...] [--noise 0,0.4] [--seeds 1] [--set name=value ...]

A row is a method with arguments of its own: `vse_infty`, `dive:similarity=mil`, `dive:similarity=mp:loss=rclog`. The
default is VSE-infinity, PVSE, PCME, and DivE with each of its similarities. `--set` overrides hold for every method
that knows them. Prints one line a run as it goes: rsum and recalls of the test split, where the data knows more than
one fitting item a query (scenes) also mAP@R and R-precision both ways, the mean circular variance within picture and
caption sets, and seconds of training. A run that is already in OUT is not trained again, so an interrupted table goes
on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matchlight as ml
from matchlight.checkpoints import write_json
from matchlight.methods import RECIPES
from matchlight.noise import mismatch
from matchlight.sets import SIMILARITIES

ROWS = ["vse_infty", "pvse", "pcme", *(f"dive:similarity={name}" for name in SIMILARITIES)]
RECALLS = [(side, f"r{k}") for side in ("i2t", "t2i") for k in (1, 5, 10)]
MANY = [(side, name) for side in ("i2t", "t2i") for name in ("map_at_r", "r_precision")]


def one(pairs: ml.Pairs, folder: Path, method: str, *, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train and measure one cell; its result is kept beside the run."""
    kept = folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text())
    began = time.perf_counter()
    run = ml.train(method, pairs, folder, seed=seed, resume=True, **settings)
    seconds = time.perf_counter() - began
    result = {"seconds": round(seconds, 1), **ml.evaluate(run, pairs, "test")}
    write_json(kept, result)
    return result


def heading(many: bool) -> str:
    """The first line of the table."""
    recalls = "".join(f"{side + ' ' + name:>8}" for side, name in RECALLS)
    more = "".join(f"{side + ' ' + {'map_at_r': 'mAP@R', 'r_precision': 'R-P'}[name]:>11}" for side, name in MANY)
    return (
        f"{'row':34}{'noise':>6}{'seed':>5}{'rsum':>8}{recalls}{more if many else ''}{'CV img':>8}{'CV txt':>8}{'s':>9}"
    )


def line(row: str, ratio: float, seed: int, r: dict[str, Any]) -> str:
    """One run."""
    recalls = "".join(f"{r[side][name]:8.1f}" for side, name in RECALLS)
    more = "".join(f"{r['many'][side][name]:11.1f}" for side, name in MANY) if "many" in r else ""
    apart = "".join(f"{value:8.3f}" for value in r["spread"].values()) if "spread" in r else 2 * "       -"
    return f"{row:34}{ratio:6.0%}{seed:5}{r['rsum']:8.1f}{recalls}{more}{apart}{r['seconds']:9.1f}"


def parsed(row: str) -> tuple[str, dict[str, str]]:
    """`name:argument=value:...` as a method and its arguments."""
    method, *words = row.split(":")
    return method, dict(word.split("=", 1) for word in words)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--noise", default="0")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="overrides for all that know them")
    args = parser.parse_args()
    clean = ml.Pairs.read(args.data)
    common = dict(word.split("=", 1) for word in args.set)
    print(heading(clean.relevance is not None), flush=True)
    for ratio in map(float, args.noise.split(",")):
        pairs = mismatch(clean, ratio=ratio, seed=0)[0] if ratio else clean
        for row in args.rows.split(","):
            method, own = parsed(row)
            if method not in RECIPES:
                print(f"{row:34}no such method here", flush=True)
                continue
            known = {**RECIPES[method].defaults, "preset": None}
            settings = {name: value for name, value in common.items() if name in known} | own
            for seed in range(args.seeds):
                folder = args.out / f"{row.replace(':', '-')}-{ratio:g}-{seed}"
                print(line(row, ratio, seed, one(pairs, folder, method, seed=seed, settings=settings)), flush=True)


if __name__ == "__main__":
    main()
