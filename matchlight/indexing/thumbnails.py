"""Thumbnails: every picture small, upright and re-encoded, so that an index shows what it found without the data."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

from matchlight.data.formats.decoding import true_size
from matchlight.inputs.preprocessing import UNREADABLE
from matchlight.pairs import PictureSource

LONGEST, QUALITY = 320, 82


def thumbnail(image: Image.Image, *, longest: int = LONGEST) -> bytes:
    """JPEG bytes, no side longer than `longest`; nothing of the file's own metadata is kept."""
    small = image.convert("RGB")
    small.thumbnail((longest, longest), Image.Resampling.BILINEAR, reducing_gap=2.0)
    small.info = {}
    out = io.BytesIO()
    small.save(out, "JPEG", quality=QUALITY, optimize=False)
    return out.getvalue()


def thumbnails(source: PictureSource, places: np.ndarray) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Thumbnails and true sizes (width, height), in order; nothing and (0, 0) for a picture that cannot be read."""

    def one(place: int) -> tuple[bytes, tuple[int, int]]:
        try:
            image = source.open(place)
            return thumbnail(image), true_size(image)
        except UNREADABLE:
            return b"", (0, 0)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(places), 256):  # so that few finished ones wait in memory
            yield from pool.map(one, places[start : start + 256].tolist())
