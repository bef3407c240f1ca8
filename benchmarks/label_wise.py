"""Retrieval and classification by labels: semantic sharing, its controls, and DSCMR, on any data sets.

    python benchmarks/label_wise.py DATA... -o OUT [--top 50] [--runs "semantic_sharing" "dscmr epochs=20"] [--seeds 1]

Data without labels (Flickr8k) is labelled by the things its captions name, `--top` of them; scenes have labels. Prints
one row a run as it goes: NDCG@500 both ways, mAP, and Micro-F1 of pictures and captions at 0.5 and at the threshold
that is best on val, in percent. A run that is already in OUT is not trained again; one that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import matchlight as ml
from matchlight.data.caption_labels import labelled_by_words
from matchlight.files import write_json
from matchlight.training.registry import parse

RUNS = (
    "semantic_sharing",
    "semantic_sharing mask_weight=0",
    "semantic_sharing variant=independent",
    "semantic_sharing variant=consistent",
    "dscmr",
)
COLUMNS = ("ndcg i2t", "t2i", "map i2t", "t2i", "f1 image", "text", "tuned image", "text")


def read(path: Path, *, top: int, pictures: int | None) -> ml.Pairs:
    """A data set with labels, its own or those its captions name; the first `pictures` of each split if asked."""
    pairs = ml.Pairs.read(path)
    if pictures is not None:
        keep = np.sort(np.concatenate([pairs.pictures_of(split)[:pictures] for split in pairs.split_names]))
        pairs = pairs.select(keep, np.flatnonzero(np.isin(pairs.picture, keep)))
        pairs.notes.clear()
    return pairs if pairs.labels is not None else labelled_by_words(pairs, top=top)


def one(pairs: ml.Pairs, folder: Path, method: str, settings: dict[str, Any], *, seed: int) -> dict[str, Any]:
    """Train and measure one cell; its result is kept beside the run."""
    kept = folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text())
    began = time.perf_counter()
    run = ml.train(method, pairs, folder, seed=seed, resume=True, **settings)
    seconds = time.perf_counter() - began
    report = ml.evaluate(run, pairs, "test", protocol="labels")
    write_json(kept, {"seconds": round(seconds, 1), **report})
    return json.loads(kept.read_text())


def figures(result: dict[str, Any]) -> list[float]:
    """The numbers of a row, as COLUMNS names them; nan where a method predicts no labels."""
    none = {"image": float("nan"), "text": float("nan")}
    plain, tuned = result.get("micro_f1") or none, result.get("micro_f1_tuned") or none
    ways = [result[name][way] for name in ("ndcg", "map") for way in ("i2t", "t2i")]
    return ways + [values[side] for values in (plain, tuned) for side in ("image", "text")]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", default=RUNS, metavar="'METHOD [name=value ...]'")
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="overrides for all runs")
    parser.add_argument("--top", type=int, default=50, help="labels read off captions")
    parser.add_argument("--pictures", type=int, help="at most so many of each split")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print(f"{'data':10}{'run':40}{'seed':>5}" + "".join(f"{name:>12}" for name in COLUMNS) + f"{'s':>8}", flush=True)
    for path in args.data:
        pairs = read(path, top=args.top, pictures=args.pictures)
        for words in args.runs:
            method, *given = words.split()
            for seed in range(args.seeds):
                folder = args.out / "-".join([path.name, *words.split(), *args.set, str(seed)]).replace("/", "_")
                result = one(pairs, folder, method, parse([*args.set, *given]), seed=seed)
                numbers = "".join(f"{100 * value:12.1f}" for value in figures(result))
                print(f"{path.name[:9]:10}{words[:39]:40}{seed:5}{numbers}{result['seconds']:8.1f}", flush=True)


if __name__ == "__main__":
    main()
