"""What is known of the items beside their vectors: names, captions, who belongs to whom, splits, labels, sizes, dates.

Pictures and captions have numbers that never change: a picture's `id` and a caption's `row`, which at
the first build are their places in the data set, and count on when more data is added. Both ascend with the place in
the index, so that a number is looked up by bisection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.camera_notes import UNKNOWN, CameraNotes
from matchlight.data.value_trees import load_arrays, save_arrays
from matchlight.indexing.records import Records, write_records
from matchlight.pairs import IMAGE, TEXT, Pairs

NOTHING = np.zeros(0, dtype=np.int64)


@dataclass
class Catalogue:
    """The table of pictures (N) and captions (C) of an index."""

    ids: np.ndarray  # (N,) ascending
    rows: np.ndarray  # (C,) ascending
    picture: np.ndarray  # (C,) place of each caption's picture
    split: np.ndarray  # (N,) place in `split_names`
    label: np.ndarray  # (N, L) bool
    size: np.ndarray  # (N, 2) width and height; 0 where there is no picture
    alive: np.ndarray  # (N,) False: removed
    split_names: list[str]
    label_names: list[str]
    names: Sequence[bytes]
    captions: Sequence[bytes]
    taken: np.ndarray = field(default_factory=lambda: NOTHING)  # (N,) seconds on the camera's clock; UNKNOWN
    camera: np.ndarray = field(default_factory=lambda: NOTHING)  # (N,) place in `camera_names`
    camera_names: list[str] = field(default_factory=lambda: [""])
    seen: np.ndarray = field(default_factory=lambda: NOTHING)  # (C,) bool: the model learnt from this pair

    def __post_init__(self) -> None:
        if len(self.taken) != len(self.ids):  # an index of old
            self.taken = np.full(len(self.ids), UNKNOWN, dtype=np.int64)
            self.camera = np.zeros(len(self.ids), dtype=np.int64)
        if len(self.seen) != len(self.rows):
            self.seen = np.zeros(len(self.rows), dtype=bool)
        order = np.argsort(self.picture, kind="stable")
        self._captions = order
        self._first = np.searchsorted(self.picture[order], np.arange(len(self.ids) + 1))

    @staticmethod
    def of(
        pairs: Pairs, pictures: np.ndarray, rows: np.ndarray, size: np.ndarray, *, first: tuple[int, int]
    ) -> Catalogue:
        """Some pictures and rows of a data set; `first` is what is added to their places: (to ids, to rows)."""
        place = np.full(len(pairs.names), -1, dtype=np.int64)
        place[pictures] = np.arange(len(pictures))
        names, split = np.unique(pairs.splits[pictures].astype(str), return_inverse=True)
        labels = np.zeros((len(pictures), 0), dtype=bool) if pairs.labels is None else pairs.labels.image[pictures]
        return Catalogue(
            ids=pictures.astype(np.int64) + first[0],
            rows=rows.astype(np.int64) + first[1],
            picture=place[pairs.picture[rows]],
            split=split.ravel().astype(np.int64),
            label=labels,
            size=size.astype(np.int64),
            alive=np.ones(len(pictures), dtype=bool),
            split_names=names.tolist(),
            label_names=[] if pairs.labels is None else list(pairs.labels.names),
            names=[str(pairs.names[i]).encode("utf-8", "replace") for i in pictures],
            captions=[pairs.captions[i].encode("utf-8", "replace") for i in rows],
        )

    # ---- looking up --------------------------------------------------------------------------------------------------

    def place(self, number: int) -> int:
        """The place of the picture with this id; an id that is not there (any more) is an error."""
        spot = int(np.searchsorted(self.ids, number))
        if spot >= len(self.ids) or self.ids[spot] != number or not self.alive[spot]:
            raise BadInput(f"no picture {number} in this index of {int(self.alive.sum())}")
        return spot

    def name(self, place: int) -> str:
        """A picture's name."""
        return self.names[place].decode("utf-8", "replace")

    def caption(self, place: int) -> str:
        """A caption by its place."""
        return self.captions[place].decode("utf-8", "replace")

    def captions_of(self, place: int) -> np.ndarray:
        """Places of a picture's captions, in file order."""
        return self._captions[self._first[place] : self._first[place + 1]]

    def labels_of(self, place: int) -> list[str]:
        """A picture's labels by name."""
        return [self.label_names[k] for k in np.flatnonzero(self.label[place])]

    def camera_of(self, place: int) -> str:
        """The camera that took a picture; "" where nobody knows."""
        return self.camera_names[int(self.camera[place])]

    def alive_sides(self) -> dict[str, np.ndarray | None]:
        """For each side, which of its items were not removed; None: all are there."""
        if self.alive.all():
            return {IMAGE: None, TEXT: None}
        return {IMAGE: self.alive, TEXT: self.alive[self.picture]}

    def with_notes(self, notes: Sequence[CameraNotes]) -> Catalogue:
        """The same with what cameras wrote of each picture."""
        names, camera = np.unique([note.camera for note in notes], return_inverse=True)
        taken = np.array([note.taken for note in notes], dtype=np.int64)
        return replace(self, taken=taken, camera=camera.ravel().astype(np.int64), camera_names=names.tolist())

    # ---- changing ----------------------------------------------------------------------------------------------------

    def with_more(self, more: Catalogue) -> Catalogue:
        """Both, `more` behind."""
        splits, labels, cameras = (
            [*own, *(name for name in new if name not in own)]
            for own, new in (
                (self.split_names, more.split_names),
                (self.label_names, more.label_names),
                (self.camera_names, more.camera_names),
            )
        )
        moved = np.array([splits.index(name) for name in more.split_names], dtype=np.int64)
        renamed = np.array([cameras.index(name) for name in more.camera_names], dtype=np.int64)
        arrays = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])
            for name in ("ids", "rows", "size", "alive", "taken", "seen")
        }
        return Catalogue(
            picture=np.concatenate([self.picture, more.picture + len(self.ids)]),
            split=np.concatenate([self.split, moved[more.split]]),
            label=np.concatenate([part.labels_as(labels) for part in (self, more)]),
            camera=np.concatenate([self.camera, renamed[more.camera]]),
            split_names=splits,
            label_names=labels,
            camera_names=cameras,
            names=[*self.names, *more.names],
            captions=[*self.captions, *more.captions],
            **arrays,
        )

    def labels_as(self, names: list[str]) -> np.ndarray:
        """(N, len(names)) labels under these columns."""
        out = np.zeros((len(self.ids), len(names)), dtype=bool)
        out[:, [names.index(name) for name in self.label_names]] = self.label
        return out

    def without(self, places: np.ndarray) -> Catalogue:
        """The same with these pictures marked as removed."""
        alive = self.alive.copy()
        alive[places] = False
        return replace(self, alive=alive)

    def packed(self) -> tuple[Catalogue, np.ndarray, np.ndarray]:
        """Only what is still there, and the old places of its pictures and captions."""
        pictures = np.flatnonzero(self.alive)
        texts = np.flatnonzero(self.alive[self.picture])
        place = np.cumsum(self.alive) - 1
        of_pictures = ("ids", "split", "label", "size", "alive", "taken", "camera")
        arrays = {name: getattr(self, name)[pictures] for name in of_pictures}
        made = replace(
            self,
            rows=self.rows[texts],
            seen=self.seen[texts],
            picture=place[self.picture[texts]],
            names=[self.names[i] for i in pictures.tolist()],
            captions=[self.captions[i] for i in texts.tolist()],
            **arrays,
        )
        return made, pictures, texts

    # ---- files -------------------------------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write it."""
        write_records(folder / "names", self.names)
        write_records(folder / "captions", self.captions)
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("names", "captions")}
        save_arrays(folder / "items.safetensors", plain)

    @staticmethod
    def load(folder: Path) -> Catalogue:
        """Read it; names and captions stay on the disk."""
        plain = load_arrays(folder / "items.safetensors")
        return Catalogue(names=Records(folder / "names"), captions=Records(folder / "captions"), **plain)
