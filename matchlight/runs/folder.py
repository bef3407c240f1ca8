"""A run folder: `train` makes one, `Run.load` opens it again; evaluation, audit and search start from a `Run`."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchlight import devices, files
from matchlight.console import VERSION, say
from matchlight.core import TEXT, BadInput, Embeddings, Ensemble, Matcher, Sizes
from matchlight.data.fingerprints import CONTENT, data_marks, differing
from matchlight.devices import pick_device
from matchlight.inputs.given_vectors import Given, read_vectors
from matchlight.inputs.joint_models import OWN, at_home
from matchlight.inputs.joint_models.model_files import without_weights
from matchlight.inputs.prepare import Inputs, View, prepare, view_of
from matchlight.inputs.text import Vocabulary
from matchlight.inputs.weights.ordinary_names import settle_arguments
from matchlight.measuring.protocols.measured import Unfit
from matchlight.pairs import Pairs
from matchlight.parts.encoders import frozen_readers, weights_behind_backbone
from matchlight.runs.as_given import VECTORS, given_matcher
from matchlight.runs.card import write_card
from matchlight.runs.history import History
from matchlight.runs.hub_runs import found, push
from matchlight.runs.onnx_runs import ONNX, onnx_matcher, onnx_recipe
from matchlight.runs.seen import SEEN, seen_by, weights_mark
from matchlight.runs.starters import STARTERS, run_folder
from matchlight.runs.validation_chance import keep_chances
from matchlight.scoring.encode import encode
from matchlight.training import checkpoints
from matchlight.training.arguments import Value
from matchlight.training.callbacks import EpochPrinter, ProgressBar
from matchlight.training.first_choice import first_choice
from matchlight.training.loggers import loggers
from matchlight.training.network import begin_with, objective_weights
from matchlight.training.registry import (
    Chosen,
    Method,
    built_on,
    choose,
    file_mark,
    find,
    from_file,
    is_known_file,
    settings_of,
)
from matchlight.training.trainer import Trainer

Info = dict[str, Any]  # what recipe.json holds; its values are checked where they are used


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """How and where a run is trained, whatever its method: what `train` takes beside a method's own arguments."""

    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    resume: bool = False
    start: Run | None = None  # its weights are the first ones
    save_minutes: float = 2.0
    log: str | Sequence[str] = ()  # tools that curves go to: tensorboard, wandb, mlflow
    tensorboard: bool = False  # the older way to ask for it

    @property
    def tools(self) -> list[str]:
        """All tools that were asked for."""
        named = [self.log] if isinstance(self.log, str) else list(self.log)
        return [*named, *(["tensorboard"] if self.tensorboard else [])]


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
            info, towers = onnx_recipe(folder)
            return Run(folder.parent, info, onnx_matcher(towers).eval(), towers.vocabulary)
        if not (folder / "recipe.json").is_file():
            made = f"`matchlight train` and `import` make them, {' and '.join(STARTERS)} come with the package"
            raise BadInput(f"{folder}: not a run folder (no recipe.json); {made}")
        info = _read_recipe(folder)
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
        assert data.text_features is not None
        dim = data.text_features.shape[1]
        sizes = Sizes(pairs=0, pictures=0, image="vector", image_dim=dim, text_dim=dim)
        info: Info = {"name": VECTORS, "preset": "imported", "arguments": {}, "sizes": dataclasses.asdict(sizes)}
        info |= {"view": {"kind": "given"}, "seed": 0, "data": {"root": pairs.root.name}, "version": VERSION}
        return Run(Path(VECTORS), info, given_matcher().to(pick_device(device)).eval(), None), data

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


BEFORE_TOKENS = {"tokens": "cells", "cells": "4096x4096"}  # how pictures were read when recipes did not say it


def _read_recipe(folder: Path) -> Info:
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
        matcher = _untrained(folder, info)
    except BadInput:
        raise
    except (RuntimeError, ValueError) as problem:  # sizes below 0, shares above 1
        if "allocate" in str(problem):
            raise
        raise BadInput(f"{folder}/recipe.json: no model has these arguments ({problem})") from None
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
        return onnx_matcher(onnx_recipe(folder / View.from_json(info["view"]).onnx)[1])
    chosen, sizes = method_of_run(folder, info), Sizes(**info["sizes"])
    if "members" in info:  # an imported ensemble: each file with its own arguments
        return Ensemble([chosen.build(sizes, **named).matcher() for named in info["members"]])
    recipe = chosen.build(sizes, **own_arguments(folder, info["arguments"]))
    if info["preset"] == "imported":
        return recipe.matcher()
    return recipe.strategy.assemble({name: recipe.build(name) for name in recipe.strategy.networks})


