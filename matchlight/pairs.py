"""Pairs: pictures, captions, who belongs to whom, labels and splits. Every reader makes one; everything else reads it.

A *row* is one (picture, caption) pair in file order. Pictures are a table of N, captions a table of C rows, and
`picture[row]` says which picture a row belongs to, so any number of captions a picture is the same thing.
A folder of pictures alone is a data set of no rows: it can be indexed, searched and embedded.
A label set without words (Wikipedia features) has one text a row too: its `captions` are empty strings and its
`text_features` hold the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

import numpy as np

from matchlight import plugins
from matchlight.console import BadInput

if TYPE_CHECKING:
    from PIL import Image
    from scipy.sparse import csr_matrix

IMAGE, TEXT = "image", "text"


class ReadOptions(TypedDict, total=False):
    """Options of `Pairs.read` beside the path."""

    format: str | None  # read it as this format, whatever it looks like
    seed: int  # of the splits, where the data has none
    max_pixels: int  # a larger picture is refused
    split: str | None  # all of it is of this split, whatever it says itself
    validation: int | None  # rows of test that become val, for label sets without one
    without: tuple[str, ...]  # files of a folder of shards that are left out


class PictureSource(Protocol):
    """Pictures as pixels: a folder, a tar, bytes in a table. Names are places inside the data root."""

    def __len__(self) -> int: ...
    def open(self, index: int) -> Image.Image: ...  # RGB; raises BadPicture
    def read(self, index: int) -> bytes: ...  # the file as it is; raises BadPicture
    def stamp(self, index: int) -> str: ...  # changes when the picture's content does
    def take(self, index: np.ndarray) -> PictureSource: ...


class FeatureSource(Protocol):
    """Pictures as precomputed features; rows are read when asked for."""

    shape: tuple[int, ...]  # (N, R, D) or (N, D)

    def __len__(self) -> int: ...
    def gather(self, index: np.ndarray) -> np.ndarray: ...  # float array, rows in this order
    def stamp(self) -> str: ...
    def take(self, index: np.ndarray) -> FeatureSource: ...


class BadPicture(BadInput):
    """One picture is missing, unreadable, of a kind not allowed or too large: skip it, count it, go on."""

    def __init__(self, message: str, kind: str = "unreadable"):
        super().__init__(message)
        self.kind = kind  # "missing" | "unreadable" | "outside" | "too large": what `data info` counts it as


@dataclass(frozen=True)
class Problem:
    """Something found while reading: what, how often, and a few examples to look at."""

    kind: str  # "missing" | "unreadable" | "empty" | "duplicate" | ...
    count: int
    examples: list[str]


@dataclass(frozen=True)
class Labels:
    """Classes as multi-hot rows; under label noise the two sides of a pair may disagree."""

    names: list[str]
    image: np.ndarray  # (N, K) bool
    text: np.ndarray  # (C, K) bool

    def take(self, pictures: np.ndarray, rows: np.ndarray) -> Labels:
        """The labels of some pictures and rows."""
        return Labels(self.names, self.image[pictures], self.text[rows])

    @property
    def single(self) -> bool:
        """True if every item has exactly one class."""
        return bool((self.image.sum(1) == 1).all() and (self.text.sum(1) == 1).all())


@dataclass(frozen=True, eq=False)
class Pairs:
    """A data set: `Pairs.read(path)` opens anything `matchlight data info` understands."""

    names: Sequence[str]  # (N,) what each picture is called
    captions: Sequence[str]  # (C,)
    picture: np.ndarray  # (C,) int64: the picture of each row, in file order
    splits: np.ndarray  # (N,) str: "train" | "val" | "test" | "testall"; pictures alone are "all"
    pictures: PictureSource | None = None
    features: FeatureSource | None = None
    text_features: np.ndarray | None = None  # (C, D)
    tokens: Sequence[Sequence[int]] | None = None  # (C,) word ids that came with the data
    boxes: np.ndarray | None = None  # (N, R, 4 or 5)
    objects: np.ndarray | None = None  # (N, R) what each box shows, a class number; below 0 where nobody knows
    labels: Labels | None = None
    relevance: csr_matrix | None = None  # (C, N) True where a caption fits a picture; None: only its own
    root: Path = field(default_factory=Path)
    format: str = "memory"
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.captions) != len(self.picture):
            raise BadInput(f"{self.root}: {len(self.captions)} captions but {len(self.picture)} pairs")
        if len(self.splits) != len(self.names):
            raise BadInput(f"{self.root}: {len(self.splits)} splits for {len(self.names)} pictures")
        if len(self.picture) and not 0 <= self.picture.min() <= self.picture.max() < len(self.names):
            raise BadInput(f"{self.root}: a row points at a picture that is not among the {len(self.names)}")
        self._check_lengths()

    def _check_lengths(self) -> None:
        """Whatever comes with the pictures or the rows has one entry for each of them."""
        theirs = {"pictures": self.pictures, "features": self.features, "boxes": self.boxes, "objects": self.objects}
        for what, mine in theirs.items():
            if mine is not None and len(mine) != len(self.names):
                raise BadInput(f"{self.root}: {len(mine)} {what} for {len(self.names)} pictures")
        for what, own in (("text_features", self.text_features), ("tokens", self.tokens)):
            if own is not None and len(own) != len(self.picture):
                raise BadInput(f"{self.root}: {len(own)} {what} for {len(self.picture)} pairs")
        rows, pictures = len(self.picture), len(self.names)
        if self.relevance is not None and self.relevance.shape != (rows, pictures):
            raise BadInput(
                f"{self.root}: relevance is {self.relevance.shape}; it must be captions x pictures {rows, pictures}"
            )
        if self.labels is not None and (len(self.labels.image), len(self.labels.text)) != (pictures, rows):
            raise BadInput(
                f"{self.root}: labels of {len(self.labels.image)} pictures and {len(self.labels.text)} texts"
            )

    def __len__(self) -> int:
        return len(self.picture)

    def need_captions(self, what: str) -> None:
        """One clear line where there are pictures alone and `what` (a command, a method) learns from captions."""
        if not len(self):
            fix = "put a.txt beside a.jpg, or a captions.csv with the columns image and caption"
            raise BadInput(f"{self.root}: {len(self.names):,} pictures without captions; {what} needs some: {fix}")

    @staticmethod
    def read(path: str | Path, **options: Unpack[ReadOptions]) -> Pairs:
        """Open a folder or file of any known format, ours or a plug-in's."""
        read = plugins.resolve("matchlight.data.formats:read")
        assert callable(read)
        return read(path, **options)

    @staticmethod
    def of(
        images: Sequence[Image.Image | np.ndarray | str | Path],
        captions: Sequence[str | Sequence[str]],
        *,
        labels: Sequence[str] | None = None,
        split: str = "train",
    ) -> Pairs:
        """Lists in memory: pictures of PIL, arrays or paths, and a caption or a list of captions for each."""
        made = plugins.resolve("matchlight.data.formats.memory_pictures:pairs_of")
        assert callable(made)
        return made(images, captions, labels=labels, split=split)

    @property
    def split_names(self) -> list[str]:
        """The splits there are, in the usual order."""
        usual = ["train", "val", "test", "testall"]
        there = set(np.unique(self.splits).tolist())
        return [name for name in usual if name in there] + sorted(there - set(usual))

    def rows(self, split: str | None = None) -> np.ndarray:
        """Rows of one split (`None` or "all": every row), in file order."""
        if split in (None, "all"):
            return np.arange(len(self))
        self._check(split)
        return np.flatnonzero(self.splits[self.picture] == split)

    def pictures_of(self, split: str | None = None) -> np.ndarray:
        """Places of one split's pictures, in file order."""
        if split in (None, "all"):
            return np.arange(len(self.names))
        self._check(split)
        return np.flatnonzero(self.splits == split)

    def _check(self, split: str | None) -> None:
        if split not in self.split_names:
            raise BadInput(f"{self.root}: no split {split!r}; it has {', '.join(self.split_names) or 'none'}")

    def subset(self, split: str | None = None) -> Pairs:
        """One split as a data set of its own (places renumbered; `notes["rows"]` keeps the rows of the whole)."""
        return self.select(self.pictures_of(split), self.rows(split))

    def select(self, pictures: np.ndarray, rows: np.ndarray) -> Pairs:
        """These pictures and rows as a data set; every row's picture must be among them."""
        place = np.full(len(self.names), -1, dtype=np.int64)
        place[pictures] = np.arange(len(pictures))
        picture = place[self.picture[rows]]
        if (picture < 0).any():
            raise BadInput(f"{self.root}: row {int(rows[picture < 0][0])} belongs to a picture that was left out")
        return replace(
            self,
            names=[self.names[i] for i in pictures],
            captions=[self.captions[i] for i in rows],
            picture=picture,
            splits=self.splits[pictures],
            pictures=None if self.pictures is None else self.pictures.take(pictures),
            features=None if self.features is None else self.features.take(pictures),
            text_features=None if self.text_features is None else self.text_features[rows],
            tokens=None if self.tokens is None else [self.tokens[i] for i in rows],
            boxes=None if self.boxes is None else self.boxes[pictures],
            objects=None if self.objects is None else self.objects[pictures],
            labels=None if self.labels is None else self.labels.take(pictures, rows),
            relevance=None if self.relevance is None else self.relevance[rows][:, pictures].tocsr(),
            notes={**self.notes, "rows": self._whole("rows", rows), "pictures": self._whole("pictures", pictures)},
        )

    def _whole(self, what: str, places: np.ndarray) -> np.ndarray:
        """Places in the table that was read, however often it was narrowed since."""
        return self.notes[what][places] if what in self.notes else np.asarray(places)

    def with_captions_moved(self, rows: np.ndarray, source: np.ndarray) -> Pairs:
        """Row `rows[k]` takes the caption (words, vectors, ids) of row `source[k]`; pictures stay where they are."""
        order = np.arange(len(self))
        order[rows] = source
        texts = None if self.labels is None else replace(self.labels, text=self.labels.text[order])
        return replace(
            self,
            captions=[self.captions[i] for i in order.tolist()],
            text_features=None if self.text_features is None else self.text_features[order],
            tokens=None if self.tokens is None else [self.tokens[i] for i in order.tolist()],
            labels=texts,
            relevance=None if self.relevance is None else self.relevance[order],
        )
