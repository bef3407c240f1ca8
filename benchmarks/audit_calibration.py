"""Are there as many false alarms as an audit expects? Small sets, clean and broken, several seeds.

    python benchmarks/audit_calibration.py DATA -o OUT [--sizes 20,50,100,240,1000] [--noise 0,0.2,0.4]
                                             [--captions 1,5] [--seeds 10] [--pictures 1300] [--plot FILE.png]

Each cell is a set of so many pairs drawn from DATA's training split, broken caption by caption (`moved`: every caption
of every picture belongs to another one), and audited with fixed vectors alone. Printed for each kind of cell, over its
seeds: how many pairs were flagged, how many of these the audits expected to be false alarms and how many were, how many
audits said that they cannot tell, and the mean of the estimated shares. Pictures and captions are encoded once; OUT
keeps the signals of each cell, so an interrupted table goes on where it stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import matchlight as ml
from matchlight.auditing.options import Options, claim, settings
from matchlight.auditing.signals import FILE, gather, read
from matchlight.auditing.verdict import combine
from matchlight.data.noise import Truth, mismatch
from matchlight.files import write_array
from matchlight.inputs.features import extract
from matchlight.inputs.sentence_encoders import sentence_encoder

MOVED = "moved"
OPTIONS = Options(quick=False, pictures="own")
Sentences = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """What the sets of a cell have in common."""

    pairs: int
    captions: int  # a picture
    noise: str  # a share, or MOVED

    def draw(self, pool: ml.Pairs, seed: int) -> tuple[ml.Pairs, Truth]:
        """A set of this kind and which of its pairs are wrong."""
        rng = np.random.default_rng([seed, self.pairs, self.captions])
        chosen = np.sort(rng.choice(len(pool.names), self.pairs // self.captions, replace=False))
        rows = np.concatenate([np.flatnonzero(pool.picture == p)[: self.captions] for p in chosen])
        moved = self.noise == MOVED
        share, per = (1.0, "picture") if moved else (float(self.noise), "caption")
        return mismatch(pool.select(chosen, rows), ratio=share, per=per, seed=seed)


def pool_of(data: Path, pictures: int) -> tuple[ml.Pairs, Sentences]:
    """The first training pictures as features, and the vectors of their captions."""
    pairs = ml.Pairs.read(data)
    first = pairs.pictures_of("train")[:pictures]
    pairs = pairs.select(first, np.flatnonzero(np.isin(pairs.picture, first)))
    pairs = replace(pairs, features=extract(pairs, kind="pooled"), pictures=None)
    captions = sorted(set(pairs.captions))
    vectors = sentence_encoder("minilm", frozen=True).encode(captions)
    return pairs, dict(zip(captions, vectors, strict=True))


def signals(pool: ml.Pairs, sentences: Sentences, kind: Kind, seed: int, folder: Path) -> tuple[dict, np.ndarray]:
    """The signals of one set, computed or found, and which of its pairs are wrong."""
    pairs, truth = kind.draw(pool, seed)
    if not (folder / FILE).exists():
        options = replace(OPTIONS, seed=seed)
        claim(folder, settings(None, pairs, options))
        write_array(folder / "work" / "captions.npy", np.stack([sentences[one] for one in pairs.captions]))
        gather(None, pairs, folder, options)
    found = read(folder / FILE)
    return found, ~truth.clean(found["rows"])


@dataclass(frozen=True)
class Outcome:
    """What one audit said, and what was true."""

    flagged: int
    expected: float  # false alarms, by the audit
    real: int  # false alarms
    found: int  # wrong pairs among the flagged
    wrong: int  # wrong pairs
    estimate: float
    told: bool  # the audit says that it can tell


def outcome(found: dict, bad: np.ndarray) -> Outcome:
    """The verdict on one set against its truth."""
    verdict = combine(found)
    suspect = verdict.suspect
    real, hits = int((suspect & ~bad).sum()), int((suspect & bad).sum())
    expected = float(verdict.score[suspect].sum())
    return Outcome(int(suspect.sum()), expected, real, hits, int(bad.sum()), verdict.noise, not verdict.unsure)


def kinds(args: argparse.Namespace) -> list[Kind]:
    """Every kind of set that has the ten pictures an audit needs; captions of one picture can only move together."""
    sizes, captions = ([int(one) for one in words.split(",")] for words in (args.sizes, args.captions))
    found = [Kind(n, c, noise) for n in sizes for c in captions for noise in args.noise.split(",") if n // c >= 10]
    return [kind for kind in found if kind.noise != MOVED or kind.captions > 1]


def line(kind: Kind, outcomes: list[Outcome]) -> str:
    """One row of the table."""
    names = ("flagged", "expected", "real", "found", "wrong", "told")
    flagged, expected, real, found, wrong, told = (sum(getattr(one, name) for one in outcomes) for name in names)
    start = f"{kind.pairs:6}{kind.captions:9}{kind.noise:>7}{len(outcomes):7}{len(outcomes) - told:9}"
    share = np.mean([one.estimate for one in outcomes])
    return f"{start}{flagged:9}{expected:10.1f}{real:6}{found / max(1, wrong):8.2f}{share:10.2f}"


def draw_plot(path: Path, table: dict[Kind, list[Outcome]]) -> None:
    """Expected against real false alarms: one point for all audits of a kind of set that flagged anything."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    most = 1.0
    for size, marker in zip(sorted({kind.pairs for kind in table}), "ov^sD", strict=False):
        cells = [found for kind, found in table.items() if kind.pairs == size]
        x, y = ([sum(getattr(one, name) for one in cell) for cell in cells] for name in ("expected", "real"))
        flagged, audits = sum(one.flagged for cell in cells for one in cell), sum(map(len, cells))
        axes.scatter(x, y, marker=marker, label=f"{size:,} pairs: {flagged:,} flagged in {audits} audits", alpha=0.8)
        most = max(most, *x, *y)
    axes.plot([0, most], [0, most], color="grey", linewidth=1, label="as many as expected")
    axes.set(xlabel="false alarms the audits expected", ylabel="false alarms there were")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    """The table, and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--sizes", default="20,50,100,240,1000")
    parser.add_argument("--captions", default="1,5")
    parser.add_argument("--noise", default=f"0,0.2,0.4,{MOVED}")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pictures", type=int, default=1300, help="of the data, that sets are drawn from")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    pool, sentences = pool_of(args.data, args.pictures)
    print(" pairs captions  noise audits untold  flagged  expected  real  recall  estimate", flush=True)
    table: dict[Kind, list[Outcome]] = {}
    for kind in kinds(args):
        folders = [args.out / f"{kind.pairs}-{kind.captions}-{kind.noise}-{seed}" for seed in range(args.seeds)]
        found = [signals(pool, sentences, kind, seed, folder) for seed, folder in enumerate(folders)]
        table[kind] = [outcome(*one) for one in found]
        print(line(kind, table[kind]), flush=True)
    if args.plot:
        draw_plot(args.plot, table)


if __name__ == "__main__":
    main()
