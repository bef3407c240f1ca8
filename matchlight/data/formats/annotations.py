"""Lines of an annotation file -> Pairs: what the readers of captions (JSON lines, tables, shards, Karpathy) share.

A row is one (picture, caption) pair in file order; a picture named by several lines is one picture. A caption without
a visible character is no pair: it is skipped and counted, and so is a picture left without captions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from matchlight.console import BadInput, say
from matchlight.data.formats.base import Options
from matchlight.data.formats.safety import safe_name
from matchlight.data.formats.splits import default_splits
from matchlight.pairs import Labels, Pairs, PictureSource, Problem

SPLITS = {
    **{"dev": "val", "valid": "val", "validation": "val"},
    **{"restval": "train", "training": "train", "testing": "test"},
}
SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
EXAMPLES = 5
NONE: tuple[str, ...] = ()


def split_name(split: object, where: str) -> str:
    """The split as we call it: dev, valid and validation are val, restval is train."""
    name = str(split).strip()
    if not SPLIT_NAME.fullmatch(name):
        raise BadInput(f"{where}: {name[:40]!r} is no split name; train, val and test are")
    return SPLITS.get(name.lower(), name if name.lower() not in ("train", "val", "test", "testall") else name.lower())


def split_of(file: Path) -> str | None:
    """The split a file's name begins with (train-00000.parquet, val_3.tar), if any."""
    match = re.match(r"(train|testall|test|validation|valid|val|dev)(?![a-z])", file.stem)
    return split_name(match[1], str(file)) if match else None


def split_folders(names: Sequence[str]) -> np.ndarray | None:
    """(N,) splits of pictures that all lie in folders called train, val, test and the like; None where they do not."""
    tops = [key_of(name).partition("/") for name in names]
    known = {top: SPLITS.get(top.lower(), top.lower()) for top, slash, _ in tops if slash}
    if any(not slash for _, slash, _ in tops) or not set(known.values()) <= {"train", "val", "test"}:
        return None
    return np.array([known[top] for top, _, _ in tops])


