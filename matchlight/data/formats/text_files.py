"""A text beside each picture: a.jpg with a.txt (or a.caption, or img2dataset's a.json), in any depth of folders.

Each line of the text is a caption. Pictures without a text stay in the data set: they are searched, and nothing is
learned from them. Texts without a picture are counted. Folders called train, val and test are splits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, problem
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.folder_walk import Found, is_picture, walk
from matchlight.data.formats.safety import read_regular
from matchlight.data.formats.sources import FolderPictures
from matchlight.files import Json
from matchlight.pairs import Pairs, PictureSource

TEXTS = (".txt", ".caption", ".json")  # in order of preference
LONGEST = 1 << 24  # bytes of a text


class TextFiles(Format):
    """A folder in which a picture and a text share a name."""

    name = "texts"

    def fits(self, path: Path) -> bool:
        """By the first such pair."""
        pictures: set[str] = set()
        texts: set[str] = set()
        for one in walk(path) if path.is_dir() else ():
            stem, _, suffix = one.place.rpartition(".")
            kind = pictures if one.is_picture else texts if f".{suffix.lower()}" in TEXTS[:2] else None
            if kind is not None and not one.outside:
                kind.add(stem)
                if stem in pictures and stem in texts:
                    return True
        return False

    def read(self, path: Path, options: Options) -> Pairs:
        """Every picture, with the lines of its text."""
        found = list(walk(path))
        texts = _texts(found)
        pictures = [one for one in found if one.is_picture and not one.outside]
        if not path.is_dir() or not pictures:
            raise BadInput(f"{path}: no folder with pictures in it")
        table = Annotations(path)
        for one in pictures:
            text = texts.pop(_stem(one.place), None)
            captions = [] if text is None else _captions(path, text)
            table.add(one.name, captions, where=str(path / one.name), key=one.place)
        places = [one.place for one in pictures]

        def source(names: list[str], kept: np.ndarray) -> PictureSource:
            return FolderPictures(path, names, [places[i] for i in kept], max_pixels=options.max_pixels)

        pairs = table.pairs(self.name, path, options, source, keep=True)
        left = [name for name in texts.values() if not name.lower().endswith(".json")]
        outside = [one.name for one in found if one.outside]
        more = problem("text without picture", sorted(left)) + problem("outside", outside)
        return replace(pairs, problems=pairs.problems + more)


def _stem(place: str) -> str:
    return place.rpartition(".")[0]


def _texts(found: list[Found]) -> dict[str, str]:
    """Stem -> the text of that name, of several the preferred one."""
    texts: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if not one.outside and not is_picture(one.place) and one.place.lower().endswith(TEXTS):
            texts[_stem(one.place)].append(one.place)
    return {stem: min(some, key=_preference) for stem, some in texts.items()}


def _preference(name: str) -> int:
    return TEXTS.index(f".{name.rpartition('.')[2].lower()}")


def _captions(root: Path, place: str) -> object:
    try:
        text = read_regular(root / place, limit=LONGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{root / place}: its text is not UTF-8; save it as UTF-8") from error
    if not place.lower().endswith(".json"):
        return [line for line in text.splitlines() if line.strip()] or [""]
    try:
        about: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{root / place}: not JSON ({str(error).splitlines()[0][:80]})") from error
    said = about.get("captions", about.get("caption")) if isinstance(about, dict) else None
    return said if isinstance(said, str | list) else []
