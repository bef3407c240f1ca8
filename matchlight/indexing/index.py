"""`Index`: build, load, search, add and remove. A folder that needs nothing but itself."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from matchlight import files
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.devices import rank
from matchlight.indexing import build as building
from matchlight.indexing import explain, updating, versions
from matchlight.indexing.catalogue import Catalogue, Where
from matchlight.indexing.opening import open_searcher, open_thumbs
from matchlight.indexing.query_encoder import Picture, QueryEncoder
from matchlight.indexing.results import Hit, Results
from matchlight.indexing.shards import keep_slot_attention
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run

SIDES = (IMAGE, TEXT)
CARD = ("preset", "arguments", "view", "data", "sizes", "seed", "version")  # of the recipe, told by `describe`


class Index:
    """An index in use; `Index.build` makes one, `Index.load` opens one."""

    def __init__(self, root: Path, folder: Path, manifest: versions.Manifest, *, device: str, engines: bool = True):
        self.root, self.device = root, device
        self._open(folder, manifest, engines=engines)

    def _open(self, folder: Path, manifest: versions.Manifest, *, engines: bool = True) -> None:
        self.folder, self.manifest = folder, manifest
        self.info = files.read_json(folder / "index.json", "an index")
        self.run = Run.load(folder / building.MODEL, device=self.device)
        keep_slot_attention(self.run.matcher)
        self.catalogue = Catalogue.load(folder / building.ITEMS)
        self.encoder = QueryEncoder(self.run, self.info["padding"])
        self.searcher = open_searcher(self.root, folder, self.info, self.run, self.catalogue, engines=engines)
        self.thumbs = open_thumbs(folder, self.info)
        self.map: np.ndarray | None = np.load(folder / "map.npy", allow_pickle=False) if self.info["map"] else None
        if self.map is not None:
            self.map = self.map[self.catalogue.alive]

    @staticmethod
    def build(
        run: Run,
        pairs: Pairs,
        out: str | Path | None = None,
        *,
        engine: str = "faiss",
        address: str | None = None,
        split: str = "all",
        target: float = 0.99,
        candidates: int | None = None,
        thumbnails: bool = True,
        map: bool = True,
        seed: int = 0,
        coarse: str = "auto",
    ) -> Index:
        """Index a data set with a trained run; `out` may hold an index, which serves until the new one is whole."""
        options = building.Options(engine, address, split, target, candidates, thumbnails, map, seed, coarse)
        root = building.build(run, pairs, out, options)
        folder, manifest = versions.current(root, verify=False)
        return Index(root, folder, manifest, device=run.device.type, engines=rank() == 0)

    @staticmethod
    def load(path: str | Path, *, device: str = "auto", verify: bool = True) -> Index:
        """Open an index whose checksums hold; `verify=False` trusts sizes alone."""
        root = Path(path)
        tried, _ = versions.named(root)
        try:
            folder, manifest = versions.current(root, verify=verify)
            return Index(root, folder, manifest, device=device)
        except (BadInput, FileNotFoundError):
            if versions.named(root)[0] == tried:
                raise
        return Index.load(path, device=device, verify=verify)  # a new version took over while we looked

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files and connections."""
        for side in self.searcher.sides.values():
            if side.engine is not None:
                side.engine.close()
                side.engine = None

    def __len__(self) -> int:
        return int(self.catalogue.alive.sum())

    # ---- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        words: str | None = None,
        *,
        image: Picture | None = None,
        top: int = 10,
        exact: bool = False,
        where: Where | None = None,
        candidates: int | None = None,
        find: str | None = None,
    ) -> Results:
        """The best `top` items for words (pictures, unless `find` says text) or for a picture (captions, likewise).

        `exact` scores everything; `where` narrows to a split, labels, names that begin so, or ids; `candidates` is how
        many items the true similarity looks at.
        """
        began = time.perf_counter()
        if (words is None) == (image is None):
            raise BadInput("search for words or for a picture, one of the two")
        given = TEXT if words is not None else IMAGE
        wanted = find or (IMAGE if given == TEXT else TEXT)
        _check(top, wanted, candidates)
        unknown: list[str] = []
        if words is not None:
            query, unknown = self.encoder.words(words)
        else:
            assert image is not None
            query = self.encoder.picture(image)
        read = time.perf_counter()
        passing = self._passing(where, wanted)
        places, scores, scored = self.searcher.top(
            query, given, wanted, top=top, candidates=candidates, passing=passing, exact=exact
        )
        hits = self._hits(places, scores, wanted, words)
        total = self._count(wanted) if passing is None else int(passing.sum())
        name = words if words is not None else image if isinstance(image, str) else "picture"
        spent, reading = (round(1000 * (until - began), 3) for until in (time.perf_counter(), read))
        return Results(str(name), hits, spent, scored, total, scored == total, unknown, reading)

    def _passing(self, where: Where | None, wanted: str) -> np.ndarray | None:
        keep = self.catalogue.passing(where)
        return keep if keep is None or wanted == IMAGE else keep[self.catalogue.picture]

    def _count(self, side: str) -> int:
        alive = self.catalogue.alive
        return int(alive.sum() if side == IMAGE else alive[self.catalogue.picture].sum())

    def _hits(self, places: np.ndarray, scores: np.ndarray, wanted: str, asked: str | None) -> list[Hit]:
        known = self.catalogue
        if wanted == IMAGE:
            pictures, captions = places, self._best_captions(places, asked)
        else:
            pictures, captions = known.picture[places], places
        out = []
        for rank_, (picture, caption, score) in enumerate(zip(pictures, captions, scores, strict=True), 1):
            text, row = (known.caption(caption), int(known.rows[caption])) if caption >= 0 else ("", -1)
            out.append(Hit(rank_, float(score), int(known.ids[picture]), known.name(picture), text, row))
        return out

    def _best_captions(self, pictures: np.ndarray, asked: str | None) -> np.ndarray:
        """A caption of each picture: the one that shares most words with the question, else the first; -1 for none."""
        words = set(asked.lower().split()) if asked else set()
        return np.array([self._best_caption(int(picture), words) for picture in pictures], dtype=np.int64)

    def _best_caption(self, picture: int, words: set[str]) -> int:
        own: list[int] = self.catalogue.captions_of(picture).tolist()
        if len(own) < 2 or not words:
            return own[0] if own else -1
        found = [set(self.catalogue.caption(k).lower().split()) for k in own]
        return own[int(np.argmax([len(words & one) / max(1, len(words | one)) for one in found]))]

    def neighbours(self, id: int, top: int = 10) -> list[Hit]:
        """Pictures that resemble one of the index, itself left out."""
        place = self.catalogue.place(id)
        query = self.searcher.sides[IMAGE].sets.take(np.array([place]))
        places, scores, _ = self.searcher.top(query, IMAGE, IMAGE, top=top + 1)
        others = np.flatnonzero(places != place)[:top]
        return self._hits(places[others], scores[others], IMAGE, None)

    def captions(self, id: int, top: int = 10) -> list[Hit]:
        """Captions of the whole index that fit one of its pictures best, its own among them."""
        query = self.searcher.sides[IMAGE].sets.take(np.array([self.catalogue.place(id)]))
        places, scores, _ = self.searcher.top(query, IMAGE, TEXT, top=top)
        return self._hits(places, scores, TEXT, None)

    # ---- looking -----------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> np.ndarray:
        """(N,) the ids of all pictures, in the order of `map`."""
        return np.asarray(self.catalogue.ids[self.catalogue.alive])

    @property
    def version(self) -> str:
        """The version that is open: `v0001` and so on."""
        return self.folder.name

    def item(self, id: int) -> dict[str, Any]:
        """What is known of a picture."""
        known, place = self.catalogue, self.catalogue.place(id)
        captions = [{"row": int(known.rows[k]), "caption": known.caption(k)} for k in known.captions_of(place).tolist()]
        return {
            "id": int(id),
            "name": known.name(place),
            "captions": captions,
            "labels": known.labels_of(place),
            "split": known.split_names[known.split[place]],
            "size": known.size[place].tolist(),
        }

    def thumbnail(self, id: int) -> bytes:
        """A picture as a small JPEG."""
        place = self.catalogue.place(id)
        if self.thumbs is None or not (found := self.thumbs[place]):
            raise BadInput(f"this index holds no thumbnail of picture {id}")
        return found

    def explain(self, id: int, words: str) -> dict[str, Any]:
        """Which region answered which word, how well the two fit, and which caption is nearest to each slot."""
        return explain.explain(self, self.catalogue.place(id), words)

    def describe(self) -> dict[str, Any]:
        """What the index is, how large, and what was measured when it was built."""
        sides, files = self.info["sides"], self.manifest["files"]
        engines = {name: one.engine.describe() for name, one in self.searcher.sides.items() if one.engine is not None}
        return {
            "items": len(self),
            "captions": self._count(TEXT),
            "vectors": {name: one["rows"] for name, one in engines.items()},
            "engine": self.info["engine"]["name"],
            "engines": engines,
            "method": self.info["method"],
            "coarse": self.info["coarse"],
            "candidates": {name: sides[name]["candidates"] for name in sides},
            "recall": {name: sides[name]["recall"] for name in sides},
            "measured": sides,
            "target": self.info["target"],
            "bytes": sum(entry["bytes"] for entry in files.values()),
            "version": self.version,
            "built": self.info["built"],
            "splits": self.catalogue.split_names,
            "labels": self.catalogue.label_names,
            "thumbnails": self.info["thumbnails"],
            "map": self.info["map"],
            "model": {"name": self.run.method, **{name: self.run.info.get(name) for name in CARD}},
        }

    # ---- changing ----------------------------------------------------------------------------------------------------

    def add(self, pairs: Pairs, *, split: str = "all") -> list[int]:
        """Index more pictures and captions; their ids come back. The index on the disk gets a new version."""
        made = updating.add(self, pairs, split)
        self._reopen()
        return made

    def remove(self, ids: list[int] | np.ndarray) -> None:
        """Take pictures and their captions out; when much was taken out, the index is packed anew."""
        updating.remove(self, [int(one) for one in ids])
        self._reopen()

    def _reopen(self) -> None:
        self.close()
        self._open(*versions.current(self.root, verify=False))


def _check(top: int, find: str, candidates: int | None) -> None:
    if not 1 <= top <= 10_000:
        raise BadInput(f"top={top}: from 1 to 10,000")
    if find not in SIDES:
        raise BadInput(f"find={find!r}: image or text")
    if candidates is not None and candidates < 1:
        raise BadInput(f"candidates={candidates}: at least 1")
