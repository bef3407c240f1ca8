"""How well an audit finds pairs that were broken on purpose, by the share broken, with each signal on its own.

    python benchmarks/audit.py DATA -o OUT [--noise 0,0.2,0.4,0.6] [--per caption] [--one-caption]
                                     [--quick off] [--models N] [--pictures lite0@224+lite1@240+lite2@260]
                                     [--captions minilm] [--vectors FILE.npz]

Prints one row a share as it goes: AUROC and average precision of the scores, precision and recall of the flagged pairs,
how many were flagged, the estimated share, seconds. OUT keeps the signals and the truth of each; what is there is not
computed again, so an interrupted table goes on where it stopped, and a changed verdict is measured in seconds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import matchlight as ml
from matchlight.auditing.options import Options
from matchlight.auditing.signals import FILE, gather, read
from matchlight.auditing.verdict import combine
from matchlight.data.noise import Truth, mismatch
from matchlight.files import read_json, write_json
from matchlight.inputs.given_vectors import GivenVectors, read_vectors

HEAD = f"{'noise':>6}{'pairs':>8}{'AUROC':>8}{'AP':>8}{'precis.':>9}{'recall':>8}{'flagged':>9}{'est.':>7}{'s':>7}"


def one_caption(pairs: ml.Pairs) -> ml.Pairs:
    """The first caption of each picture alone."""
    rows = np.sort(np.unique(pairs.picture, return_index=True)[1])
    return pairs.select(np.arange(len(pairs.names)), rows)


def first_pictures(pairs: ml.Pairs, count: int) -> ml.Pairs:
    """A smaller set: the first training pictures and no other."""
    pictures = pairs.pictures_of("train")[:count]
    return pairs.select(pictures, np.flatnonzero(np.isin(pairs.picture, pictures)))


def of_part(vectors: GivenVectors, part: ml.Pairs) -> GivenVectors:
    """The vectors of a part of the data they were made of."""
    every = np.arange(len(vectors.images)), np.arange(len(vectors.texts))
    pictures, rows = part.notes.get("pictures", every[0]), part.notes.get("rows", every[1])
    return GivenVectors(vectors.images[pictures], vectors.texts[rows], vectors.source)


def moved_along(vectors: GivenVectors, clean: ml.Pairs, broken: ml.Pairs) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of broken pairs: those of a caption go where the caption went."""
    place = {caption: row for row, caption in enumerate(clean.captions)}
    return vectors.images, vectors.texts[[place[caption] for caption in broken.captions]]


def signals(
    clean: ml.Pairs, folder: Path, *, ratio: float, per: str, options: Options, vectors: GivenVectors | None
) -> tuple[dict[str, Any], Truth]:
    """One share's signals and truth, computed or found."""
    truth_file, clock = folder / "truth.json", folder / "seconds.json"
    if (folder / FILE).exists() and clock.exists():
        return read(folder / FILE), Truth.load(truth_file)
    pairs, truth = mismatch(clean, ratio=ratio, per=per, seed=0)
    if vectors is not None:
        options = replace(options, vectors=moved_along(vectors, clean, pairs))
    began = time.perf_counter()
    found = gather(None, pairs, folder, options)
    truth.save(truth_file)
    write_json(clock, {"seconds": round(time.perf_counter() - began, 1)})
    return found, truth


def measure(verdict: Any, bad: np.ndarray) -> dict[str, float]:
    """The row of the table; without broken pairs only what was flagged."""
    from matchlight.auditing.truth_check import against_truth

    row = {"flagged": int(verdict.suspect.sum()), "estimated_noise": verdict.noise}
    return row | (against_truth(verdict.score, verdict.suspect, bad) if bad.any() else {})


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--noise", default="0,0.2,0.4,0.6")
    parser.add_argument("--per", default="caption", choices=("caption", "picture"))
    parser.add_argument("--one-caption", action="store_true")
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--quick", choices=("on", "off"), default="on", help="off: fixed vectors alone")
    parser.add_argument("--first", type=int, help="only the first so many training pictures")
    parser.add_argument("--pictures", default="auto", help="whose vectors of the pictures are compared")
    parser.add_argument("--captions", default="auto", help="whose vectors of the captions are compared")
    parser.add_argument("--vectors", type=Path, help="vectors of all pictures and captions of DATA, made already")
    parser.add_argument("--set", nargs="*", default=[], metavar="name=value", help="arguments of the quick models")
    args = parser.parse_args()
    clean = ml.Pairs.read(args.data)
    vectors = read_vectors(args.vectors, clean) if args.vectors else None
    clean = first_pictures(clean, args.first) if args.first else clean
    clean = one_caption(clean) if args.one_caption else clean
    vectors = of_part(vectors, clean) if vectors else None
    kind = "fixed-" if args.quick == "off" else ""
    kind += ("one-" if args.one_caption else "") + (f"{args.per}-" if args.per != "caption" else "")
    kind += f"{args.pictures}-" if args.pictures != "auto" else ""  # a folder that is there is not computed again
    overrides = _numbers(args.set) or None
    kind += f"{args.captions}-" if args.captions != "auto" else ""
    kind += f"{args.vectors.stem}-" if args.vectors else ""
    named = {"pictures": args.pictures, "captions": args.captions}
    options = Options(quick=args.quick == "on", models=args.models, overrides=overrides, **named)
    for ratio in map(float, args.noise.split(",")):
        folder = args.out / f"{kind}{ratio:g}"
        found, truth = signals(clean, folder, ratio=ratio, per=args.per, options=options, vectors=vectors)
        report(folder, found, truth, ratio)


def report(folder: Path, found: dict[str, Any], truth: Truth, ratio: float) -> None:
    """Print one share's rows: everything, without siblings, and each signal alone."""
    bad = ~truth.clean(found["rows"])
    seconds = read_json(folder / "seconds.json", "the time it took")["seconds"]
    print(HEAD, flush=True)
    results = {}
    for name, siblings in (("all", True), ("no siblings", False)):
        verdict = combine(found, siblings=siblings)
        row = results[name] = measure(verdict, bad)
        shown = [_number(row.get(key)) for key in ("auroc", "average_precision", "precision", "recall")]
        start = f"{ratio:6.0%}{len(bad):8}{shown[0]:8.4f}{shown[1]:8.4f}{shown[2]:9.3f}{shown[3]:8.3f}"
        print(f"{start}{row['flagged']:9}{row['estimated_noise']:7.3f}{seconds:7.0f}  {name}", flush=True)
        if siblings and bad.any():
            alone = {signal: _auroc(value, bad) for signal, value in verdict.signals.items()}
            print("       " + "  ".join(f"{signal} {value:.4f}" for signal, value in alone.items()), flush=True)
            results["alone"] = alone
    write_json(folder / "result.json", results)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _auroc(value: np.ndarray, bad: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    known = np.isfinite(value)
    return float(roc_auc_score(bad[known], value[known]))


def _numbers(words: list[str]) -> dict[str, Any]:
    from matchlight.training.arguments import converted
    from matchlight.training.registry import find, parse

    kinds = find("vse_infty").types
    return {name: converted(name, value, kinds[name]) for name, value in parse(words).items()}


if __name__ == "__main__":
    main()
