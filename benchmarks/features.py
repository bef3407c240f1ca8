"""How many pictures a second does a frozen network look at on this CPU, by each runtime?

    python benchmarks/features.py [--backbone lite0] [--data PATH] [--pictures 96] [--threads 2] [-o FILE.json]

Each line is the whole path of `features.extract` short of the disk: decoding, resizing, network, float16, decoded by
threads beside the network. Processor milliseconds a picture are summed over all threads, which a busy machine stretches
less than seconds; ratios are of those, against torch with the network as it was published ("plain"). "Likeness" is the
lowest cosine of a picture's pooled features with the plain ones. Without --data, smooth random colours saved as JPEG at
192 x 144 stand in for photographs.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from matchlight.console import track
from matchlight.core import BadInput
from matchlight.data.formats.sources import BytePictures
from matchlight.inputs.backbones import Backbone, backbone
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.features.runtimes import computed, computed_by
from matchlight.inputs.preprocessing import Preprocessing
from matchlight.inputs.weights.ordinary_names import settled
from matchlight.pairs import Pairs, PictureSource

PLAIN = "plain"
RUNTIMES = ("torch", "torch-bf16", "onnx", "onnx-int8")
BATCH = 8


@dataclass(frozen=True)
class Line:
    """One runtime of one network."""

    backbone: str
    size: int
    runtime: str
    cpu_ms: float  # a picture, decoding included
    pictures_per_s: float
    ratio: float  # of processor time, against the plain network
    likeness: float


def stand_ins(count: int) -> PictureSource:
    """Smooth random pictures as JPEG bytes."""
    rng, blobs = np.random.default_rng(0), []
    for _ in range(count):
        file = io.BytesIO()
        small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        small.resize((192, 144), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        blobs.append(file.getvalue())
    return BytePictures([f"{k}.jpg" for k in range(count)], blobs)


def network_by(name: str, runtime: str, source: PictureSource) -> tuple[Backbone, Preprocessing]:
    """A network as a runtime computes it, and how pictures are made ready for it."""
    network = backbone(settled(name, "picture", asked="backbone"))
    made = network.preprocessing(network.usual_size(torch.device("cpu")))
    if runtime == PLAIN:
        return network.eval(), made
    ready = network.for_inference()
    ready.runtime = runtime  # type: ignore[assignment]
    return computed_by(ready, source, made, left=len(source)), made


def looked_at(network: Backbone, source: PictureSource, made: Preprocessing) -> np.ndarray:
    """(N, D) pooled features, as `extract` computes them."""
    parts = decoded(source, 0, made, BATCH, then=lambda rows: computed(network, rows, "pooled"))
    return np.concatenate([found for found, _ in parts]).astype(np.float32)


def timed(network: Backbone, source: PictureSource, made: Preprocessing, runs: int) -> tuple[float, float]:
    """Seconds of processor and by the clock, each of the best of a few runs."""
    processor, clock = [], []
    for _ in range(runs):
        used, began = time.process_time(), time.perf_counter()
        looked_at(network, source, made)
        processor.append(time.process_time() - used)
        clock.append(time.perf_counter() - began)
    return min(processor), min(clock)


def rates(name: str, source: PictureSource, *, runs: int = 3) -> list[Line]:
    """One line a runtime that this machine has."""
    lines: list[Line] = []
    right: np.ndarray | None = None
    base = 0.0
    for runtime in track((PLAIN, *RUNTIMES), f"looking with {name}"):
        try:
            network, made = network_by(name, runtime, source)
        except BadInput as missing:
            print(f"{runtime}: {missing}")
            continue
        found = looked_at(network, source, made)
        cpu, clock = timed(network, source, made, runs)
        right, base = (found, cpu) if right is None else (right, base)
        cosine = (found * right).sum(1) / (np.linalg.norm(found, axis=1) * np.linalg.norm(right, axis=1) + 1e-9)
        each = 1000 * cpu / len(source)
        lines.append(Line(name, made.size[0], runtime, each, len(source) / clock, base / cpu, float(cosine.min())))
    return lines


def pictures_in(data: Path | None, count: int) -> PictureSource:
    """The first pictures of a data set, or stand-ins."""
    if data is None:
        return stand_ins(count)
    there = Pairs.read(data).pictures
    assert there is not None, f"{data} has no pictures"
    return there.take(np.arange(min(count, len(there))))


def show(lines: list[Line]) -> None:
    """A table on the screen."""
    print(f"{'network':14}{'px':>5}  {'runtime':12}{'cpu ms':>9}{'pictures/s':>12}{'ratio':>7}{'likeness':>10}")
    for one in lines:
        numbers = f"{one.cpu_ms:9.1f}{one.pictures_per_s:12.1f}{one.ratio:7.2f}{one.likeness:10.4f}"
        print(f"{one.backbone[-13:]:14}{one.size:5}  {one.runtime:12}{numbers}")


def main() -> None:
    """Measure, print a table, write JSON."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--backbone", action="append")
    ask.add_argument("--data", type=Path)
    ask.add_argument("--pictures", type=int, default=96)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    torch.set_num_threads(asked.threads)
    source = pictures_in(asked.data, asked.pictures)
    lines = [line for name in asked.backbone or ["lite0"] for line in rates(name, source)]
    show(lines)
    if asked.out:
        asked.out.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
