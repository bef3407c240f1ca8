"""Train a method on a data set: its settings, the data as it reads them, the loop, and the run folder that is left."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from matchlight import devices, files
from matchlight.console import VERSION, say
from matchlight.core import BadInput
from matchlight.data.fingerprints import data_marks
from matchlight.devices import pick_device
from matchlight.inputs.backbones.base import loaded_later
from matchlight.inputs.features.stream import InBlocks
from matchlight.inputs.joint_models import OWN
from matchlight.inputs.joint_models.model_files import without_weights
from matchlight.inputs.prepare import Inputs, Stream, View, prepare, store_pictures, streams, view_of
from matchlight.inputs.sentence_encoders import SentenceEncoder
from matchlight.inputs.text import Vocabulary
from matchlight.inputs.weights.ordinary_names import settle_arguments
from matchlight.measuring.protocols.measured import Unfit
from matchlight.pairs import Pairs
from matchlight.parts.encoders import weights_for
from matchlight.runs.card import write_card
from matchlight.runs.claiming import begun_from, check_free, claim
from matchlight.runs.folder import Info, Run, method_of_run, own_arguments, read_recipe
from matchlight.runs.seen import SEEN, seen_by
from matchlight.runs.starters import STARTERS
from matchlight.runs.validation_chance import keep_chances
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
    settings_of,
    usual_base,
)
from matchlight.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """How and where a run is trained, whatever its method: what `train` takes beside a method's own arguments."""

    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    resume: bool = False
    start: Run | None = None  # its weights are the first ones
    save_minutes: float = 2.0
    passing: bool = False  # it is thrown away once it is measured: its state is saved every `save_minutes` alone
    stream: Stream = "auto"  # whether pictures are read anew for each batch; "auto": where a store would be too large
    log: str | Sequence[str] = ()  # tools that curves go to: tensorboard, wandb, mlflow
    tensorboard: bool = False  # the older way to ask for it

    @property
    def tools(self) -> list[str]:
        """All tools that were asked for."""
        named = [self.log] if isinstance(self.log, str) else list(self.log)
        return [*named, *(["tensorboard"] if self.tensorboard else [])]


def train(name: str | None, pairs: Pairs, out: str | Path | None = None, **given: Value | Run | list[str]) -> Run:
    """Train a method by name, or that of a Python file, into a run folder; None: the best for data and machine.

    Keywords that are fields of `TrainOptions` (`seed=1`, `device="cpu"`, `resume=True`) say how; all others are the
    method's own arguments (`epochs=20`, `preset="small"`).
    """
    options, settings = _split(given)
    tools = loggers(options.tools)
    name, settings, options = _named(name, pairs, settings, options)
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
        check_free(folder, resume=options.resume)
    flat = settle_arguments(flat, begun=_begun_with(folder))
    _check_pictures(options.start, flat)
    home = _home_of_model(folder, options.start, flat)
    view = dataclasses.replace(view_of(flat, pooled=chosen.pooled, pairs=pairs), home=home).with_size(where)
    streamed: bool = devices.broadcast(streams(pairs, view, where, options.stream))
    words, reader = _words(folder, options), reader_of(options.start, flat)
    inputs = prepare(pairs, view, device=where, vocabulary=words, streamed=streamed, reader=reader, precision=precision)
    blocks = {"in_blocks": True} if _blocks_taken(folder, inputs) else {}
    recipe = chosen.build(inputs.sizes, **own_arguments(home, flat))
    info = {"name": chosen.name, "preset": taken, "arguments": flat, **_file_of(chosen.method), **blocks}
    info |= {"seed": options.seed, "precision": precision, "notes": recipe.notes, "start": begun_from(options.start)}
    with loaded_later() if _brings_backbone(options.start) else nullcontext():
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
    trainer.passing = options.passing
    if options.start is not None:
        _borrow(trainer, options.start)
        recipe.strategy.begin_from(trainer, options.start.folder)
    recipe.strategy.check(trainer)
    saved = f"{folder} keeps what was saved, and the same command with --resume goes on, with any number of processes"
    with devices.ending_together(saved):
        _fit(trainer, info | _of_data(inputs, pairs), options)
        _finish(folder, flat)
    run = Run.load(folder, device=where.type)
    if devices.rank() == 0 and recipe.protocol != "labels":
        keep_chances(folder, run.matcher, inputs.table, run.read_words(pairs), seed=options.seed)
    return run


