"""A run folder: `Run.load` opens one that `train` made; evaluation, audit and search start from a `Run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight import files
from matchlight.core import TEXT, BadInput, Embeddings, Ensemble, Matcher, Sizes
from matchlight.devices import pick_device
from matchlight.inputs.backbones.base import loaded_later
from matchlight.inputs.given_vectors import Given, read_vectors
from matchlight.inputs.joint_models import at_home
from matchlight.inputs.prepare import Inputs, View, prepare
from matchlight.inputs.text import Vocabulary
from matchlight.pairs import Pairs
from matchlight.parts.encoders import frozen_readers
from matchlight.runs.as_given import given_matcher
from matchlight.runs.given_recipe import VECTORS, given_recipe
from matchlight.runs.history import History
from matchlight.runs.hub_runs import found, push
from matchlight.runs.onnx_recipe import ONNX, onnx_recipe
from matchlight.runs.onnx_runs import onnx_matcher, open_towers
from matchlight.runs.starters import STARTERS, run_folder
from matchlight.scoring.encode import encode
from matchlight.training import checkpoints
from matchlight.training.arguments import Value
from matchlight.training.registry import (
    Method,
    find,
    from_file,
    is_known_file,
)

Info = dict[str, Any]  # what recipe.json holds; its values are checked where they are used
BEFORE_TOKENS = {"tokens": "cells", "cells": "4096x4096"}  # how pictures were read when recipes did not say it


@dataclasses.dataclass
class Run:
    """A trained (or imported) model with what it needs to read new data."""

    folder: Path
    info: Info
    matcher: Matcher
    vocabulary: Vocabulary | None

    @property
    def method(self) -> str:
        """The recipe's name."""
        return self.info["name"]

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.matcher.parameters()).device

    @property
    def by_labels(self) -> bool:
        """Whether it was trained, and should be evaluated, by class labels."""
        if self.method in (VECTORS, ONNX):
            return False
        recipe = method_of_run(self.folder, self.info).build(Sizes(**self.info["sizes"]), **self.arguments)
        return recipe.protocol == "labels"

    @property
    def arguments(self) -> dict[str, Value]:
        """Its method's arguments, as they build it here."""
        return own_arguments(self.folder, self.info["arguments"])

    @property
    def view(self) -> View:
        """How it reads pictures and captions."""
        return dataclasses.replace(View.from_json(self.info["view"]), home=self.folder)

    @property
    def history(self) -> History:
        """How its training went, epoch by epoch."""
        return History.read(self.folder)

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes it was trained on, in its own order."""
        path = self.folder / "labels.json"
        return files.read_json(path, "a run's classes") if path.is_file() else None

    @staticmethod
    def load(folder: str | Path, *, device: str = "auto") -> Run:
        """Open a run folder, a starter by its name, or a run of the hub by `hf:OWNER/NAME`."""
        folder = run_folder(found(folder))
        if folder.suffix == ".onnx" and not folder.is_dir():
            towers = open_towers(folder)
            return Run(folder.parent, onnx_recipe(towers), onnx_matcher(towers).eval(), towers.vocabulary)
        if not (folder / "recipe.json").is_file():
            made = f"`matchlight train` and `import` make them, {' and '.join(STARTERS)} come with the package"
            raise BadInput(f"{folder}: not a run folder (no recipe.json); {made}")
        info = read_recipe(folder)
        try:
            View.from_json(info["view"])  # how it reads data: a recipe without it is told now, not at the first data
            matcher = _rebuild(folder, info).to(pick_device(device)).eval()
            reads_words = info["sizes"]["vocabulary"] > 0
        except (KeyError, TypeError, AttributeError) as problem:
            raise BadInput(f"{folder}/recipe.json: not a recipe as `matchlight train` writes it ({problem})") from None
        words = folder / "vocab.json"
        if reads_words and not words.exists():  # with other words the model would read nonsense
            raise BadInput(f"{words}: no such file; this run cannot read captions without its own words")
        return Run(folder, info, matcher, Vocabulary.load(words) if reads_words else None)

    def read_words(self, pairs: Pairs) -> Callable[[list[str]], Embeddings]:
        """Reads questions in words as captions of these data are read."""
        first = np.zeros(1, np.int64)  # one picture is enough: only the words are read

        def read(texts: list[str]) -> Embeddings:
            one = pairs.select(first, np.zeros(0, np.int64))
            whose = np.zeros(len(texts), np.int64)
            bare = Pairs(one.names, texts, whose, one.splits, one.pictures, one.features, root=pairs.root)
            return encode(self.matcher, self.inputs(bare).table, TEXT, np.arange(len(texts)))

        return read

    @staticmethod
    def of_vectors(given: Given, pairs: Pairs, *, device: str = "auto") -> tuple[Run, Pairs]:
        """Vectors of pictures and captions by one joint model, as a run that compares them, and the data it reads."""
        data = read_vectors(given, pairs).in_place_of_both(pairs)
        return Run(Path(VECTORS), given_recipe(data), given_matcher().to(pick_device(device)).eval(), None), data

    def push_to_hub(self, name: str, *, licence: str = "", private: bool = False) -> str:
        """Put it on the Hugging Face hub as OWNER/NAME, with its card; its address comes back."""
        return push(self.folder, name, licence=licence, private=private)

    def inputs(self, pairs: Pairs) -> Inputs:
        """New data, read the way this model was trained to read it."""
        vectors = 0 if pairs.text_features is None else pairs.text_features.shape[1]
        if vectors != (trained := self.info["sizes"].get("text_dim", 0)):
            kinds = [f"text vectors of {dim}" if dim else "words" for dim in (vectors, trained)]
            raise BadInput(f"{pairs.root}: captions are {kinds[0]}, {self.folder} was trained on {kinds[1]}")
        ready = prepare(pairs, self.view, device=self.device, vocabulary=self.vocabulary)
        wanted, given = self.info["sizes"]["image_dim"], ready.sizes.image_dim
        if wanted != given:
            raise BadInput(f"{pairs.root}: pictures have {given} features each, {self.folder} was trained on {wanted}")
        return ready


def read_recipe(folder: Path) -> Info:
    """What recipe.json says, of whatever version."""
    info = files.read_json(folder / "recipe.json", "a run's recipe")
    if not isinstance(info, dict):
        raise BadInput(f"{folder}/recipe.json: not a recipe as `matchlight train` writes it; it should be an object")
    files.check_version(info.get("version"), folder)
    arguments = info.get("arguments")
    if isinstance(arguments, dict) and "backbone" in arguments:
        info["arguments"] = {**BEFORE_TOKENS, **arguments}
    return info


def _rebuild(folder: Path, info: Info) -> Matcher:
    try:
        with loaded_later():
            matcher = _untrained(folder, info)
    except BadInput:
        raise
    except (RuntimeError, ValueError) as problem:  # sizes below 0, shares above 1
        if "allocate" in str(problem):
            raise
        raise BadInput(f"{folder}/recipe.json: no model has these arguments ({problem})") from None
    if info["name"] in (VECTORS, ONNX):  # nothing of theirs is kept as weights
        return matcher
    learnt = checkpoints.load_weights(folder / "model.safetensors")
    try:
        matcher.load_state_dict({**frozen_readers(matcher), **learnt})
    except RuntimeError as problem:
        why = str(problem).splitlines()[-1].strip()
        raise BadInput(f"{folder}/model.safetensors does not fit recipe.json: {why}") from None
    return matcher


def own_arguments(folder: Path, arguments: dict[str, Value]) -> dict[str, Value]:
    """A run's arguments, its joint model being the copy in its own folder where there is one."""
    named = arguments.get("model")
    return {**arguments, "model": at_home(str(named), folder)} if named else arguments


