"""A version of an index that is open: stored sets, engines, candidate vectors, table of items, thumbnails, map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.indexing import origins, versions
from matchlight.indexing.build import ITEMS, MODEL, SETS, at_users_address, place_of
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.chances import FILE as CHANCE
from matchlight.indexing.chances import Chances
from matchlight.indexing.choosing import MAPS
from matchlight.indexing.engines import Engine, engine_class
from matchlight.indexing.folding import Folding
from matchlight.indexing.index_json import IndexInfo
from matchlight.indexing.models import open_model
from matchlight.indexing.records import JoinedRecords, Records
from matchlight.indexing.scorers import Proposer
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS
from matchlight.indexing.stored_sets import Sets
from matchlight.pairs import IMAGE, TEXT


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
            self.model = open_model(folder / MODEL, self.device)
            self.catalogue = Catalogue.load(folder / ITEMS)
            self.encoder = self.model.reader(self.info["padding"])
            self.searcher = Searcher(self.model.scorer, self._proposer(), self._sides(engines=engines))
            self.chances = Chances.load(folder / CHANCE, self.searcher)
            self.thumbs = self._thumbnails()
            self.folding = None if self.thumbs is None else Folding(self.thumbs)
            self.map: np.ndarray | None = None
            if self.info["map"]:
                self.map = np.load(folder / "map.npy", allow_pickle=False)[self.catalogue.alive]

    def _proposer(self) -> Proposer:
        """What proposes candidates: the model's own vectors, or distilled ones."""
        if self.info["coarse"] != "distilled":
            return self.model.own_vectors
        from matchlight.indexing.distil import Distilled  # by torch

        return Distilled.load(self.folder / MAPS)

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