def look_at_pictures(name: str, pairs: Pairs, *, device: str, given: Mapping[str, Value]) -> None:
    """Store what this method reads of the pictures, as `train` would: many processes then find it."""
    chosen, settings = choose(name, dict(given))
    chosen, where = Chosen.of(chosen.method, settings), pick_device(device)
    flat, _ = settings_of(chosen.method, settings, pairs=len(pairs.rows("train")), device=where.type)
    store_pictures(pairs, view_of(settle_arguments(flat), pooled=chosen.pooled, pairs=pairs), where)


def _named(
    name: str | None, pairs: Pairs, settings: dict[str, Value], options: TrainOptions
) -> tuple[str, dict[str, Value], TrainOptions]:
    """The method; where none was named, that of the run it starts from, else the best for data and machine, and why."""
    if name is not None:
        return name, settings, options
    if options.start is not None:
        return options.start.method, settings, options
    found = first_choice(pairs, pick_device(options.device).type)
    named = [f"{name}={value}" for name, value in found.settings.items()]
    begun = ["--from", found.start] if found.start else []
    say(f"no method named: {' '.join([found.method, *begun, *named])} ({found.why})")
    start = Run.load(STARTERS[found.start].folder, device="cpu") if found.start else None
    precision = found.precision if options.precision == "auto" else options.precision
    return found.method, {**found.settings, **settings}, dataclasses.replace(options, start=start, precision=precision)


def _split(given: Mapping[str, Value | Run | list[str]]) -> tuple[TrainOptions, dict[str, Value]]:
    """What says how to train, and a method's own arguments."""
    known = {field.name for field in dataclasses.fields(TrainOptions)}
    options: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    settings = {
        name: value for name, value in given.items() if name not in known and not isinstance(value, Run | list | tuple)
    }
    return TrainOptions(**options), settings


def _settings_of_start(start: Run | None, chosen: Chosen) -> dict[str, Value] | None:
    """The settings that a new run has from the one it begins with: all that both methods know, but the length.

    A joint model that was imported has tuned nothing (`tune=none`), which says nothing of what is to be tuned now.
    """
    if start is None:
        return None
    theirs = start.info["arguments"]
    kept = chosen.settings_from(Chosen.of(method_of_run(start.folder, start.info), theirs), theirs)
    return {name: value for name, value in kept.items() if name != "epochs" and (name, value) != ("tune", "none")}


def _with_model_of(start: Run | None, settings: dict[str, Value], chosen: Chosen) -> dict[str, Value]:
    """A run that starts from another's weights reads with the same joint model."""
    named = start.info["arguments"].get("model") if start is not None else None
    return {"model": named, **settings} if named and "model" in chosen.defaults else settings


def _home_of_model(folder: Path, start: Run | None, flat: dict[str, Value]) -> Path:
    """Whose copy of a joint model's files is read: that of the run that goes on, else of the run it starts from."""
    same = start is not None and start.info["arguments"].get("model") == flat.get("model")
    return start.folder if start is not None and same and not (folder / OWN).is_dir() else folder


def _begun_with(folder: Path) -> Info | None:
    """The arguments of the run that is in a folder, as far as they can be read."""
    if not (folder / "recipe.json").exists():
        return None
    arguments = read_recipe(folder).get("arguments")
    return arguments if isinstance(arguments, dict) else None


def _blocks_taken(folder: Path, inputs: Inputs) -> bool:
    """Whether rows come in the order of blocks, which a run that goes on keeps, streamed or not."""
    table, there = inputs.table, (folder / "recipe.json").exists()
    if there and bool(read_recipe(folder).get("in_blocks")) != (table.blocks is not None):
        pictures = table.pairs.pictures
        table.blocks = pictures.blocks() if table.blocks is None and isinstance(pictures, InBlocks) else None
    return table.blocks is not None


def _words(folder: Path, options: TrainOptions) -> Vocabulary | None:
    """The words to read captions with: those of the run that goes on, else of the run it starts from, else new ones."""
    kept = folder / "vocab.json"
    if options.resume and kept.exists() and (folder / "recipe.json").exists():
        return Vocabulary.load(kept)
    return options.start.vocabulary if options.start else None


def _finish(folder: Path, flat: dict[str, Value]) -> None:
    """What is done once with a trained model's files; nobody opens the run before they are final."""
    if devices.rank() == 0:
        if flat.get("tune") not in (None, "lora"):
            without_weights(folder / OWN)
        write_card(folder)
    devices.barrier()


def _file_of(method: Method) -> Info:
    """Where a method of a single file is, so that its runs can be opened again."""
    return {} if method.file is None else {"method_file": {"path": str(method.file), "sha256": file_mark(method.file)}}


def _of_data(inputs: Inputs, pairs: Pairs) -> Info:
    """What recipe.json says of the data."""
    return {
        "sizes": dataclasses.asdict(inputs.sizes),
        "view": inputs.view.to_json(),
        "data": {"root": pairs.root.name, **data_marks(pairs)},
        "version": VERSION,
    }


