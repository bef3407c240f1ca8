"""Readers and writers: any known folder or file -> Pairs, and Pairs -> a folder another tool understands.

`read` looks at what is there and picks the reader; `format=` forces one. Paths written in data stay below the data's
folder, links that leave it are not followed, and a broken file is one clear line. One file is one family of formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Unpack

from matchlight.core import BadInput
from matchlight.data.formats import (
    csv_tables,
    jsonl,
    karpathy,
    labelled,
    pairs_npz,
    parquet,
    relevance_file,
    roi,
    scan_folder,
    scan_writer,
    webdataset,
)
from matchlight.data.formats.annotations import Options
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.detection import detect, place_of
from matchlight.data.formats.export import arranged, need_features, need_pictures
from matchlight.data.formats.info import info
from matchlight.data.formats.sources import ArrayFeatures, BytePictures, FolderPictures, NpyFeatures, TarPictures
from matchlight.data.formats.splits import default_splits
from matchlight.files import new_file, new_folder
from matchlight.pairs import Pairs, ReadOptions

READERS: dict[str, Callable[[Path, Options], Pairs]] = {
    "jsonl": jsonl.read,
    "csv": csv_tables.read,
    "parquet": parquet.read,
    "webdataset": webdataset.read,
    "scan": scan_folder.read,
    "roi": roi.read,
    "karpathy": karpathy.read,
    "wikipedia": labelled.wikipedia,
    "labelled": labelled.read,
    "npz": pairs_npz.read,
}
WRITERS: dict[str, Callable[[Pairs, Path], None]] = {
    "jsonl": jsonl.write,
    "csv": csv_tables.write,
    "parquet": parquet.write,
    "webdataset": webdataset.write,
    "scan": scan_writer.write,
    "npz": pairs_npz.write,
}
OF_PICTURES = ("jsonl", "csv", "parquet", "webdataset")

__all__ = [
    "ArrayFeatures",
    "BytePictures",
    "FolderPictures",
    "NpyFeatures",
    "READERS",
    "SUFFIXES",
    "TarPictures",
    "WRITERS",
    "default_splits",
    "detect",
    "info",
    "read",
    "write",
]


def read(path: str | Path, **options: Unpack[ReadOptions]) -> Pairs:
    """Open a folder or file of any known format (options: format, seed, max_pixels, validation)."""
    chosen = _options(options)
    try:
        place, format = place_of(Path(path), chosen.format)
        if format not in READERS:
            raise BadInput(f"{format!r} is no format; known: {', '.join(READERS)}")
        pairs = relevance_file.attach(READERS[format](place, chosen))
    except OSError as error:
        where = error.filename or path
        raise BadInput(f"{where}: cannot be read ({error.strerror or error})") from error
    pairs.notes["read_from"] = str(
        Path(path).absolute()
    )  # the root of a single file is its folder, which cannot be opened again
    return pairs


def _options(options: ReadOptions) -> Options:
    known = [field.name for field in fields(Options)]
    for name in options:
        if name not in known:
            raise BadInput(f"{name!r} is no option of reading; known: {', '.join(known)}")
    return Options(**options)


def write(pairs: Pairs, out: str | Path, to: str = "jsonl") -> Path:
    """Write a data set in another format; returns the folder (npz: the file). Nothing that is there is replaced."""
    out = Path(out)
    if to not in WRITERS:
        raise BadInput(f"{to!r} is no format to write; known: {', '.join(WRITERS)}")
    if not len(pairs):
        raise BadInput(f"{pairs.root}: no pairs to write")
    if to in OF_PICTURES:
        need_pictures(pairs, to)
        pairs = arranged(pairs)
    else:
        need_features(pairs, to)
    if to == "npz" and out.suffix == ".npz":
        if out.exists():
            raise BadInput(f"{out}: is there already; give a new name")
        with new_file(out) as partial:
            WRITERS[to](pairs, partial)
        return out
    with new_folder(out) as folder:
        WRITERS[to](pairs, folder / pairs_npz.FILE if to == "npz" else folder)
    return out / pairs_npz.FILE if to == "npz" else out