def _check_free(folder: Path, *, resume: bool) -> None:
    """Say before anything slow that a folder is taken: one that holds a run is only touched with --resume."""
    if (folder / "recipe.json").exists():
        if not resume:
            raise BadInput(f"{folder} already holds a run; --resume goes on with it, another -o starts a new one")
    elif not files.is_free(folder):
        raise BadInput(f"{folder}: not empty and not a run; choose another -o")


def _claim(folder: Path, info: Info) -> None:
    """Make the run folder ours; a run that is in it must be the same run."""
    path = folder / "recipe.json"
    if path.exists():
        _check_same(folder, files.read_json(path, "a run's recipe"), info)
        return
    files.write_json(path, info)


def _check_same(folder: Path, old: object, info: Info) -> None:
    """Refuse to go on with a run that was begun with other settings, or with the weights of another run."""
    if not isinstance(old, dict):
        raise BadInput(f"{folder}/recipe.json: not a recipe as `matchlight train` writes it; choose another -o")
    begun = old.get("start", info["start"])  # recipes of old do not say what they began with
    if begun and info["start"] is None:  # said first: without it the arguments' defaults differ as well
        which = f"{begun.get('run')}, a run of {begun.get('name')}" if isinstance(begun, dict) else begun
        raise BadInput(f"{folder} began with another run's weights: give it --from again ({which}), or another -o")
    known = old.get("arguments")
    if isinstance(known, dict):  # arguments that came since have their defaults
        info = {**info, "arguments": {name: value for name, value in info["arguments"].items() if name in known}}
    same = ("name", "arguments", "sizes", "view", "seed")
    differs = [key for key in same if old.get(key) != info[key]] + _other_data(old.get("data"), info["data"])
    differs += ["start"] * (_model(begun) != _model(info["start"]))
    if differs:
        again = "settings and the same --from" if "start" in differs else "settings"
        which = f"{', '.join(differs)} differ"
        raise BadInput(f"{folder} holds another run ({which}): start with the same {again}, or another -o")


def _other_data(old: object, data: Info) -> list[str]:
    """What differs of the data, in words."""
    differs = differing(old if isinstance(old, dict) else {}, data)
    return ["what the pictures show"] if differs == [CONTENT] else ["data"] * bool(differs)


def _begun(start: Run | None) -> dict[str, str] | None:
    """What a recipe says of the run whose weights it begins with; `model` tells it from all others."""
    if start is None:
        return None
    return {"run": start.folder.resolve().name, "name": start.method, "model": weights_mark(start.folder)}


def _model(begun: object) -> object:
    """What has to agree of the run that was begun with: its folder may have another name by now."""
    return begun.get("model") if isinstance(begun, dict) else begun


def _settings_of_start(start: Run | None, chosen: Chosen) -> dict[str, Value] | None:
    """The settings that a new run has from the one it begins with: all but the length, where the method is the same."""
    if start is None or start.method != chosen.name:
        return None if start is None else {}
    return {name: value for name, value in start.info["arguments"].items() if name != "epochs"}


def _borrow(trainer: Trainer, source: Run) -> None:
    """Start every network from another run's weights."""
    members = source.matcher.each()
    learnt = list(objective_weights(source.folder).values())
    for k, network in enumerate(trainer.networks.values()):
        state = weights_behind_backbone(members[k % len(members)].state_dict(), network.matcher)
        try:
            network.matcher.load_state_dict(state)
        except RuntimeError as problem:
            why = str(problem).splitlines()[-1].strip()
            on = f"it is a run of {source.method}, and `matchlight train {source.method}` goes on from it"
            raise BadInput(f"--from {source.folder}: its weights do not fit this recipe; {on} ({why[:120]})") from None
        if network.average is not None:
            network.average.load_state_dict(state)
        if learnt:
            begin_with(network.objective, learnt[k % len(learnt)])


