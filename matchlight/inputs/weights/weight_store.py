"""Where weights are kept: one folder a name, `weights/NAME` in the cache folder, whole or not there at all.

The cache's cap does not touch them, and neither does `matchlight data cache --clear`. `weights/downloads/NAME` holds
what has come so far of a download that is not finished. Weights that a package of pip brings are found there first.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data import cache
from matchlight.inputs.weights.known_weights import CATALOGUE, Kind, Weights

RECORD = "matchlight.json"  # says where a folder's files came from; written last, so what has one is whole


def folder() -> Path:
    """Where all of them are."""
    return cache.folder() / "weights"


def place(weights: Weights) -> Path:
    """The folder of these weights, whether they are here or not."""
    return folder() / weights.name


def downloads(weights: Weights) -> Path:
    """The folder of what has come so far."""
    return folder() / "downloads" / weights.name


def fetched(weights: Weights) -> Path | None:
    """The folder, if the weights were fetched."""
    where = place(weights)
    return where if (where / RECORD).is_file() and (where / weights.main_file).is_file() else None


def in_package(weights: Weights) -> Path | None:
    """The folder in an installed package that brings the same files; nothing of the package is run."""
    if not weights.installed:
        return None
    inside = weights.registry.inside[0]
    try:
        file = Path(str(metadata.distribution(weights.installed).locate_file(inside)))
    except metadata.PackageNotFoundError:
        return None
    return file.parent if file.is_file() else None


def here(weights: Weights) -> Path | None:
    """The folder that would be used, if the weights are on this machine."""
    return in_package(weights) or fetched(weights)


def needed(weights: Weights) -> Path:
    """The folder, or one line that says how to get it."""
    where = here(weights)
    if where is None:
        raise BadInput(
            f"{weights.name} is not on this machine: `matchlight weights get {weights.name}` fetches it "
            f"({weights.size / 1e6:.0f} MB)"
        )
    return where


def best(kind: Kind) -> Weights | None:
    """The best weights of a kind that are on this machine."""
    return next((weights for weights in CATALOGUE.values() if weights.kind == kind and here(weights)), None)


def source_of(where: Path) -> str:
    """Where a fetched folder came from, in words."""
    record = cache.read_json(where / RECORD) or {}
    return str(record.get("source", "unknown"))


def remove(weights: Weights) -> int:
    """Delete what was fetched and what has come of an unfinished download; returns the bytes freed."""
    there = [path for path in (place(weights), downloads(weights)) if path.is_dir()]
    if not there:
        raise BadInput(f"{weights.name}: nothing to remove; {_why_not(weights)}")
    freed = sum(file.stat().st_size for path in there for file in path.rglob("*") if file.is_file())
    with cache.locked(downloads(weights)):  # a download that is going on is waited for
        for path in (place(weights), downloads(weights)):
            shutil.rmtree(path, ignore_errors=True)
    return freed


def _why_not(weights: Weights) -> str:
    if in_package(weights) is None:
        return "it was not fetched"
    return f"it came with the package {weights.installed}, so `pip uninstall {weights.installed}` removes it"
