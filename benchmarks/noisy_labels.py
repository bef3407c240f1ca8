"""mAP of every label method when labels are wrong: symmetric noise, several seeds, one table.

    OMP_NUM_THREADS=1 python benchmarks/noisy_labels.py DATA -o OUT [--methods mrl,deep_sm] [--noise 0.2,0.4,0.6,0.8]
        [--seeds 3] [--preset wikipedia]

DATA is a label set such as Wikipedia's folder. Noise flips the labels of that share of the training pictures and, drawn
on their own, of the training texts; validation and test labels stay clean, as in the papers. The epoch is chosen by
validation mAP, for every method alike. Each line is printed as soon as its runs are done; a run that is already in OUT
is not trained again. A method that reads no labels is trained once a seed and holds at every noise.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import matchlight as ml
from matchlight.data.noise import flip_labels
from matchlight.files import write_json
from matchlight.training.registry import find

METHODS = "mrl,deep_sm,dscmr,sdml,fgcrossnet,dccae"


def one(name: str, clean: ml.Pairs, out: Path, *, noise: float, seed: int, preset: str) -> dict[str, Any]:
    """Train and measure one run; its result is kept beside it."""
    folder = out / f"{name}-{noise:g}-{seed}"
    kept = folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text())
    pairs = flip_labels(clean, ratio=noise, seed=seed)[0] if noise else clean
    began = time.perf_counter()
    run = ml.train(name, pairs, folder, seed=seed, preset=preset, resume=True)
    result = {"seconds": round(time.perf_counter() - began, 1), "val": ml.evaluate(run, pairs, "val")["map"]}
    result |= ml.evaluate(run, pairs, "test")
    write_json(kept, result)
    return result


def cell(results: list[dict[str, Any]], side: str) -> str:
    """Mean and spread over seeds."""
    values = [result["map"][side] for result in results]
    return f"{np.mean(values):.3f}" + (f" ({np.std(values):.3f})" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--noise", default="0.2,0.4,0.6,0.8")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--preset", default="wikipedia")
    args = parser.parse_args()
    clean = ml.Pairs.read(args.data)
    levels = [float(word) for word in args.noise.split(",")]
    print(
        "| method | noise | mAP picture to text | mAP text to picture | val mAP | seconds |\n|---|---|---|---|---|---|"
    )
    for name in args.methods.split(","):
        reads = "labels" in find(name).needs
        for noise in levels if reads else [0.0]:
            results = [
                one(name, clean, args.out, noise=noise, seed=seed, preset=args.preset) for seed in range(args.seeds)
            ]
            val, seconds = (np.mean(x) for x in zip(*((r["val"]["mean"], r["seconds"]) for r in results), strict=True))
            columns = f"{cell(results, 'i2t')} | {cell(results, 't2i')} | {val:.3f} | {seconds:.0f}"
            print(f"| {name} | {f'{noise:g}' if reads else 'any'} | {columns} |", flush=True)


if __name__ == "__main__":
    main()
