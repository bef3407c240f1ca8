"""A folder of results in shards, and its list: which files belong together, in which order, and what was left out.

The list says `"finished": false` until all is done. Whoever begins again with the same settings goes on; other settings
are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from matchlight import files
from matchlight.cluster.data_parts import Parts
from matchlight.cluster.jobs import Lost, Workers, tell
from matchlight.cluster.reading import read_on
from matchlight.console import VERSION, BadInput
from matchlight.files import Json
from matchlight.pairs import Pairs

WORK = "work"  # below the folder, until all is done


@dataclass
class Results:
    """A folder that is being filled."""

    folder: Path
    shards: list[str] = field(default_factory=list)
    left_out: list[Json] = field(default_factory=list)

    def read(self, workers: Workers, source: str | Path) -> Pairs:
        """The data set without its broken files."""
        pairs, broken = read_on(workers, source, self.folder / WORK)
        self._leave_out(broken)
        return pairs

    def settle(self, parts: Parts, lost: list[Lost]) -> None:
        """Tell which parts could not be done; the others are the shards."""
        tell(lost, len(parts))
        self._leave_out(lost)
        gone = {one.name for one in lost}
        self.shards = [f"{name}.parquet" for name in parts.names if name not in gone]

    def _leave_out(self, lost: list[Lost]) -> None:
        self.left_out += [{"name": one.name, "reason": one.reason} for one in lost]


@contextmanager
def filling(folder: Path, name: str, about: dict[str, Json]) -> Iterator[Results]:
    """Hold a folder, new or begun with the same settings (`about`), and write its list at the end."""
    place = folder / name
    if place.exists():
        there = files.read_json(place, "a list of shards")
        if differs := [key for key in about if not isinstance(there, dict) or there.get(key) != about[key]]:
            raise BadInput(f"{folder}: holds others ({', '.join(differs)} differ); choose another -o")
    elif not files.is_free(folder):
        raise BadInput(f"{folder}: already holds files; give a new or empty folder")
    with files.locked(folder, "writing into it"):
        files.write_json(place, {**about, "finished": False})
        results = Results(folder)
        yield results
        done: dict[str, Json] = {"shards": [*results.shards], "left_out": results.left_out, "version": VERSION}
        files.write_json(place, {**about, "finished": True, **done})
        shutil.rmtree(folder / WORK, ignore_errors=True)
