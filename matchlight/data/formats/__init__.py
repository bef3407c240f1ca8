"""Readers and writers: any known folder or file -> Pairs, and Pairs -> a folder another tool understands.

`read` looks at what is there and picks the format; `format=` forces one. Paths written in data stay below the data's
folder, links that leave it are not followed, and a broken file is one clear line. In reading order:

    base.py            what a format is: the class that ours and other people's are made of
    detection.py       which format a path is in
    annotations.py     captions collected line by line -> Pairs
    picture_files.py   where the pictures that lines name are: images/, images.tar, beside the file
    decoding.py        bytes of a picture -> pixels;  sources.py: pictures and features read when asked for
    safety.py          paths that stay inside the data's folder, arrays that are plain numbers
    tar.py             where each file lies inside a tar
    jsonl.py  csv_tables.py  parquet.py  webdataset.py  karpathy.py     formats of pictures and captions
    coco.py            captions_*.json;  token_file.py: Flickr's token files;  text_files.py: a.txt beside a.jpg
    arrow_folder.py    folders of Hugging Face datasets;  clip_retrieval.py: folders of clip-retrieval
    hub_data.py        hf-datasets:NAME, read through `datasets`; `save_to_disk` folders written
    memory_pictures.py pictures and captions in lists
    hub_features.py    what `datasets` reads in a schema
    url_tables.py      captions and addresses of pictures, read where the pictures are there
    split_folders.py   train/, val/ and test/, each a data set
    pictures_alone.py  a folder or a zip of pictures without captions;  zip_files.py: where each lies in a zip
    folder_walk.py     every file below a folder, but what systems hide there
    csv_lines.py       rows of a CSV with their lines: stray quotes and commas without quotes are read, and counted
    scan_folder.py  scan_writer.py  roi.py  labelled.py  pairs_npz.py  feature_shards.py   formats of arrays
    array_files.py     named arrays out of .mat, .h5 and .npz;  array_values.py: labels, boxes and texts in them
    boxes.py           what is where in a picture;  relevance_file.py: which captions fit which pictures
    splits.py          90/5/5 where the data has no splits
    export.py          what writers share
    info.py            what a data set holds and what is wrong with it
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Unpack

from matchlight import plugins
from matchlight.console import BadInput
from matchlight.data.formats import relevance_file
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.detection import all_formats, detect, format_named, place_of
from matchlight.data.formats.export import arranged
from matchlight.data.formats.hub_data import is_hub, read_hub
from matchlight.data.formats.info import info
from matchlight.data.formats.sources import ArrayFeatures, BytePictures, FolderPictures, NpyFeatures, TarPictures
from matchlight.data.formats.splits import default_splits
from matchlight.files import new_file, new_folder
from matchlight.pairs import Pairs, ReadOptions

__all__ = [
    "ArrayFeatures",
    "BytePictures",
    "FolderPictures",
    "Format",
    "NpyFeatures",
    "Options",
    "SUFFIXES",
    "TarPictures",
    "default_splits",
    "detect",
    "format_for_copy",
    "info",
    "read",
    "write",
]


def read(path: str | Path, **options: Unpack[ReadOptions]) -> Pairs:
    """Open a folder or file of any known format, or hf-datasets:NAME.

    Options are format, seed, max_pixels, split and validation.
    """
    chosen = _options(options)
    if is_hub(path):
        return read_hub(str(path), chosen)
    try:
        place, format = place_of(Path(path), chosen.format)
        pairs = relevance_file.attach(format.read(place, chosen))
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


def format_for_copy(pairs: Pairs, *, keep: bool = True) -> str:
    """The format a command writes unless another is named.

    A changed copy keeps the format of its source where that can be written and can hold the copy. Otherwise, and with
    `keep=False` (a conversion that names no format), pictures are written as jsonl and features as npz.
    """
    if keep and pairs.format in plugins.names("formats"):
        own = format_named(pairs.format)
        if own.writes and own.obstacle(pairs) is None:
            return own.name
    return "jsonl" if pairs.pictures is not None else "npz"


def write(pairs: Pairs, out: str | Path, to: str = "jsonl") -> Path:
    """Write a data set in another format; returns the folder (npz: the file). Nothing that is there is replaced."""
    out = Path(out)
    format = _writable(to)
    pairs.need_captions(f"--to {to}")
    if (obstacle := format.obstacle(pairs)) is not None:
        raise BadInput(f"{pairs.root}: {obstacle}")
    pairs = arranged(pairs, to) if format.content == "pictures" else pairs
    if format.file is not None and out.suffix == Path(format.file).suffix:
        if out.exists():
            raise BadInput(f"{out}: is there already; give a new name")
        with new_file(out) as partial:
            format.write(pairs, partial)
        return out
    with new_folder(out) as folder:
        format.write(pairs, folder if format.file is None else folder / format.file)
    return out if format.file is None else out / format.file


def _writable(name: str) -> Format:
    try:
        format = format_named(name)
    except BadInput:
        format = None
    if format is None or not format.writes:
        known = ", ".join(format.name for format in all_formats() if format.writes)
        raise BadInput(f"{name!r} is no format to write; known: {known}")
    return format
