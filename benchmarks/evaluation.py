"""The referee on a matrix of COCO's size: seconds and peak memory of every protocol, and the ratio against plain loops.

    python benchmarks/evaluation.py [--pictures 5000] [--each 5] [--folder DIR]

Makes a memory-mapped matrix of (pictures, pictures x each) scores and data of that shape (COCO's test split by its ids,
labels drawn at random) in DIR or a temporary folder, then runs `matchlight evaluate --from-scores` on it in a process
of its own: once for all pair metrics with intervals, as a user would, and once a protocol. Processor seconds are told
beside seconds, since a busy machine stretches the latter. The plain way ranks each query by sorting its list in Python
(VSE++'s evaluator, written from its definition), on a sample of queries, scaled up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PAIRS = ("recall", "five-fold", "cross-rank", "pmrp", "eccv", "cxc")
WORK = """
import json, resource, sys, time
began = time.perf_counter()
from matchlight.pairs import Pairs
from matchlight.measuring.protocols import evaluate_scores
import numpy as np
pairs = Pairs.read(sys.argv[1]).subset("test")
scores = np.load(sys.argv[2], mmap_mode="r")
ready = time.perf_counter(), time.process_time()
for protocol in sys.argv[3].split(","):
    evaluate_scores(scores, pairs, protocol=protocol, ci=True)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "seconds": time.perf_counter() - ready[0], "cpu": time.process_time() - ready[1],
    "whole": time.perf_counter() - began, "peak_gb": used.ru_maxrss * 1024 / 1e9,
}))
"""


def write_data(folder: Path, pictures: int, each: int) -> None:
    """captions.jsonl with COCO's names where the size is COCO's, else plain ones; labels by a steep law."""
    from matchlight.core import BadInput

    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, 81)
    names = [f"{place}.jpg" for place in range(pictures)]
    if (pictures, each) == (5000, 5):
        try:
            from matchlight.measuring.protocols.eccv_and_cxc import truth_folder

            owners = json.loads((truth_folder() / "original_caption_to_image.json").read_text())
            ids = np.load(truth_folder() / "coco_test_ids.npy", allow_pickle=False)
            names = [f"COCO_val2014_{owners[str(caption)][0]:012d}.jpg" for caption in ids[::5]]
        except BadInput as why:
            print(why, file=sys.stderr)
    with open(folder / "captions.jsonl", "w", encoding="utf-8") as file:
        for name in names:
            shown = rng.choice(80, 1 + rng.poisson(2), p=chance / chance.sum())
            captions = [f"caption {k} of {name}" for k in range(each)]
            line = {"image": name, "captions": captions, "split": "test", "labels": [f"c{k}" for k in set(shown)]}
            file.write(json.dumps(line) + "\n")


def write_scores(path: Path, pictures: int, each: int) -> None:
    """Random scores with some sense in them, a stripe at a time."""
    rng = np.random.default_rng(0)
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (pictures, pictures * each))
    for row in range(0, pictures, 500):
        stripe = rng.standard_normal((min(500, pictures - row), pictures * each), np.float32)
        for k in range(len(stripe)):
            stripe[k, (row + k) * each : (row + k + 1) * each] += 3
        matrix[row : row + 500] = stripe
    matrix.flush()


def measured(folder: Path, protocols: str) -> dict[str, float]:
    """What a fresh process takes for these protocols."""
    command = [sys.executable, "-c", WORK, str(folder), str(folder / "scores.npy"), protocols]
    times: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return times


def plain_recall(scores: np.ndarray, each: int, sample: int) -> float:
    """Processor seconds of ranking both ways by sorting every list, from a sample of the queries."""
    began = time.process_time()
    for row in range(sample):
        order = np.argsort(scores[row])[::-1]
        min(np.where(order == row * each + k)[0][0] for k in range(each))
    middle = time.process_time()
    for column in range(sample):
        np.where(np.argsort(scores[:, column])[::-1] == column // each)[0][0]
    end = time.process_time()
    return (middle - began) / sample * len(scores) + (end - middle) / sample * scores.shape[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "scores.npy").exists():
            write_data(folder, args.pictures, args.each)
            write_scores(folder / "scores.npy", args.pictures, args.each)
        report(folder, args.each)


def report(folder: Path, each: int) -> None:
    scores = np.load(folder / "scores.npy", mmap_mode="r")
    whole = scores.shape == (5000, 25000)
    asked = PAIRS if whole else ("recall", "cross-rank", "pmrp")
    cores = len(os.sched_getaffinity(0))
    print(f"{scores.shape[0]:,} x {scores.shape[1]:,} scores, {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'protocol':34}{'seconds':>9}{'cpu':>9}{'peak GB':>9}")
    lines = {"all pair metrics, with intervals": ",".join(asked), **{name: name for name in (*asked, "labels")}}
    by_name = {name: measured(folder, protocols) for name, protocols in lines.items()}
    for name, one in by_name.items():
        print(f"{name:34}{one['seconds']:9.1f}{one['cpu']:9.1f}{one['peak_gb']:9.2f}")
    slow = plain_recall(scores, each, sample=100)
    ratio = slow / by_name["recall"]["cpu"]
    print(f"recall by sorting every list: {slow:.0f} s of a processor, {ratio:.0f} times as long")


if __name__ == "__main__":
    main()
