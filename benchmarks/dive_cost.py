"""What a comparison costs: one vector (VSE-infinity = 1), sets of vectors (DivE), attention between parts (SCAN).

    python benchmarks/dive_cost.py [--pictures 1000] [--captions 5000] [--dim 1024] [--device auto] [--runs 10]

Features are encoded already: the clock runs over the scores of all pairs and the ten best of each query, both ways, on
the device. FLOPs are those of one pair, products only. SCAN is timed twice, as the papers' programs score it (a loop
over captions, here on a sample, scaled) and as Matchlight does. Published by DivE's authors: FLOPs 1 / 16 / 1280,
latency 159 / 168 / 198,121 ms (Flickr30K's validation pictures).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from matchlight import bench
from matchlight.core import Embedding, Matcher
from matchlight.naive import Loop
from matchlight.ranking import device_scores
from matchlight.sets import SmoothChamfer
from matchlight.similarity import Dot

TOP, SAMPLE = 10, 50


def flops(slots: int, dim: int, words: float) -> dict[str, float]:
    """Of one pair: every vector with every vector; SCAN also forms attended vectors and takes their cosines."""
    return {
        "VSE-infinity": 2.0 * dim,
        f"DivE, {slots} x {slots}": 2.0 * dim * slots**2 + 2 * slots**2,
        "SCAN": 4.0 * bench.REGIONS * words * dim + 2 * words * dim,
    }


def best(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The ten best captions of each picture, the ten best pictures of each caption."""
    return scores.topk(min(TOP, scores.shape[1]), 1).indices, scores.topk(min(TOP, scores.shape[0]), 0).indices


def answered(matcher: Matcher, images: Embedding, texts: Embedding) -> Callable[[], object]:
    """Scores and the best of them, as one piece of work to time."""
    return lambda: best(device_scores(matcher, images, texts))


def unit_sets(count: int, slots: int, dim: int, device: torch.device, seed: int) -> Embedding:
    """Random sets of unit vectors."""
    return Embedding(bench.unit_vectors(count, slots, dim, device=device, seed=seed))


@torch.inference_mode()
def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--pictures", type=int, default=1000)
    ask.add_argument("--captions", type=int, default=5000)
    ask.add_argument("--dim", type=int, default=1024)
    ask.add_argument("--slots", type=int, default=4)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--runs", type=int, default=10)
    asked = ask.parse_args()
    device = bench.pick(asked.device)
    torch.set_float32_matmul_precision("high")
    regions, words = bench.sides(asked.pictures, asked.captions, asked.dim, device)
    scan = bench.built("scan", asked.dim).matcher().to(device).eval()
    few = words.take(torch.linspace(0, asked.captions - 1, min(asked.captions, SAMPLE)).long())
    plain, one, many = Loop(scan.similarity, "scan"), Matcher({}, Dot()), Matcher({}, SmoothChamfer())
    single = [unit_sets(n, 1, asked.dim, device, n) for n in (asked.pictures, asked.captions)]
    sets = [unit_sets(n, asked.slots, asked.dim, device, n) for n in (asked.pictures, asked.captions)]
    work = {
        "VSE-infinity": (answered(one, *single), 1.0),
        f"DivE, {asked.slots} x {asked.slots}": (answered(many, *sets), 1.0),
        "SCAN, caption by caption": (lambda: best(plain(regions, few)), asked.captions / len(few)),
        "SCAN, as here": (answered(scan, regions, words), 1.0),
    }
    assert words.mask is not None
    each = flops(asked.slots, asked.dim, float(words.mask.sum(1).float().mean()))
    base = each["VSE-infinity"]
    print(f"{asked.pictures} x {asked.captions}, dim {asked.dim}, {device.type}, top {TOP} both ways")
    print(f"{'':28}{'FLOPs a pair':>14}{'ratio':>9}{'latency ms':>13}{'ratio':>10}", flush=True)
    first = None
    for name, (run, times) in work.items():
        seconds = times * bench.seconds(run, device, name, runs=asked.runs if times == 1.0 else 3)
        first = first or seconds
        cost = each[name.split(",")[0] if name.startswith("SCAN") else name]
        print(f"{name:28}{cost:14.0f}{cost / base:9.1f}{1000 * seconds:13.2f}{seconds / first:10.2f}", flush=True)


if __name__ == "__main__":
    main()
