"""What the writers share: rows in file order as entries, pictures copied byte for byte, relevance beside them.

A picture whose rows are not next to each other gets several entries, so rows keep their order in every format. Pictures
are numbered by first appearance, as a reader will number them again; `arranged` brings relevance and features along.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NotRequired, TypedDict
from unicodedata import normalize

import numpy as np

from matchlight.console import BadInput, say, track
from matchlight.data.formats.decoding import AVIF, SUFFIXES
from matchlight.data.formats.safety import safe_name
from matchlight.pairs import Labels, Pairs

MAGIC = {
    b"\xff\xd8": ".jpg",
    b"\x89PNG": ".png",
    b"RIFF": ".webp",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*": ".tif",
    b"MM": ".tif",
}


class Entry(TypedDict):
    """One line of captions.jsonl."""

    image: str
    captions: list[str]
    split: str
    labels: NotRequired[list[str]]
    caption_labels: NotRequired[list[list[str]]]  # where a text's classes are not its picture's


def arranged(pairs: Pairs, to: str) -> Pairs:
    """Pictures in order of first appearance; those without captions, and features, are left out, which is said."""
    if pairs.features is not None:
        say(f"{to} holds pictures, not features: the features are left out")
    used, first = np.unique(pairs.picture, return_index=True)
    order = used[np.argsort(first)]
    if len(order) < len(pairs.names):
        say(f"{len(pairs.names) - len(order)} pictures without captions are left out")
    if np.array_equal(order, np.arange(len(pairs.names))):
        return pairs
    whole = pairs.select(order, np.arange(len(pairs)))
    return replace(whole, notes=pairs.notes)


def runs(pairs: Pairs) -> Iterator[tuple[int, np.ndarray]]:
    """(picture, rows) of neighbouring rows that share a picture, in file order."""
    if not len(pairs):
        return
    starts = np.flatnonzero(np.diff(pairs.picture, prepend=-1))
    for rows in np.split(np.arange(len(pairs)), starts[1:]):
        yield int(pairs.picture[rows[0]]), rows


def entries(pairs: Pairs, names: list[str]) -> Iterator[Entry]:
    """One entry a run, as captions.jsonl holds it."""
    return (_entry(pairs, number, rows, names[number]) for number, rows in runs(pairs))


def entries_with_bytes(pairs: Pairs) -> Iterator[tuple[Entry, bytes | None]]:
    """One entry a run and the picture's bytes: once, with its first entry; None after that and where unreadable."""
    stream = blobs(pairs)
    names = list(pairs.names)
    done = -1
    for number, rows in runs(pairs):
        blob = None
        if number > done:  # `arranged`: pictures are numbered in the order the runs name them
            done, names[number], blob = next(stream)
        yield _entry(pairs, number, rows, names[number]), blob


def _entry(pairs: Pairs, number: int, rows: np.ndarray, name: str) -> Entry:
    entry: Entry = {
        "image": name,
        "captions": [pairs.captions[row] for row in rows],
        "split": str(pairs.splits[number]),
    }
    if pairs.labels is not None:
        own, texts = pairs.labels.image[number], pairs.labels.text[rows]
        entry["labels"] = words(pairs.labels, own)
        if (texts != own).any():
            entry["caption_labels"] = [words(pairs.labels, text) for text in texts]
    return entry


def words(labels: Labels, row: np.ndarray) -> list[str]:
    """The class names of one multi-hot row."""
    return [labels.names[place] for place in np.flatnonzero(row)]


def copy_pictures(pairs: Pairs, folder: Path) -> list[str]:
    """Copy every readable picture as it is; returns the name each has in the new data set."""
    folder.mkdir()
    names, lost = [], 0
    for _, name, blob in blobs(pairs):
        names.append(name)
        if blob is None:
            lost += 1
            continue
        place = folder / name.removeprefix("images/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(blob)
    if lost:
        say(f"{lost} of {len(names)} pictures could not be read: their lines are kept, their files are not there")
    return names


def blobs(pairs: Pairs) -> Iterator[tuple[int, str, bytes | None]]:
    """(place, a safe unique name, the file as it is or None) of each picture."""
    assert pairs.pictures is not None
    names = FileNames()
    for number in track(range(len(pairs.names)), "copying pictures"):
        try:
            blob: bytes | None = pairs.pictures.read(number)
        except BadInput:
            blob = None
        yield number, names.give(pairs.names[number], number, blob), blob


class FileNames:
    """Names of pictures in a copy: no two alike, to a reader or to a disk that knows no capitals; none below another.

    A data set may call several pictures by one name; in a copy the name is all that tells them apart.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def give(self, name: str, number: int, blob: bytes | None) -> str:
        """The picture's own name where it can be a file's and is free, else one made from its number and kind."""
        clean = safe_name(name)
        given = name if blob is None or clean is None else clean  # a picture that is not copied needs no file name
        if not self._free(given) or (blob is not None and not _usable(clean)):
            given = self._made(number, _suffix(blob or b""))
        bare = _bare(given)
        self.files.add(bare)
        self.folders.update(_parents(bare))
        return given

    def _free(self, name: str) -> bool:
        bare = _bare(name)
        return bare not in self.files and bare not in self.folders and self.files.isdisjoint(_parents(bare))

    def _made(self, number: int, suffix: str) -> str:
        tries = (
            f"{number:08d}{more}{suffix}"
            for more in itertools.chain([""], (f"-{count}" for count in itertools.count(2)))
        )
        return next(name for name in tries if self._free(name))


def _usable(clean: str | None) -> bool:
    """True for what can be the name of a picture's file on any disk."""
    bare = "" if clean is None else clean.removeprefix("images/")
    short = 0 < len(bare.encode()) <= 200 and not re.search(r"[\x00-\x1f\x7f]", bare)
    return short and bare.lower().endswith(SUFFIXES)


def _bare(name: str) -> str:
    """What a name comes to for whoever looks for the file."""
    name = safe_name(name) or name
    while name.startswith("images/"):
        name = name.removeprefix("images/")
    return normalize("NFC", name).casefold()


def _suffix(blob: bytes) -> str:
    if blob[4:8] == b"ftyp":
        return ".avif" if blob[8:12] in AVIF else ".heic"
    return next((suffix for magic, suffix in MAGIC.items() if blob.startswith(magic)), ".jpg")


def _parents(bare: str) -> list[str]:
    parts = bare.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def write_relevance(pairs: Pairs, folder: Path) -> None:
    """relevance.npz (captions x pictures, sparse) where the data knows more than its own pairs."""
    if pairs.relevance is not None:
        from scipy.sparse import save_npz

        save_npz(folder / "relevance.npz", pairs.relevance.tocsr().astype(bool))
