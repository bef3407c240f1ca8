"""Which run a folder belongs to: none yet, the same one that goes on, or another, which is refused."""

from __future__ import annotations

from pathlib import Path

from matchlight import files
from matchlight.core import BadInput
from matchlight.data.fingerprints import CONTENT, differing
from matchlight.runs.folder import Info, Run
from matchlight.runs.seen import weights_mark


def check_free(folder: Path, *, resume: bool) -> None:
    """Say before anything slow that a folder is taken: one that holds a run is only touched with --resume."""
    if (folder / "recipe.json").exists():
        if not resume:
            raise BadInput(f"{folder} already holds a run; --resume goes on with it, another -o starts a new one")
    elif not files.is_free(folder):
        raise BadInput(f"{folder}: not empty and not a run; choose another -o")


def claim(folder: Path, info: Info) -> None:
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


def begun_from(start: Run | None) -> dict[str, str] | None:
    """What a recipe says of the run whose weights it begins with; `model` tells it from all others."""
    if start is None:
        return None
    return {"run": start.folder.resolve().name, "name": start.method, "model": weights_mark(start.folder)}


def _model(begun: object) -> object:
    """What has to agree of the run that was begun with: its folder may have another name by now."""
    return begun.get("model") if isinstance(begun, dict) else begun