def on_run(method: Method, given: dict[str, Value], start: Run | None) -> dict[str, Value]:
    """What a method that starts from another run's weights is built on: that run's method, and no other's."""
    above = built_on(method)
    if start is None or above is None:
        return given
    base = Chosen.of(method_of_run(start.folder, start.info), start.info["arguments"]).scorer.name
    named = given.get(above.base_field, base)
    if named != base:
        what = f"--from {start.folder}: a run of {base}, and {above.base_field}={named} was asked for"
        raise BadInput(f"{what}; leave {above.base_field} out, or name a run of {named}")
    if base != usual_base(above):
        say(f"{method.name} goes on from {start.folder.name} with {above.base_field}={base}, as that run was trained")
    return {**given, above.base_field: base}


def check_needs(chosen: Method, pairs: Pairs) -> None:
    """One clear line where the data cannot teach the method."""
    if "labels" in chosen.needs and pairs.labels is None:
        raise Unfit(f"{chosen.name} learns from labels, and {pairs.root} has none")
    if "pairs" in chosen.needs and pairs.text_features is not None:
        raise Unfit(f"{chosen.name} reads captions in words, and {pairs.root} has text vectors only")


def _brings_backbone(start: Run | None) -> bool:
    """Whether the run that is gone on from holds its picture network, so that no file of it is needed."""
    return start is not None and any(".backbone." in name for name, _ in start.matcher.named_parameters())


def reader_of(start: Run | None, flat: dict[str, Value]) -> SentenceEncoder | None:
    """The sentence encoder that captions are read with once, where it stays as it is: that of the run gone on from."""
    if start is None or start.info["arguments"].get("sentences") != flat.get("sentences"):
        return None
    return next((part for part in start.matcher.modules() if isinstance(part, SentenceEncoder)), None)


def _check_pictures(start: Run | None, flat: dict[str, Value]) -> None:
    """Heads that were learnt behind a tuned picture network know nothing of that network as it came."""
    read_by = str(flat.get("backbone"))
    if start is None or flat.get("finetune") or not _brings_backbone(start):
        return
    own = read_by in STARTERS and STARTERS[read_by].folder == start.folder
    if not own and read_by in (start.info["arguments"].get("backbone"), *STARTERS):
        what = f"finetune=false would read pictures with {read_by}, not with the network that {start.folder} tuned"
        raise BadInput(f"{what}; leave finetune out to go on tuning it")


def _borrow(trainer: Trainer, source: Run) -> None:
    """Start every network from another run's weights."""
    members = source.matcher.each()
    learnt = list(objective_weights(source.folder).values())
    for k, network in enumerate(trainer.networks.values()):
        state = weights_for(network.matcher, members[k % len(members)].state_dict())
        try:
            network.matcher.load_state_dict(state)
        except RuntimeError as problem:
            why = str(problem).splitlines()[-1].strip()
            on = f"`matchlight train {source.method} --from` it, without preset= and sizes, goes on from it"
            raise BadInput(f"--from {source.folder}: its weights do not fit this recipe; {on} ({why[:120]})") from None
        if network.average is not None:
            network.average.load_state_dict(state)
        if learnt:
            begin_with(network.objective, learnt[k % len(learnt)])


def _fit(trainer: Trainer, info: Info, options: TrainOptions) -> None:
    """Hold the folder, write what a run begins with, and train."""
    folder, chief = trainer.folder, devices.rank() == 0
    with files.locked(folder, "training into it") if chief else nullcontext():
        if chief:  # last of all that can be refused: what was refused leaves no run behind
            check_free(folder, resume=options.resume)
            claim(folder, info)
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
        elif not goes_on and options.start is not None and options.start.method == info["name"]:
            trainer.validate_start()
        trainer.fit()


def _keep_words(folder: Path, inputs: Inputs, pairs: Pairs) -> None:
    if inputs.vocabulary is not None:
        inputs.vocabulary.save(folder / "vocab.json")
    if pairs.labels is not None:
        files.write_json(folder / "labels.json", pairs.labels.names)


def _keep_model(folder: Path, view: View) -> None:
    """A joint model's files become the run's own: it opens again without the hub. Weights stay until training ends."""
    if view.joint and not (folder / OWN).is_dir():
        view.joint_model.source.keep(folder / OWN, weights=True)


def _keep_seen(folder: Path, pairs: Pairs, start: Run | None) -> None:
    """Marks are made once: a run that goes on has the same data and the same start, or was refused."""
    if not (folder / SEEN).exists():
        files.write_array(folder / SEEN, seen_by(pairs, start.folder if start else None))
