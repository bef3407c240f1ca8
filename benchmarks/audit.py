"""How well an audit finds pairs that were broken on purpose, by the share broken, with each signal on its own.

    python benchmarks/audit.py DATA -o OUT [--noise 0,0.2,0.4,0.6] [--per caption] [--like web] [--one-caption]
                                     [--seeds 1] [--first N] [--quick off] [--models N]
                                     [--pictures lite0@224+lite1@240+lite2@260] [--captions minilm]
                                     [--vectors FILE.npz] [--plot FILE.png]

Prints one row a share and seed as it goes: AUROC and average precision of the scores, precision and recall of the
flagged pairs, recall at a precision of .95, calibration error, how many were flagged, the estimated share, seconds;
under `--like web` also what was said of each kind of caption. OUT keeps the signals and the truth of each; what is
there is not computed again, so an interrupted table goes on where it stopped, and a changed verdict is measured in
seconds. `--plot` draws how often pairs of a score are right.

`--like web` writes new captions: where `--vectors` has none of them, they are encoded by `--encoder` (default minilm),
which must be what the vectors of the captions are from. Similar pictures are then found by the pictures' vectors.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import matchlight as ml
from matchlight.auditing.odd_captions import set_aside
from matchlight.auditing.options import Options
from matchlight.auditing.reasons import conclude
from matchlight.auditing.signals import FILE, gather, read
from matchlight.auditing.truth_check import calibration_error, measured
from matchlight.auditing.verdict import combine
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.data.noise import Truth, mismatch
from matchlight.data.noise.truth import NOTHING, WRONG
from matchlight.files import read_json, write_json
from matchlight.inputs.given_vectors import GivenVectors, read_vectors
from matchlight.inputs.sentence_encoders import sentence_encoder

FIGURES = {  # name: heading, width, digits
    "auroc": ("AUROC", 8, 4),
    "average_precision": ("AP", 8, 4),
    "precision": ("precis.", 9, 3),
    "recall": ("recall", 8, 3),
    "recall_at_precision_95": ("at .95", 8, 3),
    "calibration_error": ("ECE", 7, 3),
    "flagged": ("flagged", 9, 0),
    "estimated_noise": ("est.", 7, 3),
}
HEAD = f"{'noise':>6}{'seed':>5}{'pairs':>8}" + "".join(f"{name:>{width}}" for name, width, _ in FIGURES.values())


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


def moved_along(
    vectors: GivenVectors, clean: ml.Pairs, broken: ml.Pairs, encoder: str
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of broken pairs: those of a caption go where the caption went; new captions are encoded."""
    place = {caption: row for row, caption in enumerate(clean.captions)}
    new = sorted(set(broken.captions) - set(place))
    place |= {caption: len(clean.captions) + k for k, caption in enumerate(new)}
    texts = vectors.texts
    if new:
        texts = np.concatenate([texts, sentence_encoder(encoder, frozen=True).encode(new)])
    return vectors.images, texts[[place[caption] for caption in broken.captions]]


@dataclass(frozen=True)
class Task:
    """One cell of the table: how the pairs are broken, and how they are audited."""

    clean: ml.Pairs
    vectors: GivenVectors | None
    encoder: str
    options: Options
    ratio: float
    per: str
    like: str | None
    seed: int

    def broken(self) -> tuple[ml.Pairs, Truth]:
        """The pairs and the truth about them; given vectors say which pictures are similar."""
        source = self.clean
        if self.like and self.vectors is not None:
            source = replace(source, features=ArrayFeatures(self.vectors.images))
        pairs, truth = mismatch(source, ratio=self.ratio, per=self.per, seed=self.seed, like=self.like)
        return replace(pairs, features=self.clean.features), truth

    def signals(self, pairs: ml.Pairs, folder: Path) -> dict[str, Any]:
        """What the audit gathers, computed or found."""
        clock = folder / "seconds.json"
        if (folder / FILE).exists() and clock.exists():
            return read(folder / FILE)
        options = self.options
        if self.vectors is not None:
            options = replace(options, vectors=moved_along(self.vectors, self.clean, pairs, self.encoder))
        began = time.process_time()
        found = gather(None, pairs, folder, options)
        write_json(clock, {"seconds": round(time.process_time() - began, 1)})
        return found


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
    parser.add_argument("--like", choices=("web",), help="captions as the web has them")
    parser.add_argument("--seeds", type=int, default=1, help="how many draws of each share")
    parser.add_argument("--encoder", default="minilm", help="what the captions of --vectors were encoded by")
    parser.add_argument("--plot", type=Path, help="draw how often pairs of a score are right")
    args = parser.parse_args()
    clean = ml.Pairs.read(args.data)
    vectors = read_vectors(args.vectors, clean) if args.vectors else None
    clean = first_pictures(clean, args.first) if args.first else clean
    clean = one_caption(clean) if args.one_caption else clean
    vectors = of_part(vectors, clean) if vectors else None
    named = {"pictures": args.pictures, "captions": args.captions}
    options = Options(quick=args.quick == "on", models=args.models, overrides=_numbers(args.set) or None, **named)
    curves: dict[str, list[Curve]] = {}
    for ratio in map(float, args.noise.split(",")):
        for seed in range(args.seeds):
            task = Task(clean, vectors, args.encoder, options, ratio, args.per, args.like, seed)
            folder = args.out / (f"{_named(args)}{ratio:g}" + (f"-seed{seed}" if seed else ""))
            curves.setdefault(f"{ratio:.0%} wrong", []).append(report(task, folder))
    if args.plot:
        draw(args.plot, curves)


