"""Which format a folder or file is in: ours are asked first, in the order of the table in `matchlight.plugins`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from matchlight import plugins
from matchlight.core import BadInput
from matchlight.data.formats.base import Format
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.safety import inside
from matchlight.files import regular

EXAMPLE = '{"image": "a.jpg", "captions": ["a dog on a beach"]}'
ALONE = "pictures"  # the format of pictures without captions
KNOWN = (
    "captions.jsonl with images/ or images.tar, a CSV or Parquet file, WebDataset shards, {split}_ims.npy with "
    "{split}_caps.txt, dataset_*.json, or label sets in .mat, .h5 or .npz"
)


def format_named(name: str) -> Format:
    """A format by its name."""
    if name not in (known := plugins.names("formats")):
        raise BadInput(f"{name!r} is no format; known: {', '.join(known)}")
    return _made(name, plugins.load("formats", name))


def _made(name: str, value: object) -> Format:
    format = value() if isinstance(value, type) else value
    if not isinstance(format, Format):
        raise BadInput(f"the plug-in {name!r} of matchlight.formats is no Format, but {format!r:.80}")
    return format


def all_formats() -> Iterator[Format]:
    """Ours, then those of other packages, each loaded when it is its turn."""
    for name, value in plugins.working("formats"):
        try:
            yield _made(name, value)
        except BadInput as error:  # a plug-in that is no format must not stop those that are
            plugins.warn_once(str(error))


def detect(path: str | Path) -> str:
    """The name of the format, or one clear line that says what would have been understood."""
    return place_of(Path(path), None)[1].name


def place_of(path: Path, forced: str | None) -> tuple[Path, Format]:
    """Where the data is (`data/` of a folder that holds nothing else we know) and its format.

    Pictures alone are what a folder is taken for when neither we nor another package know more of it.
    """
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    _without_pipes(path)
    if forced is not None:
        return path, format_named(forced)
    if (format := _fitting(path)) is not None:
        return path, format
    below = path / "data"
    if below.is_dir() and (format := _fitting(inside(path, "data"))) is not None:
        return below, format
    if (pictures := format_named(ALONE)).fits(path):
        return path, pictures
    raise BadInput(_complaint(path))


def _without_pipes(path: Path, deep: int = 2) -> None:
    """Refuse a pipe where a file of the data set should be; a picture's place is looked at when it is read."""
    if not path.is_dir():
        regular(path)
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir() and deep > 1:
                _without_pipes(Path(entry.path), deep - 1)
            elif not entry.is_dir() and not entry.is_file() and not entry.name.lower().endswith(SUFFIXES):
                regular(Path(entry.path))


def _fitting(path: Path) -> Format | None:
    return next((format for format in all_formats() if format.name != ALONE and format.fits(path)), None)


def _complaint(path: Path) -> str:
    if not path.is_dir():
        if path.suffix.lower() in SUFFIXES:
            return f"{path}: is a picture; a data set is {KNOWN}"
        return f"{path}: not a data set; known are {KNOWN}"
    names = [entry.name for entry in path.iterdir()]
    if not names:
        return f"{path}: is empty; a data set is {KNOWN}"
    pictures = any(name.lower().endswith(SUFFIXES) for name in names)
    folder = path / "images"
    if pictures or "images.tar" in names or folder.is_dir():
        return f"{path}: has pictures but no captions; add captions.jsonl with lines like {EXAMPLE}"
    return f"{path}: no data set in it; known are {KNOWN}"
