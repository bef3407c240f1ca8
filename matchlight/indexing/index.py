"""`Index`: build, load, search, add and remove. A folder that needs nothing but itself."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack

import numpy as np

from matchlight.core import IMAGE, TEXT, BadInput, Json
from matchlight.devices import rank
from matchlight.indexing import explain, updating, versions
from matchlight.indexing.build import Options, Settings, build
from matchlight.indexing.catalogue import Where
from matchlight.indexing.explain import Explanation
from matchlight.indexing.index_json import SideInfo
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.query_encoder import Picture
from matchlight.indexing.results import Hit, Results
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run

SIDES = (IMAGE, TEXT)
CARD = ("preset", "arguments", "view", "data", "sizes", "seed", "version")  # of the recipe, shown by `describe`


class CaptionInfo(TypedDict):
    """A caption and its number."""

    row: int
    caption: str


class ItemInfo(TypedDict):
    """What is known of a picture."""

    id: int
    name: str
    captions: list[CaptionInfo]
    labels: list[str]
    split: str
    size: list[int]  # width, height


class Description(TypedDict):
    """What an index is, how large, and what was measured when it was built."""

    items: int
    captions: int
    vectors: dict[str, int]
    engine: str
    engines: dict[str, dict[str, Json]]
    method: str
    coarse: str
    candidates: dict[str, int]
    recall: dict[str, float | None]
    measured: dict[str, SideInfo]
    target: float
    bytes: int
    version: str
    built: str
    splits: list[str]
    labels: list[str]
    thumbnails: bool
    map: bool
    model: dict[str, Json]


class Index(OpenIndex):
    """An index in use; `Index.build` makes one, `Index.load` opens one."""

    @staticmethod
    def build(run: Run | None, pairs: Pairs, out: str | Path | None = None, **settings: Unpack[Settings]) -> Index:
        """Index a data set with a trained run; `out` may hold an index, which serves until the new one is whole.

        The settings are those of `Options`: engine, address, split, target, candidates, thumbnails, map, seed, coarse,
        vectors. With vectors that the run made already nothing is encoded; with no run they cannot be asked in words.
        """
        options = Options(**settings)
        root = build(run, pairs, out, options)
        device = "cpu" if run is None else run.device.type
        index = Index(root, device=device, address=options.address)
        index.open_version(*versions.current(root, verify=False), engines=rank() == 0)
        return index

    @staticmethod
    def load(path: str | Path, *, device: str = "auto", verify: bool = True, address: str | None = None) -> Index:
        """Open an index whose checksums hold; `verify=False` trusts sizes alone.

        `address` says where the database of its engine is; one that only the index names is not followed.
        """
        root = Path(path)
        tried, _ = versions.named(root)
        try:
            index = Index(root, device=device, address=address)
            index.open_version(*versions.current(root, verify=verify))
            return index
        except (BadInput, FileNotFoundError):
            if versions.named(root)[0] == tried:
                raise
        return Index.load(path, device=device, verify=verify, address=address)  # a new version took over meanwhile

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        """The best `top` items for words (pictures, unless `find` says text) or a picture (captions, if there are any).

        `exact` scores everything; `where` narrows to a split, labels, names that begin so, or ids; `candidates` is how
        many items the true similarity looks at.
        """
        began = time.perf_counter()
        if (words is None) == (image is None):
            raise BadInput("search for words or for a picture, one of the two")
        given = TEXT if words is not None else IMAGE
        wanted = find or (TEXT if given == IMAGE and TEXT in self.searcher.sides else IMAGE)
        _check(top, wanted, candidates)
        if wanted not in self.searcher.sides:
            raise BadInput(f"{self.root}: holds pictures without captions; find=image (--find image) finds pictures")
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

    def _hits(self, places: np.ndarray, scores: np.ndarray, wanted: str, query: str | None) -> list[Hit]:
        known = self.catalogue
        if wanted == IMAGE:
            pictures, captions = places, self._best_captions(places, query)
        else:
            pictures, captions = known.picture[places], places
        out = []
        for rank_, (picture, caption, score) in enumerate(zip(pictures, captions, scores, strict=True), 1):
            text, row = (known.caption(caption), int(known.rows[caption])) if caption >= 0 else ("", -1)
            out.append(Hit(rank_, float(score), int(known.ids[picture]), known.name(picture), text, row))
        return out

    def _best_captions(self, pictures: np.ndarray, query: str | None) -> np.ndarray:
        """A caption of each picture: the one that shares most words with the question, else the first; -1 for none."""
        words = set(query.lower().split()) if query else set()
        return np.array([self._best_caption(int(picture), words) for picture in pictures], dtype=np.int64)

    def _best_caption(self, picture: int, words: set[str]) -> int:
        own: list[int] = self.catalogue.captions_of(picture).tolist()
        if len(own) < 2 or not words:
            return own[0] if own else -1
        theirs = [set(self.catalogue.caption(k).lower().split()) for k in own]
        return own[int(np.argmax([len(words & one) / max(1, len(words | one)) for one in theirs]))]

    def neighbours(self, id: int, top: int = 10) -> list[Hit]:
        """Pictures that resemble one of the index, itself left out."""
        place = self.catalogue.place(id)
        query = self.searcher.sides[IMAGE].sets.take(np.array([place]))
        places, scores, _ = self.searcher.top(query, IMAGE, IMAGE, top=top + 1)
        others = np.flatnonzero(places != place)[:top]
        return self._hits(places[others], scores[others], IMAGE, None)

    def captions(self, id: int, top: int = 10) -> list[Hit]:
        """Captions of the whole index that fit one of its pictures best, its own among them; none where it has none."""
        if TEXT not in self.searcher.sides:
            return []
        query = self.searcher.sides[IMAGE].sets.take(np.array([self.catalogue.place(id)]))
        places, scores, _ = self.searcher.top(query, IMAGE, TEXT, top=top)
        return self._hits(places, scores, TEXT, None)

    # ---- looking -----------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> np.ndarray:
        """(N,) the ids of all pictures, in the order of `map`."""
        return np.asarray(self.catalogue.ids[self.catalogue.alive])

    def matching(self, where: Where | None) -> np.ndarray:
        """(n,) the ids of the pictures that pass a filter, in the order of `map`."""
        keep = self.catalogue.passing(where)
        return np.asarray(self.catalogue.ids[self.catalogue.alive if keep is None else keep])

    def item(self, id: int) -> ItemInfo:
        """What is known of a picture."""
        known, place = self.catalogue, self.catalogue.place(id)
        own = known.captions_of(place).tolist()
        captions: list[CaptionInfo] = [{"row": int(known.rows[k]), "caption": known.caption(k)} for k in own]
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
        if self.thumbs is None or not (small := self.thumbs[place]):
            raise BadInput(f"this index holds no thumbnail of picture {id}")
        return small

    def explain(self, id: int, words: str) -> Explanation:
        """Which region answered which word, how well the two fit, and which caption is nearest to each slot."""
        return explain.explain(self, self.catalogue.place(id), words)

    def describe(self) -> Description:
        """What the index is, how large, and what was measured when it was built."""
        sides = self.info["sides"]
        there = {name: side.engine for name, side in self.searcher.sides.items() if side.engine is not None}
        rows, kind = {name: engine.count() for name, engine in there.items()}, self.info["engine"]["name"]
        engines = {name: {"engine": kind, **engine.describe(), "rows": rows[name]} for name, engine in there.items()}
        return {
            "items": len(self),
            "captions": self._count(TEXT),
            "vectors": rows,
            "engine": kind,
            "engines": engines,
            "method": self.info["method"],
            "coarse": self.info["coarse"],
            "candidates": {name: sides[name]["candidates"] for name in sides},
            "recall": {name: sides[name]["recall"] for name in sides},
            "measured": sides,
            "target": self.info["target"],
            "bytes": sum(entry["bytes"] for entry in self.manifest["files"].values()),
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
        self.open_version(*versions.current(self.root, verify=False))


def _check(top: int, find: str, candidates: int | None) -> None:
    if not 1 <= top <= 10_000:
        raise BadInput(f"top={top}: from 1 to 10,000")
    if find not in SIDES:
        raise BadInput(f"find={find!r}: image or text")
    if candidates is not None and candidates < 1:
        raise BadInput(f"candidates={candidates}: at least 1")
