"""Pictures and captions that a program holds in lists: `Pairs.of(images, captions)`, without any file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from matchlight.console import BadInput
from matchlight.data.formats.decoding import MAX_PIXELS, decode
from matchlight.data.formats.sources import Pictures
from matchlight.pairs import BadPicture, Labels, Pairs

Picture = Image.Image | np.ndarray | str | Path  # what may stand in a list of pictures


class MemoryPictures(Pictures):
    """Pictures of PIL, arrays (height, width, 3) of bytes, and files by their paths, side by side."""

    def __init__(self, names: Sequence[str], images: Sequence[Picture], *, max_pixels: int = MAX_PIXELS):
        super().__init__(names, max_pixels=max_pixels)
        self.images = images

    def open(self, index: int) -> Image.Image:
        """The picture as RGB, turned as its camera says."""
        image = self.images[index]
        try:
            if isinstance(image, str | Path):
                return decode(Path(image).read_bytes(), self.names[index], max_pixels=self.max_pixels)
            made = Image.fromarray(image) if isinstance(image, np.ndarray) else image
            return ImageOps.exif_transpose(made).convert("RGB")
        except BadPicture:
            raise
        except (OSError, ValueError, TypeError, SyntaxError, AttributeError) as problem:
            raise BadPicture(f"{self.names[index]!r}: cannot be read ({str(problem)[:80]})") from problem

    def read(self, index: int) -> bytes:
        """The picture as a PNG file, or its own file."""
        image = self.images[index]
        if isinstance(image, str | Path):
            try:
                return Path(image).read_bytes()
            except OSError as problem:
                raise BadPicture(f"{image}: cannot be read ({problem.strerror})", "missing") from problem
        file = io.BytesIO()
        self.open(index).save(file, "PNG")
        return file.getvalue()

    def size_in_bytes(self, index: int) -> int:
        """Unknown without encoding; equal for all, so that all are looked at."""
        return 0

    def stamp(self, index: int) -> str:
        """A digest of the pixels."""
        try:
            image = self.open(index)
        except BadPicture:
            return f"{self.names[index]}:missing"
        return hashlib.blake2b(f"{image.size}".encode() + image.tobytes(), digest_size=16).hexdigest()

    def take(self, index: np.ndarray) -> MemoryPictures:
        """Some of the pictures, in this order."""
        return MemoryPictures(self._taken(index), [self.images[i] for i in index], max_pixels=self.max_pixels)


def pairs_of(
    images: Sequence[Picture],
    captions: Sequence[str | Sequence[str]],
    *,
    labels: Sequence[str] | None = None,
    split: str = "train",
) -> Pairs:
    """A caption, or a list of them, for each picture; they are called image-0, image-1, ..., files by their paths."""
    if isinstance(captions, str) or len(images) != len(captions):
        many = "one text" if isinstance(captions, str) else f"{len(captions)} captions"
        raise BadInput(f"{len(images)} images but {many}; give a caption, or a list of captions, for each image")
    each = [[one] if isinstance(one, str) else list(one) for one in captions]
    for place, texts in enumerate(each):
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise BadInput(f"captions[{place}]: {wrong[0]!r} is no text")
    for place, image in enumerate(images):
        if not isinstance(image, Picture):
            kind = type(image).__name__
            raise BadInput(f"images[{place}]: {kind}; a picture of PIL, an array or the path of a file is wanted")
    names = [str(one) if isinstance(one, str | Path) else f"image-{place}" for place, one in enumerate(images)]
    picture = np.repeat(np.arange(len(each)), [len(texts) for texts in each])
    return Pairs(
        names,
        [text for texts in each for text in texts],
        picture,
        np.full(len(names), split),
        pictures=MemoryPictures(names, list(images)),
        labels=None if labels is None else _labels(labels, picture, len(names)),
        root=Path("memory"),
    )


def _labels(given: Sequence[str], picture: np.ndarray, count: int) -> Labels:
    if len(given) != count:
        raise BadInput(f"{count} images but {len(given)} labels; give one for each image")
    names = sorted(set(map(str, given)))
    image = np.array([[name == str(one) for name in names] for one in given], dtype=bool)
    return Labels(names, image, image[picture])
