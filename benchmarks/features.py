"""How many pictures a second does lite0 look at, and what do picture size, batch size and folding cost or save?

    python benchmarks/features.py [--data PATH] [--pictures 96] [--threads 2] [--device auto] [-o FILE.json]

Each line is the whole path of `features.extract` (decode, resize, network, float16) without the disk; "network ms" is
the network alone by the clock, "cpu ms" its processor time summed over the threads. Ratios are against the plain
network at 224 px in batches of 32. Without --data, smooth random colours saved as JPEG at 192 x 144 stand in for
photographs.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from matchlight.console import track
from matchlight.data.formats.sources import BytePictures
from matchlight.devices import pick_device
from matchlight.inputs.features import Backbone, _run, _seen, backbone
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.preprocessing import Preprocessing
from matchlight.pairs import Pairs, PictureSource

SIZES = {"own 144x192": (144, 192), "160": (160, 160), "224": (224, 224)}


def stand_ins(count: int) -> PictureSource:
    """Smooth random pictures as JPEG bytes."""
    rng, blobs = np.random.default_rng(0), []
    for _ in range(count):
        file = io.BytesIO()
        small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        small.resize((192, 144), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        blobs.append(file.getvalue())
    return BytePictures([f"{k}.jpg" for k in range(count)], blobs)


def best(work: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """Seconds by the clock and seconds of processor, each of the best of a few runs: neighbours disturb the first."""
    clock, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        work()
        clock.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    return min(clock), min(processor)


def whole_path(source: PictureSource, network: Backbone, size: tuple[int, int], batch: int) -> None:
    """What `extract` does for each picture, short of the disk."""
    for _ in _seen(network, source, 0, size, batch, "grid"):
        pass


def network_alone(network: Backbone, rows: np.ndarray, batch: int) -> None:
    """The same pixels through the network only."""
    for start in range(0, len(rows), batch):
        _run(network, rows[start : start + batch], "grid")


def measure(source: PictureSource, device: torch.device) -> list[dict[str, Any]]:
    """One row a picture size, batch size and form of the network."""
    plain = backbone("lite0").to(device)
    forms = {"plain": plain, "folded": plain.for_inference().to(device)}
    batches = (4, 8, 32) if device.type == "cpu" else (32, 128)
    cases = [(name, form, batch) for name in SIZES for form in forms for batch in batches]
    lines = [_line(source, forms[form], name, form, batch) for name, form, batch in track(cases, "measuring")]
    base = next(line for line in lines if (line["size"], line["network"], line["batch"]) == ("224", "plain", 32))
    return [{**line, "ratio": line["pictures/s"] / base["pictures/s"]} for line in lines]


def _line(source: PictureSource, network: Backbone, name: str, form: str, batch: int) -> dict[str, Any]:
    rows = np.concatenate([rows for rows, _ in decoded(source, 0, Preprocessing(SIZES[name]), 32)])
    clock, processor = best(lambda: network_alone(network, rows, batch))
    whole, _ = best(lambda: whole_path(source, network, SIZES[name], batch))
    times = {"network ms": 1000 * clock / len(rows), "cpu ms": 1000 * processor / len(rows)}
    return {"size": name, "network": form, "batch": batch, **times, "pictures/s": len(rows) / whole}


def main() -> None:
    """Measure, print a table, write JSON."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--data", type=Path)
    ask.add_argument("--pictures", type=int, default=96)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--device", default="auto")
    ask.add_argument("-o", "--out", type=Path)
    asked = ask.parse_args()
    torch.set_num_threads(asked.threads)
    source = stand_ins(asked.pictures)
    if asked.data:
        pictures_there = Pairs.read(asked.data).pictures
        assert pictures_there is not None, f"{asked.data} has no pictures"
        source = pictures_there.take(np.arange(min(asked.pictures, len(pictures_there))))
    lines = measure(source, pick_device(asked.device))
    print(f"{'size':12} {'network':8} {'batch':>5} {'network ms':>11} {'cpu ms':>7} {'pictures/s':>11} {'ratio':>6}")
    for line in lines:
        numbers = f"{line['network ms']:11.2f} {line['cpu ms']:7.2f} {line['pictures/s']:11.1f} {line['ratio']:6.2f}"
        print(f"{line['size']:12} {line['network']:8} {line['batch']:5d} {numbers}")
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
