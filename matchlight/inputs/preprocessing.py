"""From a picture of any shape to the pixels a network was trained to see: size, squashed or cropped, resampling.

A network states this in its `preprocessor_config.json`. Shown anything else it works, but worse: a transformer that saw
crops of 224 pixels is slower and no better at the size of its position table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from PIL import Image

from matchlight.console import BadInput

Size = tuple[int, int]  # height, width
Resample = Literal["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"]
BY_NUMBER: dict[int, Resample] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
Frame = Literal["whole", "stated"]  # all of a picture, squashed, or the part that the network's preprocessor shows it
HALF = (0.5, 0.5, 0.5)
USUAL = 224
UNREADABLE = (BadInput, OSError, ValueError, SyntaxError, Image.DecompressionBombError)  # what Pillow and sources raise


def as_size(size: int | tuple[int, int] | list[int]) -> Size:
    """One number is a square; two are height, width."""
    height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    if min(height, width) < 1 or max(height, width) > 4096:
        raise BadInput(f"a picture size of {height} x {width} cannot be used; both sides must lie in 1..4096")
    return height, width


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes pixels of one size; means and deviations are of pixels in 0..1."""

    size: Size = (USUAL, USUAL)
    shorter: int | None = None  # the shorter side before a centre crop to `size`; None: the whole picture, squashed
    resample: Resample = "bilinear"
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    reducing: bool = True  # large pictures are first halved by whole factors, which is fast and hardly differs
    even: bool = False  # a middle between two pixels is moved to the even one (torchvision); else down (transformers)

    def pixels(self, image: Image.Image) -> np.ndarray:
        """(3, height, width) uint8; smaller pictures are averaged down, not sampled."""
        image = image.convert("RGB")
        height, width = self._before_crop(image)
        way = Image.Resampling[self.resample.upper()]
        image = image.resize((width, height), way, reducing_gap=2.0 if self.reducing else None)
        return np.asarray(self._cropped(image)).transpose(2, 0, 1)

    def _before_crop(self, image: Image.Image) -> Size:
        """Height and width the picture is resized to; the longer side is rounded down, as the models' makers do."""
        if self.shorter is None:
            return self.size
        width, height = image.size
        longer = int(self.shorter * max(width, height) / min(width, height))
        return (self.shorter, longer) if height <= width else (longer, self.shorter)

    def _cropped(self, image: Image.Image) -> Image.Image:
        """The middle of the picture; what lies outside a smaller one is black."""
        if self.shorter is None:
            return image
        height, width = self.size
        rounded = round if self.even else math.floor
        top, left = rounded((image.height - height) / 2), rounded((image.width - width) / 2)
        return image.crop((left, top, left + width, top + height))

    def at(self, size: Size) -> Preprocessing:
        """The same for another size: a crop keeps its share of the shorter side."""
        shorter = None if self.shorter is None else round(self.shorter * min(size) / min(self.size))
        return replace(self, size=size, shorter=shorter)


def stated(config: Mapping[str, object]) -> Preprocessing:
    """What a `preprocessor_config.json` says."""
    resize = config.get("size") if config.get("do_resize", True) else None
    edge = resize if isinstance(resize, int) else resize.get("shortest_edge") if isinstance(resize, dict) else None
    crop = config.get("crop_size") if config.get("do_center_crop", isinstance(edge, int)) else None
    size = _sides(crop) or _sides(resize) or (USUAL, USUAL)
    shorter = edge if crop is not None and isinstance(edge, int) else None
    return Preprocessing(
        as_size(size), shorter, _resample(config), _colours(config, "image_mean"), _colours(config, "image_std"),
        reducing=False,
    )  # fmt: skip


def _sides(value: object) -> Size | None:
    if isinstance(value, int):
        return value, value
    if not isinstance(value, dict):
        return None
    edge = value.get("shortest_edge")
    height, width = value.get("height", edge), value.get("width", edge)
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None


def _resample(config: Mapping[str, object]) -> Resample:
    number = config.get("resample", 2)
    return BY_NUMBER[number] if isinstance(number, int) and number in BY_NUMBER else "bilinear"


def _colours(config: Mapping[str, object], name: str) -> tuple[float, ...]:
    """A mean or deviation a channel; 0 and 1 where the model is not normalised."""
    if not config.get("do_normalize", True):
        return (0.0,) * 3 if name == "image_mean" else (1.0,) * 3
    value = config.get(name, HALF)
    values = [value] * 3 if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise BadInput(f"preprocessor_config.json: {name}={value!r:.60} is no list of three numbers")
    return tuple(float(v) for v in values)


def known_resample(name: str) -> Resample:
    """A way of resampling by its name."""
    for known in get_args(Resample):
        if name == known:
            return known
    raise BadInput(f"{name!r} is no way of resampling; known: {', '.join(get_args(Resample))}")
