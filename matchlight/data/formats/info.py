"""What a data set holds and what is wrong with it: the answer of `matchlight data info`.

With `check`, every picture is decoded and every feature row looked at; problems are counted by kind with examples.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from matchlight.console import BadInput, track
from matchlight.data.formats.annotations import EXAMPLES
from matchlight.data.formats.decoding import MAX_PIXELS, decoded_size
from matchlight.data.formats.safety import bad_rows
from matchlight.data.near_duplicates import in_threads
from matchlight.pairs import BadPicture, FeatureSource, Labels, Pairs, PictureSource, Problem

SAMPLE = 200  # pictures whose size is looked at without `check`
BLOCK = 1024


class Labelled(TypedDict):
    """The labels of a data set."""

    classes: int
    names: list[str]
    single: bool  # every item has exactly one class
    per_picture: dict[str, float]


class Extent(TypedDict):
    """Sizes of the pictures looked at."""

    looked_at: int
    width: dict[str, float]
    height: dict[str, float]


class ProblemInfo(TypedDict):
    """One kind of problem, how often, and a few examples."""

    kind: str
    count: int
    examples: list[str]


class Info(TypedDict):
    """What `matchlight data info --json` prints."""

    format: str
    pictures: int
    captions: int
    splits: dict[str, dict[str, int]]
    captions_per_picture: dict[str, float]
    labels: Labelled | None
    picture_sizes: Extent | None
    features: list[int] | None
    regions: int | None
    text_features: list[int] | None
    boxes: list[int] | None
    relevance: int | None
    problems: list[ProblemInfo]


def info(pairs: Pairs, check: bool = True) -> Info:
    """Counts, sizes and problems as plain JSON values."""
    looked = _looked_at(pairs, check)
    problems = _merged(pairs.problems, looked.problems(pairs) if looked and check else [])
    if check:
        problems += _repeated(pairs) + _not_finite(pairs)
    counts = np.bincount(pairs.picture, minlength=len(pairs.names))
    return {
        "format": pairs.format,
        "pictures": len(pairs.names),
        "captions": len(pairs),
        "splits": {name: _split(pairs, name) for name in pairs.split_names},
        "captions_per_picture": _spread(counts, "mean"),
        "labels": _labels(pairs.labels),
        "picture_sizes": looked.sizes() if looked else None,
        "features": None if pairs.features is None else list(pairs.features.shape),
        "regions": _regions(pairs.features),
        "text_features": None if pairs.text_features is None else list(pairs.text_features.shape),
        "boxes": None if pairs.boxes is None else list(pairs.boxes.shape),
        "relevance": None if pairs.relevance is None else int(pairs.relevance.nnz),
        "problems": [{"kind": p.kind, "count": p.count, "examples": p.examples} for p in problems],
    }


def _split(pairs: Pairs, name: str) -> dict[str, int]:
    return {"pictures": len(pairs.pictures_of(name)), "captions": len(pairs.rows(name))}


def _spread(values: np.ndarray, middle: str) -> dict[str, float]:
    if not len(values):
        return {"min": 0, middle: 0, "max": 0}
    centre = float(np.mean(values) if middle == "mean" else np.median(values))
    return {"min": int(values.min()), middle: round(centre, 3), "max": int(values.max())}


def _labels(labels: Labels | None) -> Labelled | None:
    if labels is None:
        return None
    return {
        "classes": len(labels.names),
        "names": list(labels.names),
        "single": labels.single,
        "per_picture": _spread(labels.image.sum(1), "mean"),
    }


def _regions(features: FeatureSource | None) -> int | None:
    return None if features is None else features.shape[1] if len(features.shape) == 3 else 1


class Looked:
    """What looking at pictures gave: sizes, digests, and what was wrong."""

    def __init__(self, pictures: PictureSource, places: np.ndarray):
        self.extent: list[tuple[int, int]] = []
        self.same: dict[bytes, list[int]] = defaultdict(list)
        self.wrong: dict[str, list[str]] = defaultdict(list)
        for place, seen in zip(
            places.tolist(), in_threads(_looker(pictures), places, "looking at pictures"), strict=True
        ):
            self._note(place, seen)

    def _note(self, place: int, seen: tuple[bytes, tuple[int, int]] | BadPicture) -> None:
        if isinstance(seen, BadPicture):
            self.wrong[seen.kind].append(str(seen))
        else:
            self.same[seen[0]].append(place)
            self.extent.append(seen[1])

    def sizes(self) -> Extent | None:
        """Smallest, middle and largest width and height."""
        if not self.extent:
            return None
        width, height = np.array(self.extent).T
        return {"looked_at": len(width), "width": _spread(width, "median"), "height": _spread(height, "median")}

    def problems(self, pairs: Pairs) -> list[Problem]:
        """Unreadable, missing and repeated pictures among those looked at."""
        found = [Problem(kind, len(lines), lines[:EXAMPLES]) for kind, lines in self.wrong.items()]
        twins = [places for places in self.same.values() if len(places) > 1]
        found += _listed("duplicate", [_equal(pairs, places) for places in twins], sum(map(len, twins)) - len(twins))
        leaks = [places for places in twins if len(set(pairs.splits[places].tolist()) - {"testall"}) > 1]
        return found + _listed("in two splits", [_equal(pairs, places) for places in leaks], len(leaks))


def _listed(kind: str, lines: list[str], count: int) -> list[Problem]:
    return [Problem(kind, count, lines[:EXAMPLES])] if lines else []


def _equal(pairs: Pairs, places: list[int]) -> str:
    return " = ".join(f"{pairs.names[place]} ({pairs.splits[place]})" for place in places[:3])


def _looked_at(pairs: Pairs, check: bool) -> Looked | None:
    if pairs.pictures is None:
        return None
    count = len(pairs.pictures)
    places = np.arange(count) if check else np.unique(np.linspace(0, count - 1, min(SAMPLE, count)).astype(int))
    return Looked(pairs.pictures, places)


def _looker(pictures: PictureSource) -> Callable[[int], tuple[bytes, tuple[int, int]] | BadPicture]:
    """A function of a place: the file's digest and the picture's size, or what is wrong with it."""
    limit = getattr(pictures, "max_pixels", MAX_PIXELS)
    names = getattr(pictures, "names", None)

    def look(index: int) -> tuple[bytes, tuple[int, int]] | BadPicture:
        try:
            blob = pictures.read(index)
            size = decoded_size(blob, names[index] if names else str(index), max_pixels=limit)
        except BadPicture as error:
            return error
        return hashlib.blake2b(blob, digest_size=16).digest(), size

    return look


def _merged(reading: list[Problem], looking: list[Problem]) -> list[Problem]:
    """Problems of reading, those that looking counted again replaced."""
    again = {problem.kind for problem in looking}
    return [problem for problem in reading if problem.kind not in again] + looking


def _repeated(pairs: Pairs) -> list[Problem]:
    """Captions written twice for one picture."""
    if pairs.text_features is not None:
        return []
    seen: set[tuple[int, str]] = set()
    twice = []
    for row, (number, caption) in enumerate(zip(pairs.picture.tolist(), pairs.captions, strict=True)):
        if (number, caption) in seen:
            twice.append(f"row {row}: {pairs.names[number]}: {caption[:60]}")
        seen.add((number, caption))
    return _listed("duplicate caption", twice, len(twice))


def _not_finite(pairs: Pairs) -> list[Problem]:
    """Feature rows with NaN or infinite values."""
    source = pairs.features
    if source is None:
        return []
    bad: list[int] = []
    for start in track(range(0, len(source), BLOCK), "looking at features"):
        index = np.arange(start, min(start + BLOCK, len(source)))
        try:
            bad += index[bad_rows(source.gather(index))].tolist()
        except BadInput:
            bad += [row for row in index.tolist() if _refused(source, row)]
    return _listed("not finite", [f"features row {row}: {pairs.names[row]}" for row in bad], len(bad))


def _refused(source: FeatureSource, row: int) -> bool:
    try:
        return len(bad_rows(source.gather(np.array([row])))) > 0
    except BadInput:
        return True
