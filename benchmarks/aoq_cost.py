"""What a step of AOQ's second round costs beside a plain step of its base, forward to update.

    python benchmarks/aoq_cost.py [--bases vsrn,scan] [--batch 128] [--steps 30] [--device auto] [--precision auto]

What `matchlight reproduce aoq-cost` measures, on random features (36 x 2048) and captions instead of data. On a CPU
sizes are small and seconds are core-seconds. The paper's figures (GTX 1080 Ti, VSRN, batch 128): plain 1.096 s, OffTri
1.489 s, OffQuin 1.557 s, AdapOffQuin 1.604 s, which is 1.46 times the plain step.
"""

from __future__ import annotations

import argparse
import json

from mining import made_pairs

from matchlight.devices import pick_device, pick_precision
from matchlight.reproduce.aoq_cost import measure


def rounded(times: dict[str, float], digits: int) -> dict[str, float]:
    """Figures for people."""
    return {name: round(value, digits) for name, value in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", default="vsrn,scan")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()
    where = pick_device(args.device)
    precision = pick_precision(args.precision, where)
    settings = {
        "preset": "paper" if where.type == "cuda" else "small",
        "batch": args.batch or (128 if where.type == "cuda" else 32),
    }
    pairs = made_pairs(args.pictures, 5)
    for base in args.bases.split(","):
        times = measure(base, pairs, settings=settings, steps=args.steps, where=where, precision=precision)
        times |= {"seconds": rounded(times["seconds"], 5), "ratio": rounded(times["ratio"], 3)}
        print(json.dumps({"device": str(where), "precision": precision, **times}), flush=True)


if __name__ == "__main__":
    main()
