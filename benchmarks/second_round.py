"""Does a second round on offline hard negatives help, and more than training longer would?

    python benchmarks/second_round.py DATA -o OUT [--bases vse_infty,scan,bfan,vsrn] [--first 8] [--second 8]
        [--seeds 2] [--kinds adapoffquin] [--weights first,fresh] [--filters none] [--set warm=1 rate=5e-4] [--jobs 4]
        [--later rate=1e-4 h=100]

For each base, by seed: its first round alone (`--first` epochs); the control, one round as long as both
(`--first` + `--second` epochs); and AOQ, which mines with the first round's model and trains `--second` epochs more,
from its weights or fresh ones; `--later` holds for second rounds alone. Every round's rate drops to a tenth after two
thirds of its epochs. First rounds are trained first, once for all that begins there. Cells that are done are not
trained again. Prints a row a cell, a table of means over seeds and, with `--histogram`, how the pairs' cross-retrieval
ranks are spread before and after.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, run

import matchlight as ml
from matchlight.files import write_json
from matchlight.training.registry import methods, parse

Results = list[tuple[Cell, dict[str, Any]]]


def falling(base: str, epochs: int) -> dict[str, Any]:
    """So many epochs, the last third of them at a tenth of the rate."""
    name = "decay_every" if "decay_every" in methods()[base].defaults else "drop_epoch"
    return {"epochs": epochs, name: max(1, -(-2 * epochs // 3))}


def cells_of(base: str, seed: int, args: argparse.Namespace) -> list[Cell]:
    """The first round, the control and the second rounds of one base."""
    common = {"preset": args.preset, **parse(args.set)}
    alone = Cell(f"{base} {args.first}", base, {**common, **falling(base, args.first)}, seed=seed)
    longer = args.first + args.second
    control = Cell(f"{base} {longer}", base, {**common, **falling(base, longer)}, seed=seed)
    return [alone, control, *second_rounds(base, seed, args, common, begin=alone.folder)]


def second_rounds(base: str, seed: int, args: argparse.Namespace, common: dict[str, Any], *, begin: str) -> list[Cell]:
    """AOQ by kind, start and filter."""
    rounds = {**common, **falling(base, args.second), "base": base, "h": args.depth, **parse(args.later)}
    cells = []
    for kind, weights, struck in product(*(words.split(",") for words in (args.kinds, args.weights, args.filters))):
        without = [struck] if struck != "none" else []
        name = " ".join([base, kind, f"{args.first}+{args.second}", weights, *without, *args.later])
        settings = {**rounds, "kind": kind, "scratch": weights == "fresh", "filter": struck}
        cells.append(Cell(name, "aoq", settings, seed=seed, begin=begin))
    return cells


def table(results: Results) -> list[str]:
    """Means over seeds: rsum with its deviation, recalls, seconds."""
    wide = max([36, *(len(cell.name) + 2 for cell, _ in results)])
    lines = [f"{'cell':{wide}}{'seeds':>6}{'rsum':>8}{'sd':>6}{'i2t R@1':>9}{'t2i R@1':>9}{'s':>7}"]
    for name in dict.fromkeys(cell.name for cell, _ in results):
        done = [r for cell, r in results if cell.name == name and "rsum" in r]
        if done:
            rsum = np.array([r["rsum"] for r in done])
            recalls = [np.mean([r[way]["r1"] for r in done]) for way in ("i2t", "t2i")]
            spent = np.mean([r["seconds"] for r in done])
            figures = f"{rsum.mean():8.1f}{rsum.std(ddof=len(done) > 1):6.1f}{recalls[0]:9.1f}{recalls[1]:9.1f}"
            lines.append(f"{name:{wide}}{len(done):6}{figures}{spent:7.0f}")
    return lines


def histogram(cell: Cell, data: ml.Pairs, out: Path) -> dict[str, int]:
    """Cross-retrieval ranks of the test pairs, kept beside the cell."""
    kept = out / cell.folder / "cross_rank.json"
    if not kept.exists():
        report = ml.evaluate(ml.Run.load(out / cell.folder / "run"), data, cell.split, protocol="cross-rank")
        write_json(kept, report)
    bins: dict[str, int] = json.loads(kept.read_text())["bins"]
    return bins


def histograms(results: Results, data: Path, out: Path) -> list[str]:
    """One line a cell of the first seed."""
    pairs = ml.Pairs.read(data)
    by_cell = {cell.name: histogram(cell, pairs, out) for cell, r in results if cell.seed == 0 and "rsum" in r}
    names = list(next(iter(by_cell.values()), {}))
    lines = [f"{'pairs by cross rank':36}" + "".join(f"{name:>9}" for name in names)]
    return lines + [f"{cell:36}" + "".join(f"{bins[name]:9}" for name in names) for cell, bins in by_cell.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--bases", default="vse_infty,scan,bfan,vsrn")
    parser.add_argument("--first", type=int, default=8)
    parser.add_argument("--second", type=int, default=8)
    parser.add_argument("--kinds", default="adapoffquin")
    parser.add_argument("--weights", default="first,fresh", help="where the second round starts")
    parser.add_argument("--filters", default="none", help="none, captions or relevance")
    parser.add_argument("--depth", type=int, default=300, help="captions of a list that may be drawn (h)")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="settings of every cell")
    parser.add_argument("--later", nargs="*", default=[], metavar="name=value", help="settings of second rounds alone")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--histogram", action="store_true")
    args = parser.parse_args()
    cells = [
        cell for seed in range(args.seeds) for base in args.bases.split(",") for cell in cells_of(base, seed, args)
    ]
    begun = {cell.begin for cell in cells}  # what others begin from must be there before them
    early = [cell for cell in cells if cell.folder in begun]
    late = [cell for cell in cells if cell.folder not in begun]
    results = [done for part in (early, late) for done in run(part, args.data, args.out, jobs=args.jobs)]
    order = [cell.name for cell in cells]
    results.sort(key=lambda one: (order.index(one[0].name), one[0].seed))
    print("\n" + "\n".join(table(results)), flush=True)
    if args.histogram:
        print("\n" + "\n".join(histograms(results, args.data, args.out)), flush=True)


if __name__ == "__main__":
    main()