def _named(args: argparse.Namespace) -> str:
    """A folder that is there is not computed again, so its name says what it holds."""
    parts = ["fixed"] * (args.quick == "off") + ["one"] * args.one_caption + [args.like] * bool(args.like)
    parts += [args.per] * (args.per != "caption") + [f"first{args.first}"] * bool(args.first)
    parts += [name for name in (args.pictures, args.captions) if name != "auto"]
    return "".join(f"{part}-" for part in [*parts, *([args.vectors.stem] if args.vectors else [])])


Curve = tuple[np.ndarray, np.ndarray]  # scores, and which pairs are right


def report(task: Task, folder: Path) -> Curve:
    """Print one cell's rows: everything, without siblings, and each signal alone. The scores and what was right."""
    pairs, truth = task.broken()
    found = task.signals(pairs, folder)
    seconds = read_json(folder / "seconds.json", "the time it took")["seconds"]
    aside = set_aside(pairs, found)
    counted = np.isin(found["rows"], truth.rows_that_are(NOTHING), invert=True)
    bad = np.isin(found["rows"], truth.rows_that_are(WRONG))
    print(HEAD + f"{'s':>7}", flush=True)
    results: dict[str, Any] = {}
    several = len(np.unique(found["picture"])) < len(bad)
    for name, siblings in (("all", True), *([("no siblings", False)] if several else [])):
        verdict = combine(found, siblings=siblings, aside=aside != "")
        findings = conclude(pairs, found, verdict, aside)
        row = results[name] = {**measured(truth, findings, pairs), "estimated_noise": verdict.noise}
        shown = "".join(f"{_number(row[key]):{width}.{digits}f}" for key, (_, width, digits) in FIGURES.items())
        print(f"{task.ratio:6.0%}{task.seed:5}{len(bad):8}{shown}{seconds:7.0f}  {name}", flush=True)
        if siblings:
            curve = verdict.score[counted], ~bad[counted]
            _print_kinds(row)
            results["alone"] = {
                signal: _auroc(value[counted], bad[counted]) for signal, value in verdict.signals.items()
            }
    if bad.any():
        print("       " + "  ".join(f"{signal} {value:.4f}" for signal, value in results["alone"].items()), flush=True)
    write_json(folder / "result.json", results)
    return curve


def _print_kinds(row: dict[str, Any]) -> None:
    for kind, of in row.get("kinds", {}).items():
        shares = f"{of['flagged']:9.1%}{of['told']:9.1%}"
        print(f"       {kind:12}{of['means']:>14}{of['pairs']:8}{shares}  (suspect, told for what it is)", flush=True)


def draw(path: Path, curves: dict[str, list[Curve]]) -> None:
    """How often pairs of a score are right, in ten bins of the score; a bin of fewer than 20 pairs is left out."""
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=(6.4, 6.0), layout="constrained", sharex=True, height_ratios=(3, 1)
    )
    above.plot([0, 1], [0, 1], color="grey", linewidth=1, label="as the score says")
    for (name, draws), marker in zip(curves.items(), "osD^v", strict=False):
        score, right = (np.concatenate([one[k] for one in draws]) for k in (0, 1))
        place = np.minimum((score * 10).astype(int), 9)
        bins = [k for k in range(10) if (place == k).sum() >= 20]
        x, y = ([values[place == k].mean() for k in bins] for values in (score, right))
        error = calibration_error(score, right)
        above.plot(x, y, marker=marker, label=f"{name}: error {error:.3f}", alpha=0.8)
        below.step((np.arange(10) + 0.5) / 10, np.bincount(place, minlength=10) / len(place), where="mid", alpha=0.8)
    above.set(ylabel="share of the pairs that is right")
    below.set(xlabel="score", ylabel="share of pairs", yscale="log")
    above.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _auroc(value: np.ndarray, bad: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    known = np.isfinite(value)
    if not bad[known].any():
        return float("nan")
    return float(roc_auc_score(bad[known], value[known]))


def _numbers(words: list[str]) -> dict[str, Any]:
    from matchlight.training.arguments import converted
    from matchlight.training.registry import find, parse

    kinds = find("vse_infty").types
    return {name: converted(name, value, kinds[name]) for name, value in parse(words).items()}


if __name__ == "__main__":
    main()
