"""Where a joint model's files are: a folder, the hub's cache on this machine, or the hub.

Only data is fetched: no code that a repository brings is downloaded or run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from matchlight import files
from matchlight.core import BadInput
from matchlight.inputs.weights.hub import is_known

CONFIG, OPEN_CONFIG = "config.json", "open_clip_config.json"
SMALL = (
    CONFIG, OPEN_CONFIG, "preprocessor_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model",
)  # fmt: skip
SHARDS = "model.safetensors.index.json"
TRANSFORMERS = ("model.safetensors", SHARDS)
OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
PICKLES = ("pytorch_model.bin", "open_clip_pytorch_model.bin")  # read by our own reader, which runs nothing of them
UNREACHED = {"LocalEntryNotFoundError", "ConnectError", "ConnectionError", "OfflineModeIsEnabled", "TimeoutException"}
LARGEST_CONFIG = 1 << 24  # bytes


@dataclass(frozen=True)
class Source:
    """A joint model's files."""

    name: str  # as it was asked for
    folder: Path
    weights: tuple[Path, ...]  # none: a run's own copy of the small files, its weights being the run's

    @property
    def is_open_clip(self) -> bool:
        """Whether the files are open_clip's: by the weights, else by the configuration that is there."""
        if self.weights:
            return self.weights[0].name.startswith("open_clip")
        return (self.folder / OPEN_CONFIG).is_file()

    def json(self, name: str) -> dict[str, object]:
        """One of its JSON files; {} where it has none."""
        path = self.folder / name
        if not path.is_file():
            return {}
        if path.stat().st_size > LARGEST_CONFIG:
            raise BadInput(f"{path}: too large for a configuration")
        value = files.read_json(path, "a configuration")
        if not isinstance(value, dict):
            raise BadInput(f"{path}: not a JSON object")
        return value

    def keep(self, folder: Path, *, weights: bool) -> None:
        """Copy what is needed to read with this model into a folder; its weights only where asked."""
        draft = folder.with_name(f".{folder.name}.tmp")  # a folder that is there is whole
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        unwanted = CONFIG if self.is_open_clip else OPEN_CONFIG
        small = [self.folder / name for name in SMALL if name != unwanted]
        large = [*self.weights, self.folder / SHARDS] if weights else []
        for path in (*large, *small):
            if path.is_file():
                shutil.copyfile(path, draft / path.name)
        draft.replace(folder)


def without_weights(folder: Path) -> None:
    """Remove the weights from a run's own copy: those that were tuned are the run's model."""
    for pattern in ("*.safetensors", SHARDS, *PICKLES):
        for path in folder.glob(pattern):
            path.unlink()


def source(name: str) -> Source:
    """The files of `hf:NAME_OR_FOLDER`; from the hub where they are not on this machine."""
    if not name.startswith("hf:") or len(name) == 3:
        raise BadInput(f"{name!r} is no joint model; hf:NAME of the hub is, or hf:FOLDER")
    place = Path(name[3:]).expanduser()
    return of_folder(name, place if place.is_dir() else _from_hub(name[3:]))


def of_folder(name: str, folder: Path, *, own: bool = False) -> Source:
    """A model in a folder; a run's `own` copy may be without weights."""
    there = {path.name for path in folder.iterdir()}
    if not there & {CONFIG, OPEN_CONFIG}:
        raise BadInput(f"{name}: {folder} has neither {CONFIG} nor {OPEN_CONFIG}; a joint model has one")
    wanted = _wanted(there)
    if wanted is None and not own:
        raise BadInput(f"{name}: {folder} holds no weights; {TRANSFORMERS[0]} or {OPEN_CLIP[0]} would do")
    return Source(name, folder, _weights(folder, wanted) if wanted else ())


def _wanted(there: Iterable[str]) -> str | None:
    """Which file of weights to read: transformers' before open_clip's, safetensors before pickles."""
    there = set(there)
    for name in (*TRANSFORMERS, *OPEN_CLIP, *PICKLES):
        if name in there and (OPEN_CONFIG if name.startswith("open_clip") else CONFIG) in there:
            return name
    return None


def _weights(folder: Path, name: str) -> tuple[Path, ...]:
    if name != SHARDS:
        return (folder / name,)
    listed = json.loads((folder / SHARDS).read_bytes()).get("weight_map")
    names = sorted({str(part) for part in listed.values()}) if isinstance(listed, dict) else []
    if not names or any(Path(part).name != part or not part.endswith(".safetensors") for part in names):
        raise BadInput(f"{folder / SHARDS}: not a list of safetensors files as transformers writes it")
    return tuple(folder / part for part in names)


# ---- the hub ---------------------------------------------------------------------------------------------------------


def _from_hub(name: str) -> Path:
    """A snapshot in the hub's cache: what is on this machine already, else fetched now."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise BadInput(f"hf:{name} needs the package transformers: pip install 'matchlight[backbones]'") from None
    if (here := _on_this_machine(name)) is not None:
        return here
    if not is_known():
        what = f"hf:{name} is no folder and not on this machine, and the hub cannot be reached"
        raise BadInput(f"{what}; fetch it where there is a network, and give its folder as hf:FOLDER")
    address = os.environ.get("HF_ENDPOINT") or None
    try:
        there = [file.rfilename for file in hub.HfApi(endpoint=address).model_info(name).siblings or []]
        found = [hub.hf_hub_download(name, file, endpoint=address) for file in _listed(name, there)]
    except BadInput:
        raise
    except Exception as problem:  # each layer of the hub's client has exceptions of its own
        raise BadInput(_explained(name, problem)) from None
    return Path(found[0]).parent


def _listed(name: str, there: list[str]) -> list[str]:
    """The files to fetch, small ones first."""
    wanted = _wanted(there)
    if wanted is None:
        raise BadInput(f"hf:{name} is no joint model: it has no {CONFIG} with {TRANSFORMERS[0]} beside it")
    parts = [file for file in there if file.startswith("model-") and file.endswith(".safetensors")]
    return [*(file for file in SMALL if file in there), wanted, *(parts if wanted == SHARDS else [])]


def _on_this_machine(name: str) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        here = Path(snapshot_download(name, local_files_only=True))
    except Exception:  # not here, or no name that could be
        return None
    wanted = _wanted(path.name for path in here.iterdir()) if here.is_dir() else None
    whole = wanted is not None and all(path.exists() for path in _weights(here, wanted))
    return here if whole else None


def _explained(name: str, problem: Exception) -> str:
    """One line for what the hub's client says in many."""
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    if "GatedRepoError" in kinds:
        return f"hf:{name} is gated: accept its terms at huggingface.co/{name}, then run `hf auth login`"
    code = getattr(getattr(problem, "response", None), "status_code", 0)
    if kinds & {"RepositoryNotFoundError", "HFValidationError"} or code in (401, 404):
        return f"hf:{name}: no folder, and the hub has no model of that name that you may read; check the spelling"
    if kinds & UNREACHED:
        return f"hf:{name} is not on this machine and the hub cannot be reached ({_line(problem)})"
    return f"hf:{name} cannot be had from the hub ({_line(problem)})"


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:160] or type(problem).__name__
