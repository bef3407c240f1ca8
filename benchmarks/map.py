"""How fast mAP over labels is: seconds for a big matrix, and the ratio against one query, one rank after the other.

    OMP_NUM_THREADS=2 python benchmarks/map.py [--big 10000] [--small 1000] [--classes 10]

The plain way is the double Python loop of published label-retrieval code, rewritten from its definition. Both must give
the same number, or the script stops.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from matchlight.measuring.metrics import Relevance, mean_average_precision


def plain(scores: np.ndarray, queries: np.ndarray, gallery: np.ndarray) -> float:
    """mAP as two loops."""
    values = []
    for row, label in zip(scores, queries, strict=True):
        hits, total = 0, 0.0
        for rank, place in enumerate(np.argsort(-row, kind="stable"), 1):
            if gallery[place] == label:
                hits += 1
                total += hits / rank
        values.append(total / hits if hits else 0.0)
    return float(np.mean(values))


def timed(work: Callable[[], float], times: int = 3) -> tuple[float, float, float]:
    """The value, and the medians of the seconds and of the processor's seconds it took (a busy machine shows both)."""
    wall, busy = [], []
    for _ in range(times):
        began, worked = time.perf_counter(), time.process_time()
        value = work()
        wall.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
    return value, float(np.median(wall)), float(np.median(busy))


def drawn(items: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Relevance]:
    """Random scores and classes, and who shares one."""
    rng = np.random.default_rng(seed)
    queries, gallery = rng.integers(0, classes, (2, items))
    hot = np.eye(classes, dtype=bool)
    scores = rng.random((items, items), dtype=np.float32)
    return scores, queries, gallery, Relevance.of_labels(hot[queries], hot[gallery])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", type=int, default=10_000)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()
    scores, queries, gallery, shared = drawn(args.small, args.classes, seed=0)
    fast, wall, busy = timed(lambda: mean_average_precision(scores, shared))
    slow, slow_wall, slow_busy = timed(lambda: plain(scores, queries, gallery), times=1)
    if abs(fast - slow) > 1e-6:  # equal scores may stand in another order
        raise SystemExit(f"mAP is {fast} here and {slow} by two loops")
    times = {"seconds": wall, "cpu": busy, "two_loops": slow_wall, "two_loops_cpu": slow_busy}
    line = {"items": args.small, **times, "ratio": slow_wall / wall, "ratio_cpu": slow_busy / busy}
    print(json.dumps({key: round(value, 4) for key, value in line.items()}))
    scores, _, _, shared = drawn(args.big, args.classes, seed=1)
    _, wall, busy = timed(lambda: mean_average_precision(scores, shared))
    print(json.dumps({"items": args.big, "seconds": round(wall, 2), "cpu": round(busy, 2)}))


if __name__ == "__main__":
    main()