def train(name: str | None, pairs: Pairs, out: str | Path | None = None, **given: Value | Run | list[str]) -> Run:
    """Train a method by name, or that of a Python file, into a run folder; None: the best for data and machine.

    Keywords that are fields of `TrainOptions` (`seed=1`, `device="cpu"`, `resume=True`) say how; all others are the
    method's own arguments (`epochs=20`, `preset="small"`).
    """
    options, settings = _split(given)
    tools = loggers(options.tools)
    if name is None:
        name, settings = _first_choice(pairs, settings, options)
    chosen, settings = choose(name, settings)
    settings = _with_model_of(options.start, on_run(chosen.method, settings, options.start), chosen)
    chosen = Chosen.of(chosen.method, settings)
    where = devices.start_processes(pick_device(options.device))
    precision = devices.pick_precision(options.precision, where)
    pairs.need_captions("training")
    if "train" not in pairs.split_names:
        there = ", ".join(pairs.split_names) or "nothing"
        raise BadInput(f"{pairs.root}: no train split to learn from; it has {there}")
    count, kept = len(pairs.rows("train")), _settings_of_start(options.start, chosen)
    flat, taken = settings_of(chosen.method, settings, pairs=count, device=where.type, start=kept)
    check_needs(chosen.method, pairs)
    folder = Path(out if out is not None else devices.broadcast(tempfile.mkdtemp(prefix="matchlight-")))
    if devices.rank() == 0:
        _check_free(folder, resume=options.resume)
    flat = settle_arguments(flat, begun=_begun_with(folder))
    home = _home_of_model(folder, options.start, flat)
    view = dataclasses.replace(view_of(flat, pooled=chosen.pooled, pairs=pairs), home=home)
    inputs = prepare(pairs, view, device=where, vocabulary=_words(folder, options))
    recipe = chosen.build(inputs.sizes, **own_arguments(home, flat))
    info = {"name": chosen.name, "preset": taken, "arguments": flat, **_file_of(chosen.method)}
    info |= {"seed": options.seed, "precision": precision, "notes": recipe.notes, "start": _begun(options.start)}
    trainer = Trainer(
        folder,
        recipe,
        inputs,
        seed=options.seed,
        device=where,
        precision=precision,
        save_minutes=options.save_minutes,
        callbacks=[ProgressBar(), EpochPrinter(), *tools],
    )
    if options.start is not None:
        _borrow(trainer, options.start)
        recipe.strategy.begin_from(trainer, options.start.folder)
    recipe.strategy.check(trainer)
    _fit(trainer, info | _of_data(inputs, pairs), options)
    if devices.rank() == 0 and flat.get("tune") not in (None, "lora"):
        without_weights(folder / OWN)
    if devices.rank() == 0:
        write_card(folder)
    run = Run.load(folder, device=where.type)
    if devices.rank() == 0 and recipe.protocol != "labels":
        keep_chances(folder, run.matcher, inputs.table, run.read_words(pairs), seed=options.seed)
    return run


def _first_choice(pairs: Pairs, settings: dict[str, Value], options: TrainOptions) -> tuple[str, dict[str, Value]]:
    """The method where none was named: that of the run it starts from, else the best for data and machine, and why."""
    if options.start is not None:
        return options.start.method, settings
    found = first_choice(pairs, pick_device(options.device).type)
    named = " ".join(f"{name}={value}" for name, value in found.settings.items())
    say(f"no method named: {' '.join([found.method, named]).strip()} ({found.why})")
    return found.method, {**found.settings, **settings}


def load(name: str | Path, *, device: str = "auto") -> Run:
    """A run by its folder, or of the Hugging Face hub by `hf:OWNER/NAME`."""
    return Run.load(name, device=device)


def _begun_with(folder: Path) -> Info | None:
    """The arguments of the run that is in a folder, as far as they can be read."""
    if not (folder / "recipe.json").exists():
        return None
    arguments = _read_recipe(folder).get("arguments")
    return arguments if isinstance(arguments, dict) else None


def _split(given: Mapping[str, Value | Run | list[str]]) -> tuple[TrainOptions, dict[str, Value]]:
    """What says how to train, and a method's own arguments."""
    known = {field.name for field in dataclasses.fields(TrainOptions)}
    options: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    settings = {
        name: value for name, value in given.items() if name not in known and not isinstance(value, Run | list | tuple)
    }
    return TrainOptions(**options), settings


def _of_data(inputs: Inputs, pairs: Pairs) -> Info:
    """What recipe.json says of the data."""
    return {
        "sizes": dataclasses.asdict(inputs.sizes),
        "view": inputs.view.to_json(),
        "data": {"root": pairs.root.name, **data_marks(pairs)},
        "version": VERSION,
    }