def _untrained(folder: Path, info: Info) -> Matcher:
    if info["name"] == VECTORS:
        return given_matcher()
    if info["name"] == ONNX:
        return onnx_matcher(open_towers(folder / View.from_json(info["view"]).onnx))
    chosen, sizes = method_of_run(folder, info), Sizes(**info["sizes"])
    if "members" in info:  # an imported ensemble: each file with its own arguments
        return Ensemble([chosen.build(sizes, **named).matcher() for named in info["members"]])
    recipe = chosen.build(sizes, **own_arguments(folder, info["arguments"]))
    if info["preset"] == "imported":
        return recipe.matcher()
    return recipe.strategy.assemble({name: recipe.build(name) for name in recipe.strategy.networks})


def load(name: str | Path, *, device: str = "auto") -> Run:
    """A run by its folder, or of the Hugging Face hub by `hf:OWNER/NAME`."""
    return Run.load(name, device=device)


def method_of_run(folder: Path, info: Info) -> Method:
    """A run's method. A file is run again only if it is, unchanged, one that a person here trained with by name."""
    named = info.get("method_file")
    if not isinstance(named, dict):
        return find(info["name"])
    path, mark = Path(str(named.get("path"))), str(named.get("sha256"))
    if not is_known_file(path, mark):
        what = f"{folder} was trained by {path}, which is not on this machine, has changed, or was never used here"
        raise BadInput(f"{what}; `matchlight methods {path.name}` with your copy of the file makes it known")
    return from_file(path)
