"""Folders called train, val and test: each is a data set of its own format, all are one data set with these splits.

So lie image folders (train/metadata.csv, or class folders in train/), and `datasets` folders of several splits. Where
every picture is in a folder of its split and class, as train/dog/a.jpg, the class is its label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import EXAMPLES, SPLITS
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.detection import ALONE, place_of
from matchlight.data.formats.folder_walk import is_hidden, is_picture, walk
from matchlight.data.formats.safety import inside
from matchlight.data.formats.sources import JoinedPictures
from matchlight.pairs import Labels, Pairs, Problem

USUAL = ("train", "val", "test")
CLASSES = 10_000  # more folders than this are no classes


class SplitFolders(Format):
    """A folder with train/ in it, or with val/ and test/, each of them a data set."""

    name = "splits"

    def fits(self, path: Path) -> bool:
        """By the folders' names, and by what they hold; photos of a journey by train are no split."""
        folders = split_folders_of(path) if path.is_dir() else {}
        if "train" not in folders and len(folders) < 2:
            return False
        held = [_format_of(folder) for folder in folders.values()]
        return None not in held and not (set(held) == {ALONE} and _pictures_elsewhere(path, folders))

    def read(self, path: Path, options: Options) -> Pairs:
        """All splits, in the usual order."""
        parts = {}
        if not path.is_dir() or not (folders := split_folders_of(path)):
            raise BadInput(f"{path}: no folder with train/, val/ or test/ in it")
        for split, folder in folders.items():
            place, format = place_of(folder, None)
            own = Options(seed=options.seed, max_pixels=options.max_pixels, split=split)
            parts[folder.name] = format.read(place, own)
        return _joined(path, parts, self.name)


def split_folders_of(path: Path) -> dict[str, Path]:
    """Split -> its folder, of those that are there."""
    found: dict[str, Path] = {}
    for entry in sorted(path.iterdir()):
        split = SPLITS.get(entry.name.lower(), entry.name.lower())
        if split in USUAL and entry.is_dir():
            if split in found:
                raise BadInput(f"{path}: {found[split].name}/ and {entry.name}/ are both {split}; put them together")
            found[split] = inside(path, entry.name)
    return {split: found[split] for split in USUAL if split in found}


def _format_of(folder: Path) -> str | None:
    try:
        return place_of(folder, None)[1].name
    except BadInput:
        return None


def _pictures_elsewhere(path: Path, folders: dict[str, Path]) -> bool:
    """Whether pictures lie beside the folders of splits, which would not be read."""
    splits = {folder.name for folder in folders.values()}
    others = [entry for entry in path.iterdir() if entry.name not in splits and not is_hidden(entry.name)]
    if any(is_picture(entry.name) and not entry.is_dir() for entry in others):
        return True
    return any(one.is_picture for entry in others if entry.is_dir() for one in walk(entry))


def _joined(path: Path, parts: dict[str, Pairs], format: str) -> Pairs:
    """Data sets behind each other; a picture's name begins with its folder's."""
    for name, part in parts.items():
        if part.pictures is None or part.text_features is not None:
            raise BadInput(f"{path / name}: holds arrays, which are not put together; give this folder itself")
    sources = [part.pictures for part in parts.values() if part.pictures is not None]
    starts = np.cumsum([0] + [len(part.names) for part in parts.values()])
    moved = [part.picture + start for part, start in zip(parts.values(), starts, strict=False)]
    names = [f"{folder}/{name}" for folder, part in parts.items() for name in part.names]
    alone = all(part.format == ALONE for part in parts.values())
    return Pairs(
        names=names,
        captions=[caption for part in parts.values() for caption in part.captions],
        picture=np.concatenate(moved).astype(np.int64),
        splits=np.concatenate([part.splits for part in parts.values()]),
        pictures=JoinedPictures(sources),
        labels=_by_folder(names) if alone else _joined_labels(list(parts.values())),
        root=path,
        format=format,
        problems=_joined_problems(parts),
    )


def _by_folder(names: Sequence[str]) -> Labels | None:
    """Classes by folder, where every picture is at split/class/file and there are several classes."""
    parts = [name.split("/") for name in names]
    classes = sorted({part[1] for part in parts if len(part) == 3})
    if any(len(part) != 3 for part in parts) or not 1 < len(classes) <= CLASSES:
        return None
    column = {name: place for place, name in enumerate(classes)}
    image = np.zeros((len(names), len(classes)), dtype=bool)
    image[np.arange(len(names)), [column[part[1]] for part in parts]] = True
    return Labels(classes, image, np.zeros((0, len(classes)), dtype=bool))


def _joined_labels(parts: list[Pairs]) -> Labels | None:
    known = [part.labels for part in parts if part.labels is not None]
    if not known:
        return None
    classes = sorted({name for labels in known for name in labels.names})
    column = {name: place for place, name in enumerate(classes)}

    def wide(labels: Labels | None, table: np.ndarray, rows: int) -> np.ndarray:
        out = np.zeros((rows, len(classes)), dtype=bool)
        if labels is not None:
            out[:, [column[name] for name in labels.names]] = table
        return out

    empty = np.zeros(0)
    image = [wide(one.labels, one.labels.image if one.labels else empty, len(one.names)) for one in parts]
    text = [wide(one.labels, one.labels.text if one.labels else empty, len(one)) for one in parts]
    return Labels(classes, np.concatenate(image), np.concatenate(text))


def _joined_problems(parts: dict[str, Pairs]) -> list[Problem]:
    found: dict[str, list[Problem]] = defaultdict(list)
    for part in parts.values():
        for one in part.problems:
            found[one.kind].append(one)
    return [
        Problem(kind, sum(one.count for one in some), [line for one in some for line in one.examples][:EXAMPLES])
        for kind, some in found.items()
    ]
