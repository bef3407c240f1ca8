"""A version of an index that is open: stored sets, engines, candidate vectors, table of items, thumbnails, map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.indexing import origins, versions
from matchlight.indexing.build import ITEMS, MAPS, MODEL, SETS, at_users_address, place_of
from matchlight.indexing.candidate_vectors import Plain, Proposer
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.chances import FILE as CHANCE
from matchlight.indexing.chances import Chances
from matchlight.indexing.distil import Distilled
from matchlight.indexing.engines import Engine, engine_class
from matchlight.indexing.folding import Folding
from matchlight.indexing.index_json import IndexInfo
from matchlight.indexing.query_encoder import QueryEncoder
from matchlight.indexing.records import JoinedRecords, Records
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS, keep_slot_attention
from matchlight.indexing.stored_sets import Sets
from matchlight.runs.folder import Run


@contextmanager
def _damage_told(root: Path) -> Iterator[None]:
    """Files whose checksums hold and that still make no index, as a stranger's may, are one clear line."""
    try:
        yield
    except BadInput:
        raise
    except (*files.DAMAGED_ARRAY, LookupError, AttributeError) as problem:
        why = f"{type(problem).__name__}: {str(problem)[:120]}"
        raise BadInput(f"{root}: its files are damaged or do not fit together ({why}); {versions.AGAIN}") from problem


class OpenIndex:
    """All that the other modules read of an open index; `Index` adds what users do with it."""

    def __init__(self, root: Path, *, device: str, address: str | None = None):
        self.root, self.device, self.address = root, device, address

    def open_newest(self, *, verify: bool) -> None:
        """Read the version in use; where another process replaces it meanwhile, the next one."""
        while True:
            tried, _ = versions.named(self.root)
            try:
                return self.open_version(*versions.current(self.root, verify=verify))
            except (BadInput, FileNotFoundError):
                if versions.named(self.root)[0] == tried:
                    raise

    def open_version(self, folder: Path, manifest: versions.Manifest, *, engines: bool = True) -> None:
        """Read a version, in place of the one that was open; without `engines` it is only looked at."""
        with _damage_told(self.root):
            self.folder, self.manifest = folder, manifest
            self.info: IndexInfo = files.read_json(folder / "index.json", "an index")
            files.check_version(self.info.get("version"), self.root)
            self._check_numbers()
            self.origins = origins.read(folder)
            self.run = Run.load(folder / MODEL, device=self.device)
            keep_slot_attention(self.run.matcher)
            self.catalogue = Catalogue.load(folder / ITEMS)
            self.encoder = QueryEncoder(self.run, self.info["padding"])
            proposer: Proposer = Plain(self.run.matcher)
            if self.info["coarse"] == "distilled":
                proposer = Distilled.load(folder / MAPS)
            self.searcher = Searcher(self.run.matcher, proposer, self._sides(engines=engines), self.run.device)
            self.chances = Chances.load(folder / CHANCE, self.searcher)
            self.thumbs = self._thumbnails()
            self.folding = None if self.thumbs is None else Folding(self.thumbs)
            self.map: np.ndarray | None = None
            if self.info["map"]:
                self.map = np.load(folder / "map.npy", allow_pickle=False)[self.catalogue.alive]

    def _check_numbers(self) -> None:
        """What searching counts with, or would fail on only then."""
        found: list[object] = [self.info["padding"]] if self.info["padding"] is not None else []
        for side in self._side_names():
            about = self.info["sides"][side]
            found += [about["candidates"], about["each"], about["dim"]]
        if any(type(one) is not int or one < 1 for one in found):
            raise BadInput(f"{self.folder}/index.json: damaged (a size is no number); {versions.AGAIN}")

    def _side_names(self) -> list[str]:
        """Pictures, and captions where there are some."""
        return [IMAGE, TEXT] if self.info["shards"][TEXT] else [IMAGE]

    def _sides(self, *, engines: bool) -> dict[str, Side]:
        numbers, alive = {IMAGE: self.catalogue.ids, TEXT: self.catalogue.rows}, self.catalogue.alive_sides()
        sides = {}
        for name in self._side_names():
            about = self.info["sides"][name]
            sets = Sets([self.folder / SETS / shard for shard in self.info["shards"][name]])
            engine = self.open_engine(name) if engines else None
            sides[name] = Side(sets, numbers[name], engine, about["candidates"], about["merge"], alive=alive[name])
        return sides

    def open_engine(self, side: str) -> Engine:
        """The engine of one side, opened once more."""
        about, engine = self.info["sides"][side], at_users_address(self.info["engine"], self.address)
        place = place_of(self.root, self.folder, engine, side)
        return engine_class(engine["name"]).open(place, each=about["each"], dim=about["dim"])

    def _thumbnails(self) -> Sequence[bytes] | None:
        shards = self.info["shards"][THUMBS]
        return JoinedRecords([Records(self.folder / SETS / shard) for shard in shards]) if shards else None

    @property
    def version(self) -> str:
        """The version that is open: `v0001` and so on."""
        return self.folder.name

    def close(self) -> None:
        """Let go of files and connections."""
        for side in self.searcher.sides.values():
            if side.engine is not None:
                side.engine.close()
                side.engine = None
