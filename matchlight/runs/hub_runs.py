"""Runs on the Hugging Face hub: `push` puts one there, `found` opens `hf:OWNER/NAME` as a folder on this machine.

Both know the files of a run by name, and no others: what is pushed is what is needed to use the model (no checkpoints,
no evidence of single pairs), and what is fetched is weights as safetensors and JSON. Nothing of it is executed, and
`Run.load` checks it as it checks any folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matchlight import files
from matchlight.console import say
from matchlight.core import BadInput
from matchlight.inputs.joint_models import OWN
from matchlight.inputs.joint_models.model_files import OPEN_CLIP, SHARDS, SMALL
from matchlight.inputs.weights.hub import LOGIN, is_known
from matchlight.runs.card import CARD, with_licence, write_card

PREFIX = "hf:"
RECIPE, WEIGHTS = "recipe.json", "model.safetensors"
OF_RUN = (RECIPE, WEIGHTS, "vocab.json", "labels.json", "metrics.json", "log.jsonl", CARD)
OF_MODEL = tuple(f"{OWN}/{name}" for name in (*SMALL, *OPEN_CLIP, SHARDS, "model.safetensors", "model-*.safetensors"))
INSTALL = "pip install 'matchlight[hub]'"


# ---- there -----------------------------------------------------------------------------------------------------------


def push(folder: Path, name: str, *, licence: str = "", private: bool = False) -> str:
    """Put a run on the hub under OWNER/NAME, with its card; its address there comes back."""
    hub = _client(f"pushing {folder}")
    _prepare(folder, licence)
    if not is_known():
        raise BadInput(f"{name}: the hub cannot be reached; --into FOLDER writes what would be pushed")
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    with _explained(f"{PREFIX}{name}"):
        made = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=[*OF_RUN, *OF_MODEL], commit_message="A run of Matchlight"
        )
    return str(made)


def write_shareable(folder: Path, out: Path, *, licence: str = "") -> list[str]:
    """Copy what `push` would upload into an empty folder; the names of the files come back."""
    if not files.is_free(out):
        raise BadInput(f"{out}: not empty; choose another --into")
    _prepare(folder, licence)
    wanted = sorted({path for pattern in (*OF_RUN, *OF_MODEL) for path in folder.glob(pattern) if path.is_file()})
    with files.new_folder(out) as draft:
        for path in wanted:
            target = draft / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return [str(path.relative_to(folder)) for path in wanted]


def _prepare(folder: Path, licence: str) -> None:
    """See that a folder holds a run that others can open, and that it has a card."""
    for name in (RECIPE, WEIGHTS):
        if not (folder / name).is_file():
            raise BadInput(f"{folder}: not a finished run (no {name}); `matchlight train` and `import` make them")
    info = files.read_json(folder / RECIPE, "a run's recipe")
    if not isinstance(info, dict):
        raise BadInput(f"{folder}/{RECIPE}: not a recipe as `matchlight train` writes it")
    if info.get("method_file"):
        raise BadInput(
            f"{folder}: its method is a file of yours, which is not shared; a package with an entry point can be"
        )
    for what, named in (info.get("arguments") or {}).items():
        if isinstance(named, str) and named.startswith(PREFIX) and what != "model" and Path(named[3:]).is_absolute():
            say(f"{what}={named} is a folder of this machine: others need a copy of it at the same place")
    if not (folder / CARD).is_file():
        write_card(folder)
    if licence:
        with_licence(folder, licence)


# ---- and back --------------------------------------------------------------------------------------------------------


def found(name: str | Path) -> Path:
    """The folder of a run: as it is, or that of `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION` in the hub's cache."""
    text = str(name)
    if not text.startswith(PREFIX):
        return Path(name)
    place = Path(text.removeprefix(PREFIX)).expanduser()
    return place if place.is_dir() else _fetched(text)


def _fetched(text: str) -> Path:
    """A snapshot with the files of a run: the newest where the hub can be reached, else what is on this machine."""
    hub = _client(text)
    name, _, revision = text.removeprefix(PREFIX).partition("@")
    there = is_known()
    with _explained(text):
        folder = hub.snapshot_download(
            name,
            revision=revision or None,
            allow_patterns=[*OF_RUN, *OF_MODEL],
            local_files_only=not there,
            endpoint=os.environ.get("HF_ENDPOINT") or None,
        )
    if not Path(folder, RECIPE).is_file():
        raise BadInput(f"{text}: no run of Matchlight (no {RECIPE}); `matchlight import {text}` reads a CLIP or SigLIP")
    return Path(folder)


def _client(what: str):  # noqa: ANN202 - the module, whose types are its own
    try:
        import huggingface_hub
    except ImportError:
        raise BadInput(f"{what}: needs the hub's client: {INSTALL}") from None
    return huggingface_hub


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What the hub's client says in many lines, as one."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise BadInput(f"{name} is gated: {LOGIN}") from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError):
        raise BadInput(
            f"{name}: no folder, and the hub has no such model that you may read; written hf:OWNER/NAME"
        ) from None
    except errors.LocalEntryNotFoundError:
        raise BadInput(f"{name} is not on this machine, and the hub cannot be reached") from None
    except errors.HfHubHTTPError as problem:
        code = getattr(getattr(problem, "response", None), "status_code", 0)
        why = (
            f"you may not write there; {LOGIN}" if code in (401, 403) else f"the hub answers {code or 'nothing of use'}"
        )
        raise BadInput(f"{name}: {why}") from None
    except (OSError, ValueError) as problem:
        raise BadInput(f"{name}: {' '.join(str(problem).split())[:160]}") from None
