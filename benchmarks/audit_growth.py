"""How does an audit's time grow with the number of pairs, and how well does it find what was exchanged?

    OMP_NUM_THREADS=1 python benchmarks/audit_growth.py DATA --vectors FILE.npz -o OUT [--first 1000,4000,8000,16000]

The first so many training pictures with all their captions, 40% of the captions exchanged (seed 0), nothing trained.
FILE.npz holds vectors of those pictures and captions (`--make` computes it once: lite0's of pictures at 160 px, and 384
numbers of a singular value decomposition of each caption's words). What is timed is the whole audit but for reading the
data: fits, neighbours, verdict, table and page, in processor seconds. The growth is the power of a line through the
points on logarithmic axes, and the one from the first size to the last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np

import matchlight as ml
from matchlight.auditing.item_vectors import tfidf_vectors
from matchlight.data.noise import mismatch
from matchlight.inputs.features import extract
from matchlight.inputs.given_vectors import GivenVectors, read_vectors

SHARE = 0.4
KEYS = ("auroc", "precision", "recall")


def first_pictures(pairs: ml.Pairs, count: int) -> ml.Pairs:
    """The first training pictures with their captions."""
    pictures = pairs.pictures_of("train")[:count]
    return pairs.select(pictures, np.flatnonzero(np.isin(pairs.picture, pictures)))


def make_vectors(part: ml.Pairs, path: Path) -> None:
    """Vectors of all pictures and captions of the largest part."""
    texts = tfidf_vectors(list(part.captions), seed=0, dim=384, rare=3, common=1.0).numpy()
    images = extract(part, backbone="lite0", kind="pooled", size=160, device="cpu").array
    np.savez(path, images=images, texts=texts)


def audited(whole: ml.Pairs, count: int, vectors: GivenVectors, folder: Path) -> dict[str, float]:
    """One size: processor seconds, and how well the exchanged captions were found."""
    shutil.rmtree(folder, ignore_errors=True)
    clean = first_pictures(whole, count)
    broken, truth = mismatch(clean, ratio=SHARE, seed=0)
    place = {caption: row for row, caption in enumerate(whole.captions)}
    texts = vectors.texts[[place[caption] for caption in broken.captions]]
    images = vectors.images[: len(clean.names)]
    began = time.process_time()
    options = {"quick": False, "vectors": (images, texts), "device": "cpu"}
    found = ml.audit(None, broken, folder, truth=truth, **options)  # type: ignore[arg-type]
    used = time.process_time() - began
    measured: dict[str, float | None] = {key: found.summary[key] for key in KEYS}  # type: ignore[literal-required]
    known = {key: float("nan") if value is None else value for key, value in measured.items()}  # nothing was flagged
    return {"pairs": len(clean.captions), "seconds": used} | known


def growth(lines: list[dict[str, float]]) -> tuple[float, float]:
    """The power by a line through all points, and from the first to the last."""
    size, seconds = (np.log([line[key] for line in lines]) for key in ("pairs", "seconds"))
    return float(np.polyfit(size, seconds, 1)[0]), float((seconds[-1] - seconds[0]) / (size[-1] - size[0]))


def main() -> None:
    """Measure each size, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--make", action="store_true", help="compute FILE.npz first")
    parser.add_argument("--first", default="1000,4000,8000,16000")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    counts = [int(count) for count in args.first.split(",")]
    pairs = ml.Pairs.read(args.data)
    whole = first_pictures(pairs, max(counts))
    if args.make:
        make_vectors(whole, args.vectors)
    vectors = read_vectors(args.vectors, whole)
    lines = []
    print(f"{'pairs':>8}{'seconds':>10}{'AUROC':>10}{'precision':>11}{'recall':>9}")
    for count in counts:
        line = audited(whole, count, vectors, args.out / str(count))
        lines.append(line)
        print("{pairs:8.0f}{seconds:10.1f}{auroc:10.5f}{precision:11.4f}{recall:9.4f}".format(**line), flush=True)
    if len(lines) > 1:
        print("grows with the power {:.2f} (line), {:.2f} (first to last)".format(*growth(lines)))
    (args.out / "growth.json").write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