def _fit(trainer: Trainer, info: Info, options: TrainOptions) -> None:
    """Hold the folder, write what a run begins with, and train."""
    folder, chief = trainer.folder, devices.rank() == 0
    with files.locked(folder, "training into it") if chief else nullcontext():
        if chief:  # last of all that can be refused: what was refused leaves no run behind
            _check_free(folder, resume=options.resume)
            _claim(folder, info)
            _keep_words(folder, trainer.inputs, trainer.pairs)
            _keep_seen(folder, trainer.pairs, options.start)
            _keep_model(folder, trainer.inputs.view)
            passes = f"{trainer.recipe.epochs} epochs of {trainer.inputs.sizes.pairs} pairs"
            where = f"on {trainer.device.type} in {trainer.precision}"
            say(f"{info['name']}: preset {info['preset']}, {passes} {where}")
        devices.barrier()
        goes_on = options.resume and trainer.resume()
        if not goes_on and options.start is None:
            trainer.begin()
        trainer.fit()


def _file_of(method: Method) -> Info:
    """Where a method of a single file is, so that its runs can be opened again."""
    return {} if method.file is None else {"method_file": {"path": str(method.file), "sha256": file_mark(method.file)}}


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


def on_run(method: Method, given: dict[str, Value], start: Run | None) -> dict[str, Value]:
    """What a method that starts from another run's weights is built on: that run's method, and no other's."""
    above = built_on(method)
    if start is None or above is None or not above.open_base:
        return given
    theirs = built_on(method_of_run(start.folder, start.info))
    base = start.method if theirs is None else start.info["arguments"].get(theirs.base_field, start.method)
    named = given.get(above.base_field, base)
    if named != base:
        what = f"--from {start.folder}: a run of {base}, and {above.base_field}={named} was asked for"
        raise BadInput(f"{what}; leave {above.base_field} out, or name a run of {named}")
    return {**given, above.base_field: base}


def check_needs(chosen: Method, pairs: Pairs) -> None:
    """One clear line where the data cannot teach the method."""
    if "labels" in chosen.needs and pairs.labels is None:
        raise Unfit(f"{chosen.name} learns from labels, and {pairs.root} has none")
    if "pairs" in chosen.needs and pairs.text_features is not None:
        raise Unfit(f"{chosen.name} reads captions in words, and {pairs.root} has text vectors only")


def _words(folder: Path, options: TrainOptions) -> Vocabulary | None:
    """The words to read captions with: those of the run that goes on, else of the run it starts from, else new ones."""
    kept = folder / "vocab.json"
    if options.resume and kept.exists() and (folder / "recipe.json").exists():
        return Vocabulary.load(kept)
    return options.start.vocabulary if options.start else None


def _keep_words(folder: Path, inputs: Inputs, pairs: Pairs) -> None:
    if inputs.vocabulary is not None:
        inputs.vocabulary.save(folder / "vocab.json")
    if pairs.labels is not None:
        files.write_json(folder / "labels.json", pairs.labels.names)


def _with_model_of(start: Run | None, settings: dict[str, Value], chosen: Chosen) -> dict[str, Value]:
    """A run that starts from another's weights reads with the same joint model."""
    named = start.info["arguments"].get("model") if start is not None else None
    return {"model": named, **settings} if named and "model" in chosen.defaults else settings


def _home_of_model(folder: Path, start: Run | None, flat: dict[str, Value]) -> Path:
    """Whose copy of a joint model's files is read: that of the run that goes on, else of the run it starts from."""
    same = start is not None and start.info["arguments"].get("model") == flat.get("model")
    return start.folder if start is not None and same and not (folder / OWN).is_dir() else folder


def _keep_model(folder: Path, view: View) -> None:
    """A joint model's files become the run's own: it opens again without the hub. Weights stay until training ends."""
    if view.joint and not (folder / OWN).is_dir():
        view.joint_model.source.keep(folder / OWN, weights=True)


def _keep_seen(folder: Path, pairs: Pairs, start: Run | None) -> None:
    """Marks are made once: a run that goes on has the same data and the same start, or was refused."""
    if not (folder / SEEN).exists():
        files.write_array(folder / SEEN, seen_by(pairs, start.folder if start else None))
