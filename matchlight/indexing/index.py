"""`Index`: build, load, search, add and remove. A folder that needs nothing but itself."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from matchlight.console import BadInput
from matchlight.data.camera_notes import as_text
from matchlight.files import Json
from matchlight.indexing import asking, explain, processes, updating, versions
from matchlight.indexing.asking import Asked, Found, SearchSettings, as_hits
from matchlight.indexing.build import Options, Settings, build
from matchlight.indexing.explain import Explanation
from matchlight.indexing.index_json import SideInfo
from matchlight.indexing.item_filters import Where, passing
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.query_reader import Picture
from matchlight.indexing.questions import Question
from matchlight.indexing.results import Hit, Results
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.pairs import IMAGE, TEXT, Pairs

if TYPE_CHECKING:
    from matchlight.runs.folder import Run

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
    taken: str | None  # when, on the camera's clock
    camera: str | None


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
    chances: dict[str, Json]  # where they come from, and how good they were measured to be
    splits: list[str]
    labels: list[str]
    thumbnails: bool
    map: bool
    model: dict[str, Json]


class Index(OpenIndex):
    """An index in use; `Index.build` makes one, `Index.load` opens one."""

    @staticmethod
    def build(
        run: Run | OnnxTowers | None, pairs: Pairs, out: str | Path | None = None, **settings: Unpack[Settings]
    ) -> Index:
        """Index a data set with a trained run; `out` may hold an index, which serves until the new one is whole.

        A dual encoder that was exported (`OnnxTowers.open("model.onnx")`) takes the place of a run, and needs no torch.

        The settings are those of `Options`: engine, address, split, target, candidates, thumbnails, map, seed, coarse,
        vectors, onnx_words. With vectors that the run made already nothing is encoded; with no run they cannot be asked
        in words.
        """
        options = Options(**settings)
        root = build(run, pairs, out, options)
        device = "cpu" if run is None or isinstance(run, OnnxTowers) else run.device.type
        index = Index(root, device=device, address=options.address)
        index.open_version(*versions.current(root, verify=False), engines=processes.rank() == 0)
        return index

    @staticmethod
    def load(path: str | Path, *, device: str = "auto", verify: bool = True, address: str | None = None) -> Index:
        """Open an index whose checksums hold; `verify=False` trusts sizes alone.

        `address` says where the database of its engine is; one that only the index names is not followed.
        """
        index = Index(Path(path), device=device, address=address)
        index.open_newest(verify=verify)
        return index

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
        like: int | None = None,
        **settings: Unpack[SearchSettings],
    ) -> Results:
        """The best items for words (pictures, unless `find` says text), a picture (captions, if there are any) or both.

        `like` is the id of a picture of the index, in place of `image`. Words may have signs and quotes
        (`questions.py`). The settings are those of `Asked`: top, exact, where, candidates, find, fold.
        """
        began = time.perf_counter()
        asked = Asked(words, image, like, **settings)
        asked.check()
        wanted = asking.wanted_side(self, asked)
        question = None if words is None else Question.of(words)
        parts, unknown = asking.read_parts(self, asked, question)
        read = time.perf_counter()
        found = asking.find(self, asked, parts, wanted, asking.may_be_found(self, asked, question, wanted))
        found, alike = asking.fold(self, asked, found, wanted)
        hits = as_hits(self, found.places, found.scores, wanted, None if question is None else question.words)
        hits = [replace(hit, alike=copies) for hit, copies in zip(hits, alike, strict=True)]
        name = words if words is not None else image if isinstance(image, str) else "picture"
        spent, reading = (round(1000 * (until - began), 3) for until in (time.perf_counter(), read))
        exact = found.scored == found.total
        results = Results(str(name), hits, spent, found.scored, found.total, exact, unknown, reading)
        return self._with_chances(results, found, wanted)

    def _with_chances(self, results: Results, found: Found, wanted: str) -> Results:
        """How likely each hit is right, where that is known."""
        if found.hits is None:
            return results
        curve = self.chances.curves[wanted]
        likely = curve.of(found.hits).round(4).tolist()
        hits = [replace(hit, chance=one) for hit, one in zip(results.hits, likely, strict=True)]
        nothing = curve.nothing_fits(found.hits)
        return replace(results, hits=hits, nothing_fits=nothing, chances_from=self.chances.source)

    def _count(self, side: str) -> int:
        alive = self.catalogue.alive
        return int(alive.sum() if side == IMAGE else alive[self.catalogue.picture].sum())

    def neighbours(self, id: int, top: int = 10) -> list[Hit]:
        """Pictures that resemble one of the index, itself left out."""
        place = self.catalogue.place(id)
        query = self.searcher.sides[IMAGE].sets.take(np.array([place]))
        places, scores, _ = self.searcher.top(query, IMAGE, IMAGE, top=top + 1)
        others = np.flatnonzero(places != place)[:top]
        return as_hits(self, places[others], scores[others], IMAGE)

    def captions(self, id: int, top: int = 10) -> list[Hit]:
        """Captions of the whole index that fit one of its pictures best, its own among them; none where it has none."""
        if TEXT not in self.searcher.sides:
            return []
        query = self.searcher.sides[IMAGE].sets.take(np.array([self.catalogue.place(id)]))
        places, scores, _ = self.searcher.top(query, IMAGE, TEXT, top=top)
        return as_hits(self, places, scores, TEXT)

    # ---- looking -----------------------------------------------------------------------------------------------------

    @property
    def ids(self) -> np.ndarray:
        """(N,) the ids of all pictures, in the order of `map`."""
        return np.asarray(self.catalogue.ids[self.catalogue.alive])

    def matching(self, where: Where | None) -> np.ndarray:
        """(n,) the ids of the pictures that pass a filter, in the order of `map`."""
        keep = passing(self.catalogue, where)
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
            "taken": as_text(int(known.taken[place])),
            "camera": known.camera_of(place) or None,
        }

    def thumbnail(self, id: int) -> bytes:
        """A picture as a small JPEG."""
        place = self.catalogue.place(id)
        if self.thumbs is None or not (small := self.thumbs[place]):
            raise BadInput(f"this index holds no thumbnail of picture {id}")
        return small

    def explain(self, id: int, words: str) -> Explanation:
        """Which region answered which word, how well the two fit, and which caption is nearest to each slot."""
        return explain.explain(self, self.catalogue.place(id), Question.of(words).words or words)

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
            "chances": self.chances.described(),
            "splits": self.catalogue.split_names,
            "labels": self.catalogue.label_names,
            "thumbnails": self.info["thumbnails"],
            "map": self.info["map"],
            "model": {"name": self.model.method, **{name: self.model.info.get(name) for name in CARD}},
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
        self.open_newest(verify=False)
