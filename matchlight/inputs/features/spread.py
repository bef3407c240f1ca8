"""Features by many processes: each part of the data set becomes a Parquet shard, done once.

A shard that is there and was made of the same pictures, captions and settings is kept; whatever is missing or of
another time is made. What cannot be made is told, left out of the list, and tried again by the next call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from matchlight.cluster.data_parts import Part, Parts
from matchlight.cluster.jobs import Job, Workers
from matchlight.cluster.shard_folder import filling
from matchlight.core import BadInput, Json
from matchlight.data.formats.feature_shards import LIST, count_of, open_shard, write_shard
from matchlight.inputs.backbones import Backbone, TokenChoice, backbone
from matchlight.inputs.backbones.base import known_runtime
from matchlight.inputs.features import extract


@dataclass(frozen=True)
class FeatureSettings:
    """How features are made."""

    backbone: str
    kind: str = "grid"
    choice: TokenChoice | None = None
    runtime: str = "auto"
    device: str = "cpu"

    def described(self) -> dict[str, Json]:
        """What the numbers depend on."""
        choice = None if self.choice is None else f"{self.choice.tokens} {self.choice.cells}"
        weights = _network(self).fingerprint()
        chosen: dict[str, Json] = {"backbone": self.backbone, "kind": self.kind, "runtime": self.runtime}
        return chosen | {"choice": choice, "weights": weights}


@lru_cache(maxsize=1)
def _network(settings: FeatureSettings) -> Backbone:
    """One network a process: loading it takes longer than a small shard."""
    network = backbone(settings.backbone, choice=settings.choice)
    network.runtime = known_runtime(settings.runtime)
    return network


def spread_features(workers: Workers, source: str | Path, out: Path, settings: FeatureSettings) -> dict[str, Json]:
    """Write the features of all pictures of a data set as shards below `out`."""
    about = settings.described()
    with filling(out, LIST, about) as results:
        pairs = results.read(workers, source)
        if pairs.features is not None:
            raise BadInput(f"{source}: holds features already; `matchlight data convert` writes them in other formats")
        pairs.need_captions("data features --engine ray")
        parts = Parts(pairs)
        jobs = _jobs(parts, out, json.dumps(about))
        results.settle(parts, workers.finish(_write, settings, jobs, "features", total=len(parts)))
    shards = results.shards
    counts = {name: sum(count_of(out / shard, name) for shard in shards) for name in ("pictures", "unreadable")}
    return {"out": str(out), "shards": len(shards), "left_out": results.left_out, **counts, **about}


def _jobs(parts: Parts, out: Path, settings: str) -> Iterator[Job[tuple[Part, str]]]:
    for part in parts:
        key, file = part.key(settings), out / f"{part.name}.parquet"
        if file.exists() and not _is_of(file, key):
            file.unlink()
        yield Job(part.name, file, (part, key))


def _is_of(file: Path, key: str) -> bool:
    try:
        return open_shard(file)[1].get("key") == key
    except BadInput:
        return False


def _write(settings: FeatureSettings, item: tuple[Part, str], draft: Path) -> None:
    part, key = item
    store = extract(part.pairs, backbone=_network(settings), kind=settings.kind, device=settings.device)
    about: dict[str, Json] = {"key": key, "pictures": len(store), "unreadable": len(store.broken)}
    write_shard(draft, part.pairs, store.gather(np.arange(len(store))), part.rows, about)
