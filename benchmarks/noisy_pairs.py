"""Rsum against the share of mismatched pairs: base, warm-up, clean pairs only, NCR and NCR+, and what NCR+ is made of.

    python benchmarks/noisy_pairs.py DATA -o OUT [--scorer vse_infty|sgr] [--noise 0,0.2,0.4,0.6,0.8] [--picture 0.6]
                                     [--seeds 2] [--jobs 6] [--only base,ncr+] [--ablation]

Resumable; prints a row a run and, at the end, the table of means. `--picture` adds ratios where all captions of a
picture move together: a harder noise, never to be compared with the other kind.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from cells import Cell, run

HINGE: dict[str, Any] = {"preset": "dual", "loss": "hinge", "rate": 4e-4, "schedule": "drop", "drop_epoch": 9}
CO: dict[str, Any] = {"preset": "dual", "rate": 4e-4, "schedule": "drop", "drop_epoch": 9, "epochs": 15, "warm": 4}
# half the paper's sizes and few epochs: with two networks and passes over all pairs, NCR is SGR many times over
SGR: dict[str, Any] = {"preset": "paper", "dim": 512, "sim_dim": 128, "batch": 128, "rate": 4e-4}
ROWS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "vse_infty": {
        "base": ("vse_infty", {**HINGE, "warm": 0}),
        "warm-up": ("vse_infty", {**HINGE, "warm": 4}),
        "clean only": ("vse_infty", {**HINGE, "warm": 0}),
        "clean only, rclog": ("vse_infty", {"preset": "dual"}),
        "infonce": ("vse_infty", {"preset": "dual", "loss": "infonce"}),
        "rclog": ("vse_infty", {"preset": "dual"}),
        "gce": ("vse_infty", {"preset": "dual", "loss": "gce"}),
        "ncr": ("ncr", {"scorer": "vse_infty", **CO}),
        "ncr+": ("ncr+", {"preset": "paper"}),
    },
    "sgr": {
        "base": ("sgr", {**SGR, "warm": 0, "epochs": 5, "decay_every": 4}),
        "warm-up": ("sgr", {**SGR, "warm": 3, "epochs": 5, "decay_every": 4}),
        "ncr": ("ncr", {**SGR, "rate": 3e-4, "warm": 2, "epochs": 5, "decay_every": 2}),
        "ncr+": ("ncr+", {**SGR, "scorer": "sgr", "rate": 5e-4, "warm": 2, "epochs": 5}),
    },
}
WITHOUT: dict[str, dict[str, Any]] = {
    "one network": {"peers": 1},
    "networks measure": {"measure": "networks"},  # as they do anyway where no sentence encoder reads
    "nothing rebuilt": {"rebuild": False},
    "second round gce": {"loss": "gce"},
    "second round rclog": {"loss": "rclog"},
}


def grid(args: argparse.Namespace) -> Iterator[Cell]:
    """The cells that were asked for, the hardest noise first."""
    ratios = [(float(r), "caption") for r in args.noise.split(",") if r]
    ratios += [(float(r), "picture") for r in args.picture.split(",") if r]
    rows = ROWS[args.scorer]
    if args.ablation:
        rows = {"ncr+": rows["ncr+"]} | {k: ("ncr+", {**rows["ncr+"][1], **v}) for k, v in WITHOUT.items()}
    names = [name for name in rows if not args.only or name in args.only.split(",")]
    for seed in range(args.seeds):
        for ratio, per in sorted(ratios, reverse=True):
            for name in names:
                method, settings = rows[name]
                clean = name.startswith("clean")
                if not (clean and not ratio):
                    yield Cell(name, method, settings, noise=ratio, per=per, seed=seed, clean=clean)


def means(results: list[tuple[Cell, dict[str, Any]]]) -> None:
    """One line a row of the grid, one column a ratio: mean rsum and, over several seeds, its deviation."""
    by_cell: dict[tuple[str, str], list[float]] = {}
    for cell, r in results:
        if "rsum" in r:
            key = f"{cell.noise:.0%}{'p' if cell.per == 'picture' else ''}"
            by_cell.setdefault((cell.name, key), []).append(r["rsum"])
    columns = sorted({key for _, key in by_cell}, key=lambda key: (key.endswith("p"), float(key.rstrip("p%"))))
    print(f"\n{'':24}" + "".join(f"{key:>14}" for key in columns))
    for name in dict.fromkeys(cell.name for cell, _ in results):
        values = [by_cell.get((name, key), []) for key in columns]
        shown = [f"{mean(v):.1f}" + (f" ± {pstdev(v):.1f}" if len(v) > 1 else "") if v else "-" for v in values]
        print(f"{name:24}" + "".join(f"{word:>14}" for word in shown))


def main() -> None:
    """The grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--scorer", default="vse_infty", choices=tuple(ROWS))
    parser.add_argument("--noise", default="0,0.2,0.4,0.6,0.8")
    parser.add_argument("--picture", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="rows, by comma")
    parser.add_argument("--ablation", action="store_true")
    args = parser.parse_args()
    means(run(list(grid(args)), args.data, args.out / args.scorer, jobs=args.jobs))


if __name__ == "__main__":
    main()
