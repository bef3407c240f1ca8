"""The steps, from the command line."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from benchmarks import starter
from benchmarks.starter.learning import Plan, Teacher, epochs
from benchmarks.starter.looking import Clock, Part, finish_small, look, look_small, parts_of, read, see_small
from benchmarks.starter.measuring import image_vectors, measured, text_vectors
from benchmarks.starter.shipping import ship, ship_chances, ship_plain
from benchmarks.starter.stored import Stored
from benchmarks.starter.towers import Towers, start_by_teacher, start_canonically, towers

Sets = dict[str, list[Part]]
FROZEN = {"look": look, "look-small": look_small, "finish-small": finish_small, "see-small": see_small, "read": read}


def kind_of(asked: argparse.Namespace) -> str:
    """What is learnt over: DINOv2's cells, TinyViT's map before the blocks that are tuned, or its last cells."""
    return {"heads": "cells", "plain": "tiny"}.get(asked.step) or ("trunk" if asked.late_rate else "tiny")


def training_parts(work: Path, sets: Sets, asked: argparse.Namespace) -> list[Part]:
    """What is learnt from; the small network learns from pictures that the larger one has seen as well."""
    kinds = ("cells", kind_of(asked)) if asked.step == "small" else (kind_of(asked),)
    mine = [one for name in asked.train for one in sets[name] if one.split == "train"]
    return [one for one in mine if all((work / f"{one.name}.{kind}.npy").exists() for kind in kinds)]


def teach(work: Path, sets: Sets, asked: argparse.Namespace, clock: Clock) -> None:
    """`heads`, `plain` or `small`: train, measure on validation meanwhile and on test at the end, write the result."""
    small = asked.step == "small"
    kind, tag = kind_of(asked), f"{asked.step}-{'+'.join(asked.train)}-{asked.name}{asked.seed}"

    def seen() -> Stored:
        return Stored(work, training_parts(work, sets, asked), kind)

    stored = seen()
    print(f"{tag}: {len(stored):,} pictures, {len(stored.owner):,} captions", flush=True)
    torch.manual_seed(asked.seed)
    changed = {name: value for name, _, value in (one.partition("=") for one in asked.set)}
    settings = {name: int(value) if value.isdigit() else value for name, value in changed.items()}
    net, state = towers(asked.step, asked.grid, **settings), work / f"{tag}.state.pt"
    teacher = taught_by(net, work, sets, asked) if small else None
    now = (lambda: stored) if small else seen  # the teacher's vectors are of these pictures
    if asked.begin:
        net.matcher.load_state_dict(torch.load(work / asked.begin, weights_only=True)["weights"], strict=False)
    elif not state.exists():
        rng = np.random.default_rng(asked.seed)
        start_canonically(net, stored, rng) if teacher is None else start_by_teacher(net, stored, teacher.images)
    plan = Plan(
        asked.epochs,
        asked.rate,
        steps=asked.steps,
        captions=asked.captions,
        distil=asked.distil,
        late_rate=asked.late_rate,
        batch=asked.batch,
        temperature=asked.temperature,
        drop_words=asked.drop_words,
    )
    for epoch in epochs(net, now, plan, seed=asked.seed, path=state, clock=clock, teacher=teacher):
        if epoch % asked.validate_every == 0 or epoch == plan.epochs:
            own = {name: value.clone() for name, value in net.learnt().items()}
            net.matcher.load_state_dict(torch.load(state, weights_only=True)["mean"], strict=False)
            found = measured(net, work, sets, kind, "val")
            print(f"validation: { {name: one['rsum'] for name, one in found.items()} }", flush=True)
            net.matcher.load_state_dict(own, strict=False)
    weights = {name: value.half() if value.is_floating_point() else value for name, value in net.learnt().items()}
    net.matcher.load_state_dict(weights, strict=False)  # what is shipped is what is measured
    report = {split: measured(net, work, sets, kind, split) for split in ("val", "test")}
    print(json.dumps(report["test"]) if asked.show_test else json.dumps(report["val"]), flush=True)
    about = {"grid": asked.grid, "trained_on": asked.train, "pictures": len(now()), "seed": asked.seed}
    torch.save(
        {"weights": weights, "report": report, "plan": asdict(plan), "settings": settings, **about}, work / f"{tag}.pt"
    )


def taught_by(net: Towers, work: Path, sets: Sets, asked: argparse.Namespace) -> Teacher:
    """The caption tower of the larger starter, fixed, and that starter's vectors of the training pairs."""
    made = torch.load(work / asked.teacher, weights_only=True)
    large = towers("heads", made["grid"], **made["settings"])
    large.matcher.load_state_dict(made["weights"], strict=False)
    stored = Stored(work, training_parts(work, sets, asked), "cells")
    net.caption.load_state_dict(large.caption.state_dict())
    return Teacher(image_vectors(large, stored).clone(), text_vectors(large, stored).clone())


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(
        description=starter.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.starter"
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("step", choices=(*FROZEN, "heads", "plain", "small", "ship", "ship-plain", "chances"))
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--train", action="append", help="names of the data folders to learn from; default: all")
    parser.add_argument("--only", action="append", help="parts to look at or read; default: all")
    parser.add_argument("--name", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grid", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--late-rate", type=float, default=0.1)
    parser.add_argument("--captions", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--drop-words", type=float, default=0.1)
    parser.add_argument("--distil", type=float, default=4.0)
    parser.add_argument("--set", action="append", default=[], help="an argument of vse_infty, NAME=VALUE")
    parser.add_argument("--validate-every", type=int, default=4)
    parser.add_argument("--show-test", action="store_true", help="print the figures of the test split as well")
    parser.add_argument("--begin", help="a result of `small --late-rate 0` whose heads are the first ones")
    parser.add_argument("--teacher", default="heads-flickr8k+coco-0.pt")
    parser.add_argument("--student", default="small-flickr8k+coco-0.pt")
    parser.add_argument("--into", type=Path, help="the run folder that `ship-plain` makes of --student")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(asked.threads)
    clock, sets = Clock(asked.minutes), {path.name: parts_of(path.name, path) for path in asked.data}
    asked.train = asked.train or list(sets)
    parts = [one for own in sets.values() for one in own if not asked.only or one.name in asked.only]
    if asked.step in FROZEN:
        FROZEN[asked.step](asked.work, parts, clock)
    elif asked.step == "ship":
        ship(asked.work, asked.teacher, asked.student)
    elif asked.step == "ship-plain":
        ship_plain(asked.work / asked.student, asked.into)
    elif asked.step == "chances":
        ship_chances(asked.data[-1])
    else:
        teach(asked.work, sets, asked, clock)


if __name__ == "__main__":
    main()
