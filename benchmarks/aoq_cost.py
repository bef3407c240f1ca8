"""What a step of AOQ's second round costs beside a plain step of its base, forward to update.

    python benchmarks/aoq_cost.py [--bases vsrn,scan] [--batch 128] [--steps 30] [--device auto] [--precision auto]

Random features (36 x 2048) and captions; negatives are drawn from random lists, so that next to nothing is shared
between a batch and its companions: the costly case. Plain and second-round steps take turns, and the median of each
counts. On a CPU sizes are small and seconds are core-seconds. The paper's figures (GTX 1080 Ti, VSRN, batch 128):
plain 1.096 s, OffTri 1.489 s, OffQuin 1.557 s, AdapOffQuin 1.604 s, which is 1.46 times the plain step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mining import clock, made_pairs

from matchlight.batches import collate, seeded
from matchlight.core import Batch, Objective, Phase
from matchlight.methods import RECIPES
from matchlight.methods.captioning import Described
from matchlight.methods.quintuplets import KINDS, Draw, Quintuplets
from matchlight.mining import Candidates
from matchlight.prepare import Inputs, pick_device, prepare
from matchlight.recipes import grounded
from matchlight.runs import pick_precision
from matchlight.trainer import Trainer

SMALL = {"dim": 256, "word_dim": 128, "caption_hidden": 128, "caption_word_dim": 64}


def random_lists(pictures: int, captions: int, *, depth: int) -> tuple[Candidates, np.ndarray]:
    """Lists that name other pictures and other pictures' captions at random."""
    rng, picture = np.random.default_rng(0), np.repeat(np.arange(pictures), captions)
    rows = np.arange(len(picture))
    away = rng.integers(1, pictures, (pictures, depth))
    texts = (np.arange(pictures)[:, None] + away) % pictures * captions + rng.integers(0, captions, away.shape)
    images = (picture[:, None] + rng.integers(1, pictures, (len(rows), depth // captions))) % pictures
    return Candidates(np.arange(pictures), rows, texts, images), picture


def trainer(base: str, inputs: Inputs, folder: str, *, batch: int, where: torch.device, precision: str) -> Trainer:
    """The second round's network, whose step without companions is the base's own."""
    chosen = grounded(RECIPES["aoq"], {"base": base})
    named: dict[str, Any] = {**chosen.defaults, "base": base, "batch": batch, "first": 1}
    if where.type == "cpu":
        named |= {name: value for name, value in SMALL.items() if name in named}
    recipe = chosen.build(inputs.sizes, **named)
    return Trainer(Path(folder), recipe, inputs, device=where, precision=precision)


def batches(run: Trainer, kind: str | None, count: int, size: int) -> list[Batch]:
    """Batches of one kind; None: without companions."""
    rows = run.rows
    made = []
    draw = None
    if kind is not None:
        lists, picture = random_lists(len(run.pairs.names), 5, depth=300)
        draw = Draw(lists, picture, 300, links=KINDS[kind])
    for step in range(count):
        some = seeded(7, step).choice(rows, size, replace=False)
        more = draw(some, seeded(8, step)) if draw else None
        made.append(collate(run.table, some, more=more))
    return made


def quintuplets_of(objective: Objective) -> Quintuplets:
    """The part that ranks, behind captioning where there is some."""
    found = objective.ranking if isinstance(objective, Described) else objective
    assert isinstance(found, Quintuplets)
    return found


def medians(run: Trainer, kinds: list[str | None], *, steps: int, batch: int) -> dict[str, float]:
    """Seconds a step, by kind; kinds take turns."""
    network, phase = run.networks["A"], Phase(rows=run.rows)
    network.matcher.train()
    taken: dict[str | None, list[float]] = {kind: [] for kind in kinds}
    prepared = {kind: batches(run, kind, 4, batch) for kind in kinds}
    for step in range(steps + 3):
        for kind in kinds:
            quintuplets_of(network.objective).kind = kind or "adapoffquin"
            some = prepared[kind][step % 4]
            began = clock(run.device)
            run._step(network, phase, some, steps)
            if step >= 3:
                taken[kind].append(clock(run.device) - began)
        run.losses.clear()
        run.seen.clear()
    return {kind or "plain": float(np.median(times)) for kind, times in taken.items()}


def measure(base: str, *, pictures: int, batch: int, steps: int, where: torch.device, precision: str) -> dict[str, Any]:
    """Seconds of each kind of step and their ratio to the plain one."""
    inputs = prepare(made_pairs(pictures, 5), {"kind": "given"}, device=where)
    with tempfile.TemporaryDirectory() as folder:
        run = trainer(base, inputs, folder, batch=batch, where=where, precision=precision)
        found = medians(run, [None, *KINDS], steps=steps, batch=batch)
    ratios = {kind: round(seconds / found["plain"], 3) for kind, seconds in found.items()}
    return {"base": base, "seconds": {kind: round(value, 5) for kind, value in found.items()}, "ratio": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", default="vsrn,scan")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()
    where = pick_device(args.device)
    precision = pick_precision(args.precision, where)
    batch = args.batch or (128 if where.type == "cuda" else 32)
    for base in args.bases.split(","):
        options = {"pictures": args.pictures, "batch": batch, "steps": args.steps}
        found = measure(base, where=where, precision=precision, **options)
        print(json.dumps({"device": str(where), "precision": precision, "batch": batch, **found}), flush=True)


if __name__ == "__main__":
    main()
