"""Karpathy's JSON (dataset_coco.json, dataset_flickr30k.json): images with sentences, a file name and a split.

`restval` is train. Pictures lie in images/, images.tar or beside the file, under `filepath` where the entry has one.
"""

from __future__ import annotations

import json
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data.formats.annotations import Annotations
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.picture_files import with_pictures_beside
from matchlight.data.formats.safety import inside
from matchlight.files import Json
from matchlight.pairs import Pairs

OTHERS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json")  # of Hugging Face datasets


class Karpathy(Format):
    """dataset_*.json: the file, or the folder that holds one."""

    name = "karpathy"

    def fits(self, path: Path) -> bool:
        """By name."""
        return find(path) is not None if path.is_dir() else path.suffix.lower() == ".json"

    def read(self, path: Path, options: Options) -> Pairs:
        """Read a dataset_*.json, or the one in a folder."""
        if path.is_dir():
            found = find(path)
            if found is None:
                raise BadInput(f"{path}: no dataset_*.json")
            path = found
        table = Annotations(path)
        for number, image in enumerate(_images(path)):
            at = f"{path} image {number}"
            sentences = image.get("sentences") if isinstance(image, dict) else None
            if not isinstance(image, dict) or not isinstance(sentences, list):
                raise BadInput(f"{at}: needs filename, split and sentences")
            table.add(_name(image), [_raw(s, at) for s in sentences], split=image.get("split"), where=at)
        return with_pictures_beside(table, self.name, path.parent, options)


def find(folder: Path) -> Path | None:
    """The dataset_*.json of a folder."""
    named = sorted(folder.glob("dataset_*.json")) + sorted(folder.glob("dataset.json"))
    files = [file for file in named if file.name not in OTHERS]
    if len(files) > 1:
        raise BadInput(
            f"{folder}: several of them ({', '.join(file.name for file in files[:3])}); name the file itself"
        )
    return inside(folder, files[0].name) if files else None


def _images(path: Path) -> list[Json]:
    try:
        whole = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({str(error).splitlines()[0][:80]})") from error
    images = whole.get("images") if isinstance(whole, dict) else None
    if not isinstance(images, list):
        raise BadInput(f'{path}: no list "images"; this is not a Karpathy file')
    return images


def _name(image: dict[str, Json]) -> Json:
    folder, name = image.get("filepath"), image.get("filename")
    return f"{folder}/{name}" if isinstance(folder, str) and folder and isinstance(name, str) else name


def _raw(sentence: Json, at: str) -> str:
    raw, tokens = (sentence.get("raw"), sentence.get("tokens")) if isinstance(sentence, dict) else (None, None)
    if isinstance(raw, str):
        return raw
    if isinstance(tokens, list):
        return " ".join(map(str, tokens))
    raise BadInput(f"{at}: a sentence needs raw or tokens")
