"""Flickr's token files (results_20130124.token, Flickr8k.token.txt): `a.jpg#0<tab>caption`, a line a caption.

Flickr8k's lists of pictures (Flickr_8k.trainImages.txt and so on) beside it are its splits. Pictures lie in a folder
beside the file or below it, whatever that is called.
"""

from __future__ import annotations

import re
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, split_name
from matchlight.data.formats.array_values import text_lines
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside, stays_inside
from matchlight.pairs import Pairs

LINE = re.compile(r"([^\t]+)#(\d+)\t(.*)")
LISTS = re.compile(r"(?:.*[._])?(train|dev|val|test)Images\.txt")


class TokenFile(Format):
    """The file, or a folder with one."""

    name = "token"

    def fits(self, path: Path) -> bool:
        """By the first line of a .token or .txt."""
        return bool(found(path)) if path.is_dir() else is_token_file(path)

    def read(self, path: Path, options: Options) -> Pairs:
        """Lines in their order; what is no such line is refused by its number."""
        files = found(path) if path.is_dir() else [path]
        if len(files) != 1:
            names = ", ".join(file.name for file in files[:3]) or "none"
            raise BadInput(f"{path}: one token file is needed, there are {names}; name the file itself")
        splits = _splits(files[0].parent)
        table = Annotations(files[0])
        for number, line in enumerate(text_lines(files[0]), 1):
            if not line.strip():
                continue
            match = LINE.fullmatch(line)
            if match is None:
                raise BadInput(f"{files[0]} line {number}: not a line like a.jpg#0<tab>a dog on a beach")
            table.add(match[1], match[3].strip(), split=splits.get(match[1]), where=number)
        return with_pictures_beside(table, self.name, files[0].parent, options)


def found(folder: Path) -> list[Path]:
    """The token files of a folder; one of word stems counts only where there is no other."""
    named = sorted(one for kind in ("*.token", "*.txt") for one in folder.glob(kind))
    files = [file for file in named if stays_inside(folder, file) and is_token_file(file)]
    return [file for file in files if "lemma" not in file.name] or files


def is_token_file(path: Path) -> bool:
    """Whether its first line is one of a picture, a number and a caption."""
    if path.suffix.lower() not in (".token", ".txt") or not path.is_file():
        return False
    with open(path, "rb") as file:
        first = file.readline(1 << 16)
    return LINE.fullmatch(first.decode("utf-8-sig", "replace").rstrip("\r\n")) is not None


def _splits(folder: Path) -> dict[str, str]:
    """Picture -> split, by the lists that lie beside the captions."""
    found = {}
    for file in sorted(folder.glob("*Images.txt")):
        if (match := LISTS.fullmatch(file.name)) is not None:
            split = split_name(match[1], str(file))
            found.update({line.strip(): split for line in text_lines(inside(folder, file.name)) if line.strip()})
    return found
