"""COCO's own annotations: captions_train2017.json and the like, whose pictures lie in train2017/ beside annotations/.

A file is a list of `images` (id, file_name) and a list of `annotations` (image_id, caption). Each file is a split, by
what its name says; pictures are told apart by file and id. Two years of one split in a folder hold the same pictures
twice: then the file itself has to be named.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations, split_name
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.files import Json
from matchlight.pairs import Pairs

FOLDER = "annotations"
LOOKED_AT = 1 << 16  # bytes at either end of a .json
FILES = 32  # .json files of a folder that are looked at
SPLIT = re.compile(r"(?<![a-z])(train|testall|test|validation|valid|val|dev|minival)(?![a-z])")


class Coco(Format):
    """captions_*.json: the file, or the folder that holds it or annotations/ with it."""

    name = "coco"

    def fits(self, path: Path) -> bool:
        """By what a .json begins and ends with."""
        return bool(found(path)) if path.is_dir() else is_coco(path)

    def read(self, path: Path, options: Options) -> Pairs:
        """One file, or those of a folder as its splits."""
        files = found(path) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"{path}: no captions_*.json")
        root = path if path.is_dir() else path.parent.parent if path.parent.name == FOLDER else path.parent
        splits = [_split(file) for file in files]
        if len(files) > 1 and (None in splits or len(set(splits)) < len(files)):
            names = ", ".join(file.name for file in files[:3])
            raise BadInput(f"{path}: several files of one split ({names}); name the file itself")
        table = Annotations(path)
        for file, split in zip(files, splits, strict=True):
            _add(table, file, split, _folder(root, file))
        return with_pictures_beside(table, self.name, root, options)


def found(folder: Path) -> list[Path]:
    """COCO's caption files in a folder or in annotations/ below it."""
    for place in (folder, folder / FOLDER):
        names = sorted(one.name for one in place.glob("*.json"))[:FILES] if place.is_dir() else []
        below = "" if place == folder else f"{FOLDER}/"
        if files := [file for file in (inside(folder, below + name) for name in names) if is_coco(file)]:
            return files
    return []


def is_coco(path: Path) -> bool:
    """Whether a .json names images by id and has captions for them, judged by its two ends."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with open(path, "rb") as file:
        ends = file.read(LOOKED_AT)
        file.seek(max(0, path.stat().st_size - LOOKED_AT))
        ends += file.read(LOOKED_AT)
    return b'"image_id"' in ends and b'"caption"' in ends and b'"sentences"' not in ends


def _split(file: Path) -> str | None:
    match = SPLIT.search(file.stem.lower())
    return None if match is None else "val" if match[1] == "minival" else split_name(match[1], str(file))


@dataclass(frozen=True)
class _Picture:
    name: str
    key: str


def _add(table: Annotations, file: Path, split: str | None, folder: str) -> None:
    whole = _parsed(file)
    pictures = dict(_named(file, number, entry, folder) for number, entry in enumerate(whole["images"]))
    captions: dict[object, list[object]] = {}
    for number, entry in enumerate(whole["annotations"]):
        if not isinstance(entry, dict) or entry.get("image_id") not in pictures:
            table.where = f"{file} annotation {number}"
            table.empty.append(f"{table.at}: a caption of no image in the file")
            continue
        captions.setdefault(entry["image_id"], []).append(entry.get("caption"))
    for number, (place, one) in enumerate(pictures.items()):
        at = f"{file} image {number}"
        table.add(one.name, captions.get(place, []), split=split, where=at, key=one.key)


def _parsed(file: Path) -> dict[str, list[Json]]:
    try:
        whole = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: not JSON ({str(error).splitlines()[0][:80]})") from error
    lists = {name: whole.get(name) if isinstance(whole, dict) else None for name in ("images", "annotations")}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise BadInput(f'{file}: no list "{name}"; COCO\'s captions_*.json has images and annotations')
    return {name: value for name, value in lists.items() if isinstance(value, list)}


def _named(file: Path, number: int, entry: Json, folder: str) -> tuple[object, _Picture]:
    place, name = (entry.get("id"), entry.get("file_name")) if isinstance(entry, dict) else (None, None)
    if not isinstance(place, int | str) or not isinstance(name, str) or not name:
        raise BadInput(f"{file} image {number}: needs id and file_name")
    return place, _Picture(name if "/" in name else folder + name, f"{file.name}:{place}")


def _folder(root: Path, file: Path) -> str:
    """Where the pictures of captions_val2017.json are: in val2017/ or val/, below images/ or not; "" for neither."""
    match = re.search(r"(train|val|test)(20\d\d)?", file.stem)
    names = [] if match is None else [match[0], match[1]]
    return next((f"{name}/" for name in names for top in (root, root / "images") if (top / name).is_dir()), "")
