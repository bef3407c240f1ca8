"""Pictures alone: a folder with folders in it, or a zip, and no captions. They can be indexed, searched and embedded.

It is what a folder is taken for when it is nothing else. A tar of pictures alone is read as WebDataset shards are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats import zip_files
from matchlight.data.formats.annotations import problem, split_name
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.folder_walk import is_picture, walk
from matchlight.data.formats.sources import FolderPictures
from matchlight.data.formats.zip_files import ZipPictures
from matchlight.pairs import Pairs, PictureSource, Problem

ALL = "all"  # the split of pictures that are in none
TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".txt", ".tar")  # files of a zip that may hold captions


class PicturesAlone(Format):
    """A folder with a picture somewhere in it, or a zip with one."""

    name = "pictures"

    def fits(self, path: Path) -> bool:
        """By the first picture that is met."""
        if path.is_dir():
            return any(one.is_picture for one in walk(path))
        return path.suffix.lower() == ".zip" or (path.is_file() and zip_files.is_zip(path))

    def read(self, path: Path, options: Options) -> Pairs:
        """Every picture, in order of its place; other files are counted."""
        return _folder(path, options) if path.is_dir() else _zip(path, options)


def without_captions(
    names: Sequence[str], pictures: PictureSource, format: str, root: Path, options: Options, problems: list[Problem]
) -> Pairs:
    """A data set of no rows."""
    return Pairs(
        names=names,
        captions=[],
        picture=np.zeros(0, dtype=np.int64),
        splits=np.full(len(names), split_name(options.split or ALL, str(root))),
        pictures=pictures,
        root=root,
        format=format,
        problems=problems,
    )


def _folder(path: Path, options: Options) -> Pairs:
    found = list(walk(path))
    places = [one.place for one in found if one.is_picture and not one.outside]
    names = [one.name for one in found if one.is_picture and not one.outside]
    outside = [one.name for one in found if one.outside]
    others = [one.name for one in found if not one.is_picture and not one.outside]
    if not places:
        more = f"; {len(outside)} links leave it, and are not followed: copy the files there" if outside else ""
        raise BadInput(f"{path}: no pictures in it{more}")
    problems = problem("outside", outside) + problem("not read", others)
    pictures = FolderPictures(path, names, places, max_pixels=options.max_pixels)
    return without_captions(names, pictures, PicturesAlone.name, path, options, problems)


def _zip(path: Path, options: Options) -> Pairs:
    listing = zip_files.index(path)
    kept = [place for place, name in enumerate(listing.names) if is_picture(name)]
    others = [name for name in listing.names if not is_picture(name)]
    if tables := [name for name in others if name.lower().endswith(TABLES)]:
        raise BadInput(
            f"{path}: holds {tables[0]} beside {len(kept):,} pictures; captions are read from folders: unpack the zip "
            "and give its folder"
        )
    if not kept:
        raise BadInput(f"{path}: no pictures in this zip ({len(others)} other files); unpack it and give its folder")
    names, where = [listing.names[place] for place in kept], np.array([listing.where[place] for place in kept])
    pictures = ZipPictures(path, names, where, max_pixels=options.max_pixels)
    problems = problem("refused in zip", listing.refused) + problem("not read", others)
    return without_captions(names, pictures, PicturesAlone.name, path.parent, options, problems)