def tidy(text: str) -> str:
    """Text that can be written again: half a surrogate pair (broken JSON escapes) becomes a question mark."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")


def problem(kind: str, examples: Sequence[str]) -> list[Problem]:
    """One problem with its first few examples, or none."""
    return [Problem(kind, len(examples), list(examples[:EXAMPLES]))] if examples else []


MOST_LABELLED = 4 << 30  # pictures and captions, times labels: a byte each
MOST_OF_ONE, SHARED = 1 << 30, 10  # the same for labels that fewer pictures and captions share, on average


@dataclass
class Annotations:
    """Collects the lines of an annotation file; `pairs` makes the data set of them."""

    file: Path
    where: int | str = 0  # the line at hand
    known: dict[str, str] = field(default_factory=dict)  # splits as the file calls them -> as we do
    names: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    picture: list[int] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    image_labels: dict[int, set[str]] = field(default_factory=dict)
    text_labels: list[Sequence[str]] = field(default_factory=list)
    place: dict[str, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)  # which captions of the file were kept
    seen: int = 0  # captions of the file, empty ones included
    labelled: bool = False
    empty: list[str] = field(default_factory=list)
    blank: set[int] = field(default_factory=set)  # pictures with an empty caption
    torn: list[str] = field(default_factory=list)

    @property
    def at(self) -> str:
        """The line at hand, in words; spelled only when something is wrong with it."""
        return f"{self.file} line {self.where}" if isinstance(self.where, int) else self.where

    def add(
        self,
        image: object,
        captions: object,
        *,
        split: object = None,
        labels: object = None,
        caption_labels: object = None,
        where: int | str = 0,
        key: str | None = None,
    ) -> int:
        """One line; returns the place of its picture. `key` tells pictures apart where their name does not."""
        self.where = where
        if not isinstance(image, str) or not image:
            raise BadInput(f'{self.at}: no picture; "image" must be a file name')
        texts = [captions] if isinstance(captions, str) else captions
        if not isinstance(texts, list | tuple):
            raise BadInput(f'{self.at}: no captions; "captions" must be a list of texts')
        number = self._picture(tidy(image), key, self._split(split))
        own = NONE if labels is None else self._words(labels)
        theirs = [own] * len(texts) if caption_labels is None else self._each(caption_labels, len(texts))
        if own or caption_labels is not None:
            self.labelled |= bool(own) or any(map(bool, theirs))
            self.image_labels.setdefault(number, set()).update(own)
        for text, marks in zip(texts, theirs, strict=True):
            self._caption(text, number, marks)
        return number

    def _split(self, split: object) -> str | None:
        if split is None or split == "":
            return None
        if not isinstance(split, str) or split not in self.known:
            self.known[str(split)] = split_name(split, self.at)
        return self.known[str(split)]

    def _picture(self, name: str, key: str | None, split: str | None) -> int:
        key = key or key_of(name)
        number = self.place.get(key)
        if number is None:
            number = self.place[key] = len(self.names)
            self.names.append(name)
            self.splits.append(split)
        elif split is not None and self.splits[number] != split:
            if self.splits[number] is None:
                self.splits[number] = split
            else:
                self.torn.append(f"{self.at}: {name} is {self.splits[number]} already")
        return number

    def _caption(self, text: object, number: int, labels: Sequence[str]) -> None:
        if text is not None and not isinstance(text, str):
            raise BadInput(f"{self.at}: a caption must be a text, not {type(text).__name__}")
        self.seen += 1
        if not text or text.isspace():
            self.empty.append(f"{self.at}: {self.names[number]}")
            self.blank.add(number)
            return
        self.captions.append(tidy(text))
        self.picture.append(number)
        self.text_labels.append(labels)
        self.rows.append(self.seen - 1)

    def _words(self, labels: object) -> Sequence[str]:
        if isinstance(labels, str | int):
            labels = [labels]
        if not isinstance(labels, list | tuple) or not all(isinstance(label, str | int) for label in labels):
            raise BadInput(f'{self.at}: "labels" must be a list of class names')
        return [tidy(str(label)) for label in labels]

    def _each(self, caption_labels: object, count: int) -> list[Sequence[str]]:
        """The labels of each caption, where the line gives each its own."""
        if not isinstance(caption_labels, list | tuple) or len(caption_labels) != count:
            raise BadInput(f'{self.at}: "caption_labels" must hold a list of class names for each of {count} captions')
        return [self._words(labels or []) for labels in caption_labels]

    def pairs(
        self,
        format: str,
        root: Path,
        options: Options,
        source: Callable[[list[str], np.ndarray], PictureSource | None],
        *,
        keep: bool = False,
    ) -> Pairs:
        """The data set; `source` gets the names of the pictures that have captions and their places among all added.

        With `keep` pictures without captions stay in it.
        """
        if not self.captions:
            lines = f"{len(self.empty)} empty captions" if self.empty else "no captions"
            raise BadInput(f"{self.file}: holds {lines} and no usable pair; each line needs a picture and a caption")
        kept, picture = np.unique(np.asarray(self.picture, dtype=np.int64), return_inverse=True)
        if keep:
            kept, picture = np.arange(len(self.names)), np.asarray(self.picture)
        names = [self.names[i] for i in kept.tolist()]
        pictures = source(names, kept)
        left_out = np.setdiff1d(np.arange(len(self.names)), kept, assume_unique=True)
        unpaired = [f"{self.names[i]}: no captions" for i in left_out if int(i) not in self.blank]
        bare = [self.names[i] for i in np.setdiff1d(kept, self.picture)]
        return Pairs(
            names=names,
            captions=self.captions,
            picture=picture.astype(np.int64),
            splits=self._splits(kept, pictures, options),
            pictures=pictures,
            labels=self._labels(kept),
            root=root,
            format=format,
            problems=problem("without caption", bare)
            + problem("empty", self.empty + unpaired)
            + problem("two splits", self.torn),
            notes={"kept": (self.seen, np.asarray(self.rows), len(self.names), kept)},
        )

    def _splits(self, kept: np.ndarray, pictures: PictureSource | None, options: Options) -> np.ndarray:
        if options.split is not None:
            return np.full(len(kept), split_name(options.split, str(self.file)))
        found = [self.splits[i] for i in kept.tolist()]
        if all(split is None for split in found):
            if (by_folder := split_folders([self.names[i] for i in kept.tolist()])) is not None:
                return by_folder
            return default_splits([self.names[i] for i in kept], pictures, seed=options.seed)
        missing = sum(split is None for split in found)
        if missing:
            say(f"{self.file}: {missing} pictures without a split among others with one: they are train")
        return np.array([split or "train" for split in found])

    def _labels(self, kept: np.ndarray) -> Labels | None:
        if not self.labelled:
            return None
        names = sorted(set().union(*self.image_labels.values(), *self.text_labels))
        items = len(kept) + len(self.captions)
        size = len(names) * items
        if size > (MOST_LABELLED if items >= SHARED * len(names) else MOST_OF_ONE):
            raise BadInput(
                f"{self.file}: {len(names):,} different labels for {len(self.captions):,} captions would take "
                f"{size / 1e9:.1f} GB; labels are classes that pictures share: leave the column out if these are none"
            )
        column = {name: place for place, name in enumerate(names)}
        image = np.zeros((len(kept), len(names)), dtype=bool)
        text = np.zeros((len(self.captions), len(names)), dtype=bool)
        for row, number in enumerate(kept.tolist()):
            image[row, [column[name] for name in self.image_labels.get(number, ())]] = True
        for row, words in enumerate(self.text_labels):
            text[row, [column[name] for name in words]] = True
        return Labels(names, image, text)


def key_of(name: str) -> str:
    """`images/a.jpg`, `./a.jpg` and `a.jpg` are one picture."""
    return (safe_name(name) or name).removeprefix("images/")
