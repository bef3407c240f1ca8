"""The chosen weights as runs of the package."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.starter.looking import DINO_SIZE, TINY_SIZE
from benchmarks.starter.towers import PLAIN, SMALL, STARTER
from matchlight.console import VERSION
from matchlight.core import Sizes
from matchlight.files import write_json
from matchlight.inputs.backbones import TokenChoice
from matchlight.inputs.prepare import View
from matchlight.inputs.sentence_encoders import sentence_encoder
from matchlight.methods.vse import VSEInfinity
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.starters import SHIPPED, STARTERS
from matchlight.runs.validation_chance import keep_chances
from matchlight.training.arguments import Value
from matchlight.training.checkpoints import save_weights

Made = dict[str, Any]  # a result of learning, as torch.load gives it


def without_known(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Blocks of the reader that were not tuned come with their own package."""
    known = sentence_encoder("minilm").state_dict()
    reader = "encoders.text.reader."
    same = [name for name in weights if name.startswith(reader)]
    same = [name for name in same if torch.equal(weights[name], known[name.removeprefix(reader)].half())]
    return {name: value for name, value in weights.items() if name not in same}


def ship(work: Path, teacher: str, student: str) -> None:
    """What was learnt, in half precision, and how to read with it."""
    for name, file in (("starter", teacher), ("starter-small", student)):
        if not (work / file).exists():
            continue
        made = torch.load(work / file, weights_only=True)
        small, grid = name == "starter-small", made["grid"]
        own = SMALL if small else {**STARTER, "cells": f"{grid}x{grid}"}
        settings = {**own, **made["settings"], "rate": 2e-4}
        view = View(
            "pixels" if small else "grid",
            str(settings["backbone"]),
            TINY_SIZE if small else DINO_SIZE,
            sentences="minilm",
        )
        view = view if small else replace(view, choice=TokenChoice("both", (grid, grid)))
        put(SHIPPED / name, made, settings, view, regions=1 if small else grid**2 + 1)
        (SHIPPED / name / "chance.json").unlink(missing_ok=True)  # of other weights; the step `chances` measures them


def ship_plain(result: Path, folder: Path) -> None:
    """A stand-in for `starter-small` over TinyViT as it came, as a run folder."""
    made = torch.load(result, weights_only=True)
    settings = {**PLAIN, **made["settings"], "rate": 2e-4}
    put(folder, made, settings, View("grid", str(settings["backbone"]), TINY_SIZE, sentences="minilm"), regions=49)


def put(folder: Path, made: Made, settings: dict[str, Value], view: View, *, regions: int) -> None:
    """A run folder of weights that were learnt."""
    view = view.with_size(torch.device("cpu"))
    sizes = Sizes(
        pairs=5 * made["pictures"],
        pictures=made["pictures"],
        image="pixels" if view.kind == "pixels" else "regions",
        image_dim=384 if view.choice else 320,
        regions=regions,
    )
    info = {"name": "vse_infty", "preset": folder.name, "arguments": asdict(VSEInfinity(**settings))}  # type: ignore[arg-type]
    info |= {"sizes": asdict(sizes), "view": view.to_json(), "seed": made["seed"]}
    info |= {"data": {"root": " and ".join(made["trained_on"])}, "version": VERSION, "precision": "fp16"}
    info |= {"notes": {"made by": "benchmarks/starter"}, "start": None}
    write_json(folder / "recipe.json", info)
    last = {"epoch": made["plan"]["epochs"] - 1, "select": "the last"}
    write_json(folder / "metrics.json", {**last, **made["report"]})
    save_weights(folder / "model.safetensors", without_known(made["weights"]))
    print(folder, (folder / "model.safetensors").stat().st_size / 1e6, "MB", made["report"]["test"])


def ship_chances(data: Path) -> None:
    """How likely a hit of each starter is right, measured on the validation pictures of a data set."""
    pairs = Pairs.read(data).subset("val")
    for name in STARTERS:
        run = Run.load(SHIPPED / name, device="cpu")
        keep_chances(run.folder, run.matcher, run.inputs(pairs).table, run.read_words(pairs), seed=0)
        print(run.folder / "chance.json", flush=True)
