"""WebDataset shards: tars in which files that share a key are one sample: key.jpg with key.txt or key.json.

key.txt is one caption; key.json may hold `captions` (or `caption`), `split`, `labels`, `caption_labels`. Splits come
from there or from the shard's name (`train-000000.tar`). Written shards hold both files; the .json says everything, the
.txt repeats the first caption for tools that know nothing else. A picture met again is a sample without picture whose
.json names it. Links, devices and names that climb out are ignored and counted.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats import tar
from matchlight.data.formats.annotations import Annotations, key_of, problem, split_of
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.decoding import SUFFIXES
from matchlight.data.formats.export import Entry, entries_with_bytes, write_relevance
from matchlight.data.formats.folder_walk import is_hidden, is_picture, walk
from matchlight.data.formats.pictures_alone import without_captions
from matchlight.data.formats.safety import inside, read_range
from matchlight.data.formats.sources import TarPictures
from matchlight.files import Json
from matchlight.pairs import Pairs

SHARD = 5000  # samples a shard
LONGEST = 1 << 24  # bytes of a .txt or .json


class WebDataset(Format):
    """A tar, or a folder of them; without captions they are pictures alone."""

    name = "webdataset"

    def fits(self, path: Path) -> bool:
        """A file by its name, a folder by what its tars begin with, unless they are few among pictures: a backup."""
        if not path.is_dir():
            return path.suffix.lower() == ".tar"
        if not (shards := shards_of(path)):
            return False
        beside = islice((one for one in walk(path) if one.is_picture), len(shards) + 1)
        return len(list(beside)) <= len(shards)

    def read(self, path: Path, options: Options) -> Pairs:
        """Read one shard, or all of a folder in order of name."""
        shards = [one for one in self.shards(path) if one.name not in options.without] if path.is_dir() else [path]
        table = Annotations(path)
        where: list[tuple[int, int, int]] = []
        listings = [tar.index(shard) for shard in shards]
        for number, listing in enumerate(listings):
            _add_shard(table, where, listing, number)
        refused = [f"{one.path.name}: {name}" for one in listings for name in one.refused]
        cut = [line for one in listings for line in one.cut()]
        told = problem("refused in tar", refused) + problem(tar.CUT, cut)
        places = np.array(where, dtype=np.int64).reshape(-1, 3)
        root = path if path.is_dir() else path.parent
        if not table.seen and (alone := _pictures_alone(listings, options)) is not None:
            return without_captions(alone.names, alone, self.name, root, options, told)
        pairs = table.pairs(
            self.name,
            root,
            options,
            lambda names, kept: TarPictures(shards, names, places[kept], max_pixels=options.max_pixels),
        )
        absent = np.flatnonzero(pairs.pictures.where[:, 0] < 0).tolist()  # type: ignore[union-attr]
        missing = [pairs.names[i] for i in absent]
        return replace(pairs, problems=pairs.problems + problem("missing", missing) + told)

    def shards(self, path: Path) -> list[Path]:
        """Its tars."""
        return shards_of(path)

    def write(self, pairs: Pairs, out: Path) -> None:
        """Shards of 5,000 samples, picture bytes as they are."""
        shard: tarfile.TarFile | None = None
        try:
            for count, (entry, blob) in enumerate(entries_with_bytes(pairs)):
                if count % SHARD == 0:
                    if shard is not None:
                        shard.close()
                    shard = tarfile.open(out / f"pairs-{count // SHARD:06d}.tar", "w")  # noqa: SIM115 (closed below)
                assert shard is not None
                _write_sample(shard, f"{count:08d}", entry, blob)
        finally:
            if shard is not None:
                shard.close()
        write_relevance(pairs, out)


@dataclass
class Sample:
    """The files of one key: suffix -> (offset, size)."""

    key: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def picture(self) -> tuple[str, tuple[int, int]] | None:
        """The suffix and place of the picture, if the sample has one."""
        return next(((suffix, at) for suffix, at in self.files.items() if f".{suffix}" in SUFFIXES), None)


def shards_of(folder: Path) -> list[Path]:
    """The shards of a folder in order of name: tars by content, so that checkpoints called .pth.tar are none."""
    named = [inside(folder, file.name) for file in sorted(folder.glob("*.tar")) if file.name != "images.tar"]
    return [path for path in named if tar.is_tar(path)]


def _pictures_alone(listings: list[tar.TarIndex], options: Options) -> TarPictures | None:
    """Every picture of tars without captions; None where they hold none."""
    names, where = [], []
    for number, listing in enumerate(listings):
        for name, offset, size in listing.files:
            if is_picture(name) and not any(map(is_hidden, name.split("/"))):
                names.append(f"{listing.path.stem}/{name}")
                where.append((number, offset, size))
    if not names:
        return None
    return TarPictures([one.path for one in listings], names, np.array(where), max_pixels=options.max_pixels)


def _add_shard(table: Annotations, where: list[tuple[int, int, int]], listing: tar.TarIndex, number: int) -> None:
    place = os.open(listing.path, os.O_RDONLY)
    try:
        for sample in _samples(listing):
            before = len(table.names)
            _add_sample(table, sample, place, listing.path)
            if len(table.names) > before:
                picture = sample.picture
                where.append((number, *picture[1]) if picture else (-1, 0, 0))
    finally:
        os.close(place)


def _samples(listing: tar.TarIndex) -> Iterator[Sample]:
    """Neighbouring files whose names agree up to the first dot of the last part, one of each kind."""
    sample: Sample | None = None
    for name, offset, size in listing.files:
        folder, _, last = name.rpartition("/")
        stem, _, suffix = last.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        if sample is None or sample.key != key or suffix.lower() in sample.files:  # a second sample of this key
            if sample is not None:
                yield sample
            sample = Sample(key)
        sample.files[suffix.lower()] = (offset, size)
    if sample is not None:
        yield sample


def _add_sample(table: Annotations, sample: Sample, place: int, shard: Path) -> None:
    at = f"{shard} sample {sample.key!r}"
    about = _about(sample, place, at)
    picture = sample.picture
    captions = about.get("captions", about.get("caption"))
    if captions is None and "txt" in sample.files:
        captions = [_text(place, sample.files["txt"], at).strip()]
    if captions is None:
        captions = []
    named = about.get("image") if isinstance(about.get("captions"), list) else None
    name = named or f"{shard.stem}/{sample.key}.{picture[0] if picture else 'jpg'}"
    split = about.get("split") or split_of(shard)
    # a sample that brings a picture is a picture of its own, whatever its name; one without may name an earlier one
    taken = picture is not None and key_of(str(name)) in table.place
    key = f"{shard.name}:{picture[1][0]}" if picture is not None and taken else None
    table.add(
        name,
        captions,
        split=split,
        labels=about.get("labels"),
        caption_labels=about.get("caption_labels"),
        where=at,
        key=key,
    )


def _about(sample: Sample, place: int, at: str) -> dict[str, Json]:
    if "json" not in sample.files:
        return {}
    try:
        about = json.loads(_text(place, sample.files["json"], at))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{at}: its .json is not a JSON object") from error
    if not isinstance(about, dict):
        raise BadInput(f"{at}: its .json is not a JSON object")
    return about


def _text(place: int, where: tuple[int, int], at: str) -> str:
    offset, size = where
    if size > LONGEST:
        raise BadInput(f"{at}: a text of {size} bytes; at most {LONGEST} are read")
    try:
        return read_range(place, offset, size).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{at}: its text is not UTF-8") from error


def _write_sample(shard: tarfile.TarFile, key: str, entry: Entry, blob: bytes | None) -> None:
    if blob is not None:
        suffix = Path(entry["image"]).suffix.lower()
        _write_file(shard, key + (suffix if suffix in SUFFIXES else ".jpg"), blob)
    _write_file(shard, f"{key}.txt", entry["captions"][0].encode())
    _write_file(shard, f"{key}.json", json.dumps(entry, ensure_ascii=False).encode())


def _write_file(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    about = tarfile.TarInfo(name)  # time and owner stay 0: the same data gives the same bytes
    about.size = len(content)
    shard.addfile(about, io.BytesIO(content))
