"""What a run gains and loses as ONNX: size, largest difference, speed against torch, rsum in float and in int8.

    python benchmarks/onnx_export.py RUN --data PATH [--pictures 400] [--threads 2]

Speed is the median of five rounds, torch and ONNX Runtime in turn, over the whole picture tower (backbone included) and
over the caption tower, with the same batches and threads: by the clock, and in processor time (all threads together),
which other programs on the machine hardly change.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from matchlight.inputs.onnx_towers import MASK, READ, SEEN, TOKENS, OnnxTowers
from matchlight.pairs import Pairs
from matchlight.runs.evaluation import evaluate
from matchlight.runs.folder import Run
from matchlight.runs.onnx_export import COMPARED, Export, export_onnx

ROUNDS = 5


CLOCKS = {"clock": time.perf_counter, "processor": time.process_time}


def seconds(work: Callable[[], object]) -> list[float]:
    """What a piece of work takes, by each of `CLOCKS`."""
    began = [clock() for clock in CLOCKS.values()]
    work()
    return [clock() - start for clock, start in zip(CLOCKS.values(), began, strict=True)]


def ratios(export: Export, towers: OnnxTowers) -> dict[str, dict[str, float]]:
    """By side and clock, how many times as fast as torch ONNX Runtime is on `COMPARED` real items."""
    given = export.real
    assert given is not None
    seen, tokens, mask = next(iter(given.values())), given[TOKENS], given[MASK]
    pairs = {
        SEEN: (lambda: export.seen_by_torch(seen), lambda: towers.image(seen)),
        READ: (lambda: export.read_by_torch(tokens, mask), lambda: towers.text(tokens, mask)),
    }
    out = {}
    for side, (plain, own) in pairs.items():
        plain(), own()
        taken = [(seconds(plain), seconds(own)) for _ in range(ROUNDS)]
        out[side] = {
            clock: round(statistics.median(first[k] / second[k] for first, second in taken), 2)
            for k, clock in enumerate(CLOCKS)
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, default=Path("onnx-benchmark"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    run, pairs = Run.load(given.run, device="cpu"), Pairs.read(given.data)
    pictures = pairs.pictures_of("test")[: given.pictures]
    pairs = pairs.select(pictures, np.flatnonzero(np.isin(pairs.picture, pictures)))
    given.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"torch": {"rsum": evaluate(run, pairs, "test")["rsum"], "items": COMPARED}}))
    for name in ("float32", "int8"):
        file = given.out / f"{name}.onnx"
        made = export_onnx(run, file, int8=name == "int8", pairs=pairs)
        speed = ratios(Export(run, pairs), OnnxTowers.open(file, threads=given.threads))
        rsum = evaluate(Run.load(file, device="cpu"), pairs, "test")["rsum"]
        figures = {"megabytes": made.bytes / 1e6, "random": made.random, "real": made.real, "cosine": made.cosine}
        print(json.dumps({name: {**figures, "speed": speed, "rsum": rsum}}), flush=True)


if __name__ == "__main__":
    main()
