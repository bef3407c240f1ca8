"""What is in a picture and where: scenes.jsonl beside drawn pictures, {split}_cls.npy beside regions of a detector.

Only methods that read regions with boxes ask for scenes.jsonl. Pictures are found by their name, so a part of a data
set or one in another order has its own boxes; a picture the file does not know has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.safety import inside, load_npy
from matchlight.pairs import Pairs

FILE = "scenes.jsonl"
BLOCK = 256  # pictures whose class scores are looked at together
Thing = tuple[str, tuple[float, ...]]  # what it is; left, top, right, bottom and area in parts of the picture


def known(pairs: Pairs) -> bool:
    """Whether the data's folder says where things are."""
    return pairs.boxes is None and pairs.pictures is not None and (pairs.root / FILE).is_file()


def attach(pairs: Pairs) -> Pairs:
    """The same data set with boxes (N, K, 5) and class numbers (N, K), zeros and -1 behind a picture's last thing."""
    if not known(pairs):
        return pairs
    things = dict(_lines(pairs))
    kinds = {name: place for place, name in enumerate(sorted({kind for own in things.values() for kind, _ in own}))}
    most = max([1, *(len(own) for own in things.values())])
    boxes = np.zeros((len(pairs.names), most, 5), dtype=np.float32)
    objects = np.full((len(pairs.names), most), -1, dtype=np.int64)
    for row, name in enumerate(pairs.names):
        for place, (kind, box) in enumerate(things.get(_bare(name), [])):
            boxes[row, place], objects[row, place] = box, kinds[kind]
    return replace(pairs, boxes=boxes, objects=objects)


def _bare(name: str) -> str:
    return name.removeprefix("images/")


def _lines(pairs: Pairs) -> Iterator[tuple[str, list[Thing]]]:
    path = inside(pairs.root, FILE)
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _scene(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError) as error:
                raise BadInput(f"{path} line {number}: no scene as `matchlight data scenes` writes them") from error


def _scene(scene: dict[str, Any]) -> tuple[str, list[Thing]]:
    width, height = scene["size"]
    return _bare(scene["image"]), [
        (str(group["object"]), _parts(box, width, height)) for group in scene["groups"] for box in group["boxes"]
    ]


def _parts(box: list[float], width: float, height: float) -> tuple[float, ...]:
    left, top, right, bottom = box
    area = (right - left) * (bottom - top) / (width * height)
    return left / width, top / height, right / width, bottom / height, area


def region_classes(folder: Path, split: str, pictures: int) -> np.ndarray | None:
    """(N, R) the likeliest class of each region, from a detector's scores (N, R, classes) or class numbers (N, R)."""
    path = folder / f"{split}_cls.npy"
    if not path.exists():
        return None
    classes = load_npy(inside(folder, path.name))
    if len(classes) != pictures or classes.ndim not in (2, 3):
        raise BadInput(f"{path}: shape {classes.shape}; {pictures} x regions x classes (or x regions) is needed")
    if classes.ndim == 2:
        return np.asarray(classes, dtype=np.int64)
    return np.concatenate([classes[start : start + BLOCK].argmax(2) for start in range(0, pictures, BLOCK)])


def joined_classes(parts: list[np.ndarray | None], counts: list[int]) -> np.ndarray | None:
    """The classes of all splits; splits without any (the authors of the layout keep them for training only) have -1."""
    widths = {part.shape[1] for part in parts if part is not None}
    if len(widths) != 1:
        return None
    none = [np.full((count, max(widths)), -1, dtype=np.int64) for count in counts]
    return np.concatenate([gap if part is None else part for part, gap in zip(parts, none, strict=True)])
