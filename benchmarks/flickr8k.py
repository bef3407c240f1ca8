"""Rsum of the dual encoder on a captioned photo set, by loss, noise and training from features or from pixels.

    python benchmarks/flickr8k.py DATA -o OUT [--loss infonce,rclog,gce] [--noise 0,0.4] [--finetune] [--seeds 1]

Prints one row a run as it goes: rsum of the model picked by validation, recalls, seconds of training. A run that is
already in OUT is not trained again, so an interrupted table goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matchlight as ml
from matchlight.data.noise import mismatch
from matchlight.files import write_json
from matchlight.training.registry import parse

FROZEN: dict[str, Any] = {"preset": "dual"}
PIXELS: dict[str, Any] = {
    "preset": "dual",
    "finetune": True,
    "pixels": 224,
    "backbone_rate": 0.3,
    "freeze_epochs": 0,
    "epochs": 12,
}


def one(pairs: ml.Pairs, folder: Path, *, loss: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train and measure one cell; its result is kept beside the run."""
    kept = folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text())
    began = time.perf_counter()
    run = ml.train("vse_infty", pairs, folder, seed=seed, loss=loss, resume=True, **settings)
    seconds = time.perf_counter() - began
    report = ml.evaluate(run, pairs, "test")
    epochs = [json.loads(line)["seconds"] for line in (folder / "log.jsonl").read_text().splitlines()]
    result = {"seconds": round(seconds, 1), "epoch": round(sum(epochs) / len(epochs), 2), **report}
    write_json(kept, result)
    return result


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--loss", default="infonce,rclog,gce")
    parser.add_argument("--noise", default="0")
    parser.add_argument("--finetune", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="further overrides")
    args = parser.parse_args()
    clean = ml.Pairs.read(args.data)
    kind = "pixels" if args.finetune else "frozen"
    base = (PIXELS if args.finetune else FROZEN) | parse(args.set)
    print(
        f"{'kind':8}{'loss':9}{'noise':>6}{'seed':>5}{'rsum':>8}{'i2t R@1':>9}{'t2i R@1':>9}{'s/run':>8}{'s/epoch':>9}",
        flush=True,
    )
    for ratio in map(float, args.noise.split(",")):
        pairs = mismatch(clean, ratio=ratio, seed=0)[0] if ratio else clean
        for loss in args.loss.split(","):
            for seed in range(args.seeds):
                folder = args.out / f"{kind}-{loss}-{ratio:g}-{seed}"
                r = one(pairs, folder, loss=loss, seed=seed, settings=base)
                i2t, t2i = r["i2t"]["r1"], r["t2i"]["r1"]
                row = f"{kind:8}{loss:9}{ratio:6.0%}{seed:5}{r['rsum']:8.1f}{i2t:9.1f}{t2i:9.1f}"
                print(f"{row}{r['seconds']:8.1f}{r['epoch']:9.2f}", flush=True)


if __name__ == "__main__":
    main()
