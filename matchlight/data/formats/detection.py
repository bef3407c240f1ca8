"""Which format a folder or file is in: ours are asked first, in the order of the table in `matchlight.plugins`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from matchlight import plugins
from matchlight.console import BadInput
from matchlight.data.formats.base import Format
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.folder_walk import is_file, is_folder, is_picture, walk
from matchlight.data.formats.safety import inside
from matchlight.files import regular

LOOKED_AT = 10_000  # files of a folder that is no data set
LAYOUTS = {  # the simplest first: in words, and the files each is made of
    "a folder of pictures": set(SUFFIXES),
    'captions.jsonl with lines like {"image": "a.jpg", "captions": ["a dog on a beach"]}': {
        ".jsonl",
        ".ndjson",
        ".yaml",
        ".xml",
    },
    "a table with the columns image and caption": {".csv", ".tsv", ".xlsx", ".xls", ".parquet", ".txt", ".db"},
    "a.jpg with a.txt beside it": {".caption"},
    "COCO's captions_*.json with its pictures": {".json"},
    "WebDataset shards, or a zip of pictures": {".tar", ".gz", ".tgz", ".zip", ".7z", ".rar", ".bz2"},
    "{split}_ims.npy with {split}_caps.txt": {".npy"},
    "label sets in .mat, .h5 or .npz": {".mat", ".h5", ".hdf5", ".npz"},
}
RIVALS = ("jsonl", "coco", "karpathy", "token", "csv", "parquet", "webdataset", "arrow", "texts")  # bring captions each
ALONE = "pictures"  # the format of pictures without captions
KNOWN = (
    "a folder or zip of pictures, with captions.jsonl, a CSV or a.txt beside a.jpg where there are captions; "
    "COCO's captions_*.json, WebDataset shards, a Parquet file; {split}_ims.npy with {split}_caps.txt, or label sets"
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
        _tell_rivals(path, format)
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
            folder = is_folder(entry)
            if folder and deep > 1:
                with suppress(PermissionError):  # a folder that may not be opened is passed over
                    _without_pipes(Path(entry.path), deep - 1)
            elif not folder and not is_file(entry) and not is_picture(entry.name):
                regular(Path(entry.path))


def _fitting(path: Path) -> Format | None:
    return next((format for format in all_formats() if format.name != ALONE and format.fits(path)), None)


def _tell_rivals(path: Path, chosen: Format) -> None:
    """Say which other captions a folder holds that are not read."""
    if not path.is_dir() or chosen.name not in RIVALS:
        return
    others = [name for name in RIVALS if name != chosen.name and _fits(name, path)]
    if others:
        plugins.warn_once(f"{path}: read as {chosen.name}; what it holds as {' and '.join(others)} is not read")


def _fits(name: str, path: Path) -> bool:
    try:
        return format_named(name).fits(path)
    except BadInput:  # several such files
        return True


def _complaint(path: Path) -> str:
    if not path.is_dir():
        return f"{path}: not a data set; known are {KNOWN}"
    found = list(islice(walk(path), LOOKED_AT))
    if not found:
        return f"{path}: is empty; a data set is {KNOWN}"
    kinds = Counter(Path(one.place).suffix.lower() or "files without a suffix" for one in found)
    seen = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    return f"{path}: no data set in it; seen are {seen}; nearest to it are {' and '.join(_nearest(list(kinds)))}"


def _nearest(kinds: list[str]) -> list[str]:
    """The two layouts that share most with these files; where they share nothing, the simplest."""
    fitting = [layout for layout, own in LAYOUTS.items() if not own.isdisjoint(kinds)]
    return list(dict.fromkeys([*fitting, *LAYOUTS]))[:2]
