"""What the first command reaches: no method named, against the quick start of old, by photos and wrong pairs.

    python benchmarks/first_command.py DATA -o OUT --starter FOLDER [--sizes 1000,4000,20000] [--noise 0,0.4]
        [--rows now,before] [--seeds 1] [--tried NAME:argument=value,...]

`now` is `matchlight train --data DATA` with no method named; `before` is `vse_infty loss=hinge epochs=4`, what the
quick start trained first. `--tried` trains what no name stands for with other arguments, to be chosen on validation
pictures.

The starter that ships has learnt from Flickr8k and COCO, so that on their test pictures it would be flattered:
`--starter RUN` puts a run in its place that learnt from other data (`python -m benchmarks.starter WORK ship-plain`),
with the picture network of that run. Without it the one that ships is taken.

A row is printed as soon as it is measured, and its figures are kept beside the run: the same command goes on where it
was stopped. Seconds are of processor time. Pictures and captions of all sizes are read once, and each row is charged
with its share of that, by the number of pictures (training, validation and test), as if it had read its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import matchlight as ml
from matchlight.data.noise import mismatch
from matchlight.files import write_json
from matchlight.inputs.prepare import Inputs, prepare
from matchlight.pairs import Pairs
from matchlight.runs import train_run
from matchlight.training.arguments import Settings
from matchlight.training.first_choice import first_choice
from matchlight.training.registry import parse

OLD: Settings = {"loss": "hinge", "epochs": 4}
LEFT_OUT = "rest"  # training pictures that a smaller set does not have: in the table of pictures, in no split


@dataclass(frozen=True)
class Recipe:
    """One kind of row: a method (none: the first choice) and arguments."""

    name: str
    method: str | None
    settings: Settings


@dataclass
class Reading:
    """Processor seconds that reading pictures and captions took, as the runs spend them."""

    seconds: float = 0.0

    def timed(self) -> Callable[..., Inputs]:
        """`prepare`, and how long it takes."""

        def read(*given: object, **named: object) -> Inputs:
            began = time.process_time()
            try:
                return prepare(*given, **named)  # type: ignore[arg-type]
            finally:
                self.seconds += time.process_time() - began

        return read


def smaller(pairs: Pairs, size: int) -> Pairs:
    """The first `size` training pictures of a shuffled order; the table of pictures stays, so that it is read once."""
    mixed = np.random.default_rng(0).permutation(pairs.pictures_of("train"))
    splits = pairs.splits.astype(object)
    splits[mixed[size:]] = LEFT_OUT
    return replace(pairs, splits=splits.astype(str))


def shown(pairs: Pairs) -> int:
    """Pictures that belong to a split."""
    return int((pairs.splits != LEFT_OUT).sum())


def read_all(out: Path, recipe: str, spent: float) -> float:
    """Seconds that reading everything took so far for this recipe, this run's added."""
    path = out / f"reading-{recipe}.json"
    before = json.loads(path.read_text()) if path.exists() else 0.0
    write_json(path, before + spent)
    return before + spent


def one(pairs: Pairs, recipe: Recipe, folder: Path, *, seed: int, starter: Path | None) -> dict[str, float]:
    """Train and measure one row; its figures are kept beside the run."""
    kept = folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text())
    reading = Reading()
    train_run.prepare = reading.timed()
    began = time.process_time()
    options = {"seed": seed, "device": "cpu", "resume": True}
    if recipe.method is None and starter is not None:
        start = ml.Run.load(starter, device="cpu")
        found, backbone = first_choice(pairs, "cpu"), start.info["arguments"]["backbone"]
        settings = {**found.settings, "precision": found.precision, "backbone": backbone, **recipe.settings}
        run = ml.train(start.method, pairs, folder, start=start, **options, **settings)
    else:
        run = ml.train(recipe.method, pairs, folder, **options, **recipe.settings)
    seconds = time.process_time() - began - reading.seconds
    total = read_all(folder.parent, recipe.method or "first-choice", reading.seconds)
    metrics = json.loads((folder / "metrics.json").read_text())
    test = ml.evaluate(run, pairs, "test")
    result = {"rsum": test["rsum"], "i2t": test["i2t"]["r1"], "t2i": test["t2i"]["r1"], "val": metrics["val"]["rsum"]}
    result |= {"epoch": metrics["epoch"], "training": seconds, "reading": total * shown(pairs) / len(pairs.names)}
    write_json(kept, result)
    return result


def recipes(asked: argparse.Namespace) -> list[Recipe]:
    """The rows that were asked for."""
    known = {"now": Recipe("now", None, {}), "before": Recipe("before", "vse_infty", OLD)}
    tried = [name.partition(":") for name in asked.tried]
    return [known[name] for name in asked.rows.split(",") if name] + [
        Recipe(name, None, parse(settings.split(","))) for name, _, settings in tried
    ]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--starter", type=Path)
    parser.add_argument("--sizes", default="1000,4000,20000")
    parser.add_argument("--noise", default="0,0.4")
    parser.add_argument("--rows", default="now,before")
    parser.add_argument("--tried", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    whole = Pairs.read(asked.data)
    print(f"{'photos':>7}{'noise':>7}  {'row':12}{'seed':>5}{'rsum':>8}{'R@1':>13}{'val':>8}{'epoch':>6}", end="")
    print(f"{'minutes':>9}{'of them reading':>17}", flush=True)
    for size in map(int, asked.sizes.split(",")):
        clean = smaller(whole, size)
        photos = len(clean.pictures_of("train"))
        for ratio in map(float, asked.noise.split(",")):
            pairs = mismatch(clean, ratio=ratio, seed=0)[0] if ratio else clean
            for recipe in recipes(asked):
                for seed in range(asked.seeds):
                    folder = asked.out / f"{recipe.name}-{photos}-{ratio:g}-{seed}"
                    r = one(pairs, recipe, folder, seed=seed, starter=asked.starter)
                    print(f"{photos:7,}{ratio:7.0%}  {recipe.name:12}{seed:5}{r['rsum']:8.1f}", end="")
                    print(f"{r['i2t']:6.1f} /{r['t2i']:5.1f}{r['val']:8.1f}{r['epoch']:6.0f}", end="")
                    print(f"{(r['training'] + r['reading']) / 60:9.1f}{r['reading'] / 60:17.1f}", flush=True)


if __name__ == "__main__":
    main()
