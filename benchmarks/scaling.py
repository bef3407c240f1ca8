"""How time grows with the data: each stage at 1, 4 and 16 times a small size, in seconds of one core.

    python benchmarks/scaling.py -o OUT [--million FILE.json] [--plot docs/images/scaling.png]

Prints a line a stage as soon as it is measured. OUT/scaling.json keeps what was measured; what is there is not measured
again, so that a run that was stopped goes on. `--million` adds an index of a million items, as
`benchmarks/search.py --whole 1000000 -o FILE.json` measured it. Then every stage has the slope of its line on
logarithmic axes, a prediction for 10 million and 1 billion pairs, and the plot. OMP_NUM_THREADS=1 gives one thread.

    features    pictures of 192 x 144 decoded, brought to 224 x 224 and through lite0, stored
    training    one epoch of vse_infty, 9 regions of 256 numbers, captions of about 10 words, batch 128, dim=256
    mining      for each picture the 50 captions, for each caption the 50 pictures that score highest, of all pairs
    audit       all of it in closed form, of given vectors (64 numbers)
    index       a vector of 128 numbers of each picture and each caption: stored, engine made, candidates and chances
    search      a thousand questions to that index, ten pictures each
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import matchlight as ml
from matchlight.comparing.growth import Growth, slope
from matchlight.core import IMAGE, TEXT
from matchlight.data.formats.sources import ArrayFeatures, BytePictures
from matchlight.files import read_json, write_json
from matchlight.indexing import Index, index_speed
from matchlight.indexing.item_sets import ItemSets
from matchlight.inputs.features import extract
from matchlight.inputs.prepare import View, prepare
from matchlight.pairs import Pairs
from matchlight.training.mining import mine
from matchlight.training.registry import methods

TIMES, PLANNED = (1, 4, 16), (10_000_000, 1_000_000_000)
QUESTIONS, HELD = 1000, 64
HEAD = f"{'stage':>9}{'size':>10}{'core s':>10}{'per 1,000':>11}"


def seconds(work: Callable[[], object]) -> float:
    """Of the processor."""
    began = time.process_time()
    work()
    return time.process_time() - began


def photos(count: int) -> Pairs:
    """Smooth random pictures as JPEG bytes, without captions."""
    rng, blobs = np.random.default_rng(0), []
    for _ in range(count):
        file = io.BytesIO()
        small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        small.resize((192, 144), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        blobs.append(file.getvalue())
    names = [f"{number}.jpg" for number in range(count)]
    return Pairs(names, [], np.zeros(0, np.int64), np.full(count, "all"), pictures=BytePictures(names, blobs))


def regions(count: int) -> Pairs:
    """Pictures of random regions with a caption each, and a few to validate with."""
    rng, all_of_them = np.random.default_rng(0), count + HELD
    lengths = np.clip(rng.gamma(8.0, 1.3, all_of_them).astype(int), 4, 38)
    captions = [" ".join(f"w{word}" for word in rng.integers(0, 3000, many)) for many in lengths]
    return Pairs(
        names=[str(number) for number in range(all_of_them)],
        captions=captions,
        picture=np.arange(all_of_them),
        splits=np.array(["train"] * count + ["val"] * HELD),
        features=ArrayFeatures(rng.normal(size=(all_of_them, 9, 256)).astype(np.float32)),
    )


# ---- the stages ------------------------------------------------------------------------------------------------------


def features(count: int, folder: Path) -> float:
    """Pictures through a network."""
    how: dict[str, Any] = {"backbone": "lite0", "kind": "pooled", "size": 224, "device": "cpu"}
    extract(photos(8), out=folder / "warm", **how)
    pairs = photos(count)
    return seconds(lambda: extract(pairs, out=folder / "features", **how))


def training(count: int, folder: Path) -> float:
    """An epoch."""
    pairs = regions(count)
    how: dict[str, Any] = {"preset": "small", "epochs": 1, "batch": 128, "dim": 256, "device": "cpu"}
    ml.train("vse_infty", regions(128), folder / "warm", **how)
    return seconds(lambda: ml.train("vse_infty", pairs, folder / "run", **how))


def mining(count: int, folder: Path) -> float:
    """Everything against everything."""
    inputs = prepare(regions(count), View("given"), device=torch.device("cpu"))
    chosen = methods()["vse_infty"]
    matcher = chosen.build(inputs.sizes, **{**chosen.defaults, "dim": 256}).matcher().eval()
    rows = np.arange(count)
    mine(matcher, inputs.table, rows[:200], top=20, images=20)
    return seconds(lambda: mine(matcher, inputs.table, rows, top=50, images=50))


def audit(count: int, folder: Path) -> float:
    """Which pairs are wrong."""
    index_speed.draw_files(folder, count, 64)
    pairs, (images, texts) = index_speed.table_of(folder, count), index_speed.vectors_of(folder)
    some = pairs.select(np.arange(200), np.arange(200))
    ml.audit(None, some, folder / "warm", vectors=(images[:200], texts[:200]), device="cpu")
    return seconds(lambda: ml.audit(None, pairs, folder / "audit", vectors=(images, texts), device="cpu"))


def index_and_search(count: int, folder: Path) -> tuple[float, float]:
    """An index built, and asked."""
    index_speed.draw_files(folder, count, 128)
    pairs, vectors = index_speed.table_of(folder, count), index_speed.vectors_of(folder)
    built = seconds(lambda: Index.build(None, pairs, folder / "index", vectors=vectors, map=False).close())
    asked = ItemSets.single(index_speed.drawn(QUESTIONS, 128, 99)[TEXT])
    with Index.load(folder / "index", device="cpu") as index:

        def ask(count: int) -> None:
            for number in range(count):
                index.searcher.top(asked.take(slice(number, number + 1)), TEXT, IMAGE, top=10)

        ask(50)
        return built, seconds(lambda: ask(QUESTIONS))


STAGES: dict[str, tuple[int, tuple[float, ...], Callable[[int, Path], float | tuple[float, float]]]] = {
    # the smallest size, the powers of the size that the work is made of, what is measured
    "features": (32, (0, 1), features),
    "training": (500, (0, 1), training),
    "mining": (1000, (0, 1, 2), mining),
    "audit": (1000, (0, 1, 2), audit),
    "index": (15_000, (0, 1, 1.5), index_and_search),
    "search": (15_000, (0, 0.5), index_and_search),
}


# ---- the table -------------------------------------------------------------------------------------------------------


def measured(out: Path) -> dict[str, dict[int, float]]:
    """Seconds by stage and size; those that a file holds are taken from there."""
    file = out / "scaling.json"
    known: dict[str, dict[str, float]] = read_json(file, "what was measured")["seconds"] if file.exists() else {}
    print(HEAD, flush=True)
    for name, (base, _, work) in STAGES.items():
        for size in (base * times for times in TIMES):
            if str(size) not in known.setdefault(name, {}):
                with tempfile.TemporaryDirectory(dir=out) as folder:
                    found = work(size, Path(folder))
                if isinstance(found, tuple):
                    known["index"][str(size)], found = found[0], found[1]
                    known.setdefault("search", {})[str(size)] = found
                    found = known[name][str(size)]
                known[name][str(size)] = found
                write_json(file, {"seconds": known})
            spent = known[name][str(size)]
            each = spent if name == "search" else 1000 * spent / size
            print(f"{name:>9}{size:>10,}{spent:>10.2f}{each:>11.3f}", flush=True)
    return {name: {int(size): spent for size, spent in known[name].items()} for name in STAGES}


def with_million(found: dict[str, dict[int, float]], file: Path) -> None:
    """What `search.py --whole` measured, beside the rest."""
    line = read_json(file, "a large index")[-1]
    found["index"][line["items"]] = line["building"]["cpu_seconds"]
    found["search"][line["items"]] = line["asked"]["milliseconds"]["cpu_p50"] * QUESTIONS / 1000


def fits(found: dict[str, dict[int, float]]) -> dict[str, Growth]:
    """Each stage as a sum of powers; printed with its slope and what it predicts."""
    made = {}
    planned = "".join(f"{f'{size:,}':>16}" for size in PLANNED)
    print(f"\n{'stage':>9}{'slope':>8}{planned}  (core hours; search: ms)")
    for name, own in found.items():
        sizes = sorted(own)
        made[name] = Growth.fit(sizes, [own[size] for size in sizes], STAGES[name][1])
        unit = QUESTIONS / 1000 if name == "search" else 3600
        line = "".join(f"{made[name].at(size) / unit:>16,.1f}" for size in PLANNED)
        print(f"{name:>9}{slope(sizes, [own[size] for size in sizes]):>8.2f}{line}")
    return made


def plot(found: dict[str, dict[int, float]], grown: dict[str, Growth], path: Path) -> None:
    """Points that were measured, lines that predict."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4.6), layout="constrained")
    for number, (name, own) in enumerate(found.items()):
        sizes = sorted(own)
        line = np.geomspace(sizes[0], PLANNED[0], 60)
        label = f"{name}, slope {slope(sizes, [own[size] for size in sizes]):.2f}"
        axes.plot(line, [grown[name].at(size) for size in line], color=f"C{number}", lw=1, ls="--")
        axes.plot(sizes, [own[size] for size in sizes], "o-", color=f"C{number}", ms=5, label=label)
    axes.set(xscale="log", yscale="log", xlabel="pairs (features: pictures)", ylabel="seconds of one core")
    axes.set_title("Measured (points) and predicted (dashed); search: 1,000 questions", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--million", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = measured(given.out)
    if given.million:
        with_million(found, given.million)
    grown = fits(found)
    told = {name: {"powers": one.powers, "weights": one.weights} for name, one in grown.items()}
    write_json(given.out / "growth.json", told)
    if given.plot:
        plot(found, grown, given.plot)


if __name__ == "__main__":
    main()
