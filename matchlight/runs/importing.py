"""`matchlight import`: released checkpoints as runs of ours, computing as the authors' code does.

A method's own checkpoints, joint models as their libraries save them (`hf:NAME`), and runs that were tuned with LoRA,
whose small matrices are added to the weights they belong to.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from matchlight import files
from matchlight.console import VERSION
from matchlight.core import BadInput, Ensemble, Matcher, Sizes
from matchlight.inputs.joint_models import OWN, joint_model
from matchlight.inputs.prepare import View
from matchlight.inputs.text import Vocabulary
from matchlight.methods.low_rank import merged
from matchlight.runs.card import write_card
from matchlight.runs.folder import Run
from matchlight.training import checkpoints
from matchlight.training.foreign import read_checkpoint, read_vocabulary_words
from matchlight.training.registry import Chosen, Foreign, Method, find


def _translated(path: Path, chosen: Method) -> list[Foreign]:
    """The networks of one file in our words; what the reader misses is one clear line."""
    if chosen.reader is None:
        raise BadInput(f"{chosen.name}: no released checkpoints of this method can be read")
    file = read_checkpoint(path)
    if not isinstance(file.get("opt"), dict):
        file["opt"] = dict(vars(file["opt"])) if hasattr(file.get("opt"), "__dict__") else {}
    try:
        networks = chosen.reader(file)
    except BadInput as problem:
        raise BadInput(f"{path}: {problem}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        missing = str(problem).strip("'\"")[:80]
        raise BadInput(f"{path}: not a {chosen.name} checkpoint as its authors save it ({missing})") from None
    return networks if isinstance(networks, list) else [networks]


def _vocabulary(path: Path, wanted: int) -> Vocabulary:
    words = read_vocabulary_words(path)
    if len(words) != wanted:
        raise BadInput(
            f"{path}: {len(words)} words, but the checkpoint's embedding has {wanted}; it needs its own vocabulary"
        )
    return Vocabulary(words)


def _member(foreign: Foreign, chosen: Method, path: Path) -> tuple[Matcher, Sizes, dict[str, Any]]:
    sizes = Sizes(pairs=0, pictures=0, image=foreign.kind, **foreign.sizes)
    named = {**Chosen.of(chosen, foreign.arguments).defaults, **foreign.arguments}
    if any(0 in weight.shape for weight in foreign.weights.values()):
        raise BadInput(f"{path}: holds weights of no numbers; another file?")
    matcher = _one(chosen.build(sizes, **named).matcher(), foreign, path)
    return matcher, sizes, named


def _one(matcher: Matcher, foreign: Foreign, path: Path) -> Matcher:
    try:
        problems = matcher.load_state_dict(foreign.weights, strict=False)
    except RuntimeError as problem:  # a shape that does not fit
        raise BadInput(f"{path}: {str(problem).splitlines()[-1].strip()}") from None
    missing = [key for key in problems.missing_keys if not key.endswith("num_batches_tracked")]
    if missing or problems.unexpected_keys:
        odd = (missing or problems.unexpected_keys)[0]
        raise BadInput(f"{path}: weight {odd!r} is {'missing' if missing else 'unknown'}; another method's file?")
    return matcher


def _free(out: str | Path) -> Path:
    if not files.is_free(Path(out)):
        raise BadInput(f"{out}: not empty; choose another -o")
    return Path(out)


def import_checkpoints(sources: Sequence[str | Path], name: str, vocabulary: str | Path, out: str | Path) -> Run:
    """Read files into a run folder; several files, or several networks in one, make an ensemble."""
    chosen, folder = find(name), _free(out)
    members = [_member(network, chosen, Path(file)) for file in sources for network in _translated(Path(file), chosen)]
    first = members[0]
    if any(sizes != first[1] for _, sizes, _ in members):
        raise BadInput(
            f"{sources[-1]}: its sizes are not those of {sources[0]}; members of an ensemble must read the same data"
        )
    words = _vocabulary(Path(vocabulary), first[1].vocabulary)
    matcher = first[0] if len(members) == 1 else Ensemble([member for member, _, _ in members])
    info: dict[str, Any] = {
        "name": chosen.name,
        "preset": "imported",
        "arguments": first[2],
        "sizes": dataclasses.asdict(first[1]),
        "view": {"kind": "given"},
        "imported": {"files": [Path(f).name for f in sources], "computes": "as the authors' code"},
        "version": VERSION,
    }
    if len(members) > 1:
        info["members"] = [named for _, _, named in members]
    folder.mkdir(parents=True, exist_ok=True)
    words.save(folder / "vocab.json")
    checkpoints.save_weights(folder / "model.safetensors", matcher.state_dict())
    files.write_json(folder / "recipe.json", info)
    write_card(folder)
    return Run.load(folder, device="cpu")


def import_joint_model(name: str, out: str | Path) -> Run:
    """A joint model as a run: its own weights, preprocessing and tokenizer, all of them in the run's folder."""
    folder, model = _free(out), joint_model(name)
    arguments = {**find("dual").defaults, "model": name, "tune": "none"}
    sizes = Sizes(pairs=0, pictures=0, image="pixels", image_dim=model.shape.dim)
    matcher = find("dual").build(sizes, **arguments).matcher()
    model.pieces.token_ids(["a word"])  # a tokenizer that cannot be read is told now, not at the first caption
    info: dict[str, Any] = {
        "name": "dual",
        "preset": "imported",
        "arguments": arguments,
        "sizes": dataclasses.asdict(sizes),
        "view": View("pixels", joint=name).with_size(torch.device("cpu")).to_json(),
        "imported": {"files": [path.name for path in model.source.weights], "computes": "as its own library"},
        "version": VERSION,
    }
    model.source.keep(folder / OWN, weights=False)
    checkpoints.save_weights(folder / "model.safetensors", matcher.state_dict())
    files.write_json(folder / "recipe.json", info)
    write_card(folder)
    return Run.load(folder, device="cpu")


def merge_adapters(source: str | Path, out: str | Path) -> Run:
    """A run that was tuned with LoRA as one that needs neither peft nor a second file of weights."""
    run, folder = Run.load(source, device="cpu"), _free(out)
    if run.info["arguments"].get("tune") != "lora":
        raise BadInput(f"{source}: a run of {run.method} without LoRA adapters; there is nothing to merge")
    info = {**run.info, "arguments": {**run.info["arguments"], "tune": "all"}, "merged": True}
    joint_model(str(run.folder / OWN)).source.keep(folder / OWN, weights=False)
    checkpoints.save_weights(folder / "model.safetensors", merged(run.matcher))
    for name in (
        "seen.npy",
        "metrics.json",
        "evidence.npy",
        "log.jsonl",
        "labels.json",
        "division.npz",
        "division-first.npz",
    ):
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)
    files.write_json(folder / "recipe.json", info)
    write_card(folder)
    return Run.load(folder, device="cpu")
