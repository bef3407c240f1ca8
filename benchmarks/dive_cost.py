"""What a comparison costs: one vector (VSE-infinity = 1), sets of vectors (DivE), attention between parts (SCAN).

    python benchmarks/dive_cost.py [--pictures 1000] [--captions 5000] [--dim 1024] [--device auto] [--runs 10]

What `matchlight reproduce dive-cost` measures, at any size and without data: captions have 6 to 40 words, about 13 on
average. Published by DivE's authors: FLOPs 1 / 16 / 1280, latency 159 / 168 / 198,121 ms (Flickr30K's validation
pictures).
"""

from __future__ import annotations

import argparse

import torch

from matchlight.comparing import speed
from matchlight.reproduce.dive_cost import TOP, timed


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--pictures", type=int, default=1000)
    ask.add_argument("--captions", type=int, default=5000)
    ask.add_argument("--dim", type=int, default=1024)
    ask.add_argument("--slots", type=int, default=4)
    ask.add_argument("--device", default="auto")
    ask.add_argument("--runs", type=int, default=10)
    asked = ask.parse_args()
    device = speed.pick(asked.device)
    torch.set_float32_matmul_precision("high")
    lengths = speed.caption_lengths(asked.captions)
    sizes = {"dim": asked.dim, "slots": asked.slots}
    print(f"{asked.pictures} x {asked.captions}, dim {asked.dim}, {device.type}, top {TOP} both ways")
    print(f"{'':28}{'FLOPs a pair':>14}{'ratio':>9}{'latency ms':>13}{'ratio':>10}", flush=True)
    for row in timed(asked.pictures, lengths, device=device, runs=asked.runs, **sizes):
        ops = f"{row['flops']:14.0f}{row['flops_ratio']:9.1f}"
        print(f"{row['method']:28}{ops}{row['milliseconds']:13.2f}{row['milliseconds_ratio']:10.2f}", flush=True)


if __name__ == "__main__":
    main()
