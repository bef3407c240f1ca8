"""Where the pictures named by an annotation file are: in `images/`, in `images.tar`, or beside the file.

Each folder is listed once instead of asking for every picture, so that 100,000 pictures are found in a fraction of a
second. A picture that is in none of these is looked for in the folders below: where one alone has its name, it is that.
Names that lead out of the data folder and tar members that are no plain files are never followed, and counted.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from matchlight.data.formats import tar
from matchlight.data.formats.annotations import Annotations, problem
from matchlight.data.formats.base import Options
from matchlight.data.formats.folder_walk import walk
from matchlight.data.formats.safety import inside, is_inside, safe_name
from matchlight.data.formats.sources import FolderPictures, TarPictures
from matchlight.pairs import Pairs, PictureSource, Problem

DEEPEST, MOST = 4, 1_000_000  # folders in folders, and pictures, among which one is looked for


def with_pictures_beside(lines: Annotations, format: str, root: Path, options: Options) -> Pairs:
    """The data set of some lines whose pictures lie in images/, images.tar or beside them."""
    problems: list[Problem] = []

    def source(names: list[str], kept: np.ndarray) -> PictureSource:
        pictures, wrong = find_pictures(root, names, options)
        problems.extend(wrong)
        return pictures

    pairs = lines.pairs(format, root, options, source)
    return replace(pairs, problems=pairs.problems + problems)


def find_pictures(root: Path, names: list[str], options: Options) -> tuple[FolderPictures | TarPictures, list[Problem]]:
    """The pictures of these names, and which are missing or lead out."""
    if (root / "images.tar").exists() and not (root / "images").is_dir():
        return _in_tar(inside(root, "images.tar"), names, options)
    listing = Listing(root)
    places, missing, outside = [], [], []
    for name in names:
        clean = safe_name(name)
        place = None if clean is None else listing.find(clean)
        places.append(place)
        if clean is None or (place is not None and place in listing.outside):
            outside.append(name)
        elif place is None:
            missing.append(name)
    source = FolderPictures(root, names, places, max_pixels=options.max_pixels)
    told = problem("missing", missing) + problem("outside", outside) + problem("ambiguous", listing.ambiguous)
    return source, told


class Listing:
    """What the folders below `root` hold, each read once when first asked for."""

    def __init__(self, root: Path):
        self.root = os.path.realpath(root)
        self.folders: dict[str, set[str]] = {}
        self.outside: set[str] = set()
        self.below: dict[str, list[str]] | None = None  # last part of a name, in small letters -> places
        self.ambiguous: list[str] = []

    def find(self, name: str) -> str | None:
        """Where `name` is: in images/, as it says, or the only file below that ends so; None if nowhere."""
        bare = name.removeprefix("images/")
        folder, _, last = bare.rpartition("/")
        for place in (f"images/{folder}" if folder else "images", folder):
            if place not in self.folders:
                self.folders[place] = self._read(place)
            if last in self.folders[place]:
                return f"{place}/{last}" if place else last
        return self._elsewhere(bare)

    def _elsewhere(self, name: str) -> str | None:
        """The only picture in folders below whose path ends so, in letters of either case."""
        if self.below is None:
            self.below = _by_last_part(self.root)
        end = f"/{name}".casefold()
        places = [one for one in self.below.get(end.rpartition("/")[2], ()) if f"/{one}".casefold().endswith(end)]
        if len(places) > 1:
            self.ambiguous.append(f"{name}: {places[0]} or {places[1]}?")
        return places[0] if len(places) == 1 else None

    def _read(self, folder: str) -> set[str]:
        path = os.path.join(self.root, folder)
        leaves = not is_inside(self.root, path)
        found = set()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    found.add(entry.name)
                    if leaves or (entry.is_symlink() and not is_inside(self.root, entry.path)):
                        self.outside.add(f"{folder}/{entry.name}" if folder else entry.name)
        except (OSError, ValueError):
            return set()
        return found


def _by_last_part(root: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    inside = (one.place for one in walk(Path(root), deepest=DEEPEST) if one.is_picture and not one.outside)
    for place in islice(inside, MOST):  # a table in somebody's home is no reason to look at all of it
        found.setdefault(place.rpartition("/")[2].casefold(), []).append(place)
    return found


def _in_tar(path: Path, names: list[str], options: Options) -> tuple[TarPictures, list[Problem]]:
    listing = tar.index(path)
    where_is = {name.removeprefix("images/"): (offset, size) for name, offset, size in listing.files}
    where = np.full((len(names), 3), -1, dtype=np.int64)
    missing: list[str] = []
    outside: list[str] = []
    for row, name in enumerate(names):
        clean = safe_name(name)
        place = None if clean is None else where_is.get(clean.removeprefix("images/"))
        if place is not None:
            where[row] = (0, *place)
        else:
            (outside if clean is None else missing).append(name)
    source = TarPictures([path], names, where, max_pixels=options.max_pixels)
    refused = problem("refused in tar", listing.refused) + problem(tar.CUT, listing.cut())
    return source, problem("missing", missing) + problem("outside", outside) + refused
