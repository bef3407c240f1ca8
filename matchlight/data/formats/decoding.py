"""Bytes of a picture file -> pixels, by a short list of decoders and up to a number of pixels.

Whatever is wrong with the bytes (cut, hostile, of a kind not on the list, too large) is a `BadPicture` with a kind.
A truncated file is never half decoded.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
from PIL import Image, ImageOps

from matchlight.pairs import BadPicture

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
MAX_PIXELS = 64_000_000
DEEPEST = 4  # bytes a pixel may have on average before it is decoded: 16 bits a channel halve the pixels allowed
STRIP = 4_000_000  # pixels that are converted at a time
LARGE = 16_000_000  # pixels of a picture that is decoded alone, however many threads ask

_one_large = threading.Lock()

# Pillow warns at a limit of its own, above ours; a picture over ours is refused with one line instead.
# What it mutters about odd metadata helps nobody: a picture can be decoded or it cannot.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


def _opened(blob: bytes, name: str, max_pixels: int) -> Image.Image:
    """The picture's header read, its size checked, its pixels not decoded yet."""
    try:
        image = Image.open(io.BytesIO(blob), formats=KINDS)
        width, height = image.size
    except Image.DecompressionBombError as error:
        raise BadPicture(
            f"{name!r}: more than {max_pixels / 1e6:g} megapixels, the most allowed", "too large"
        ) from error
    except Exception as error:  # decoders raise a dozen kinds on hostile bytes
        what = "empty file" if not blob else f"no readable picture ({', '.join(KINDS)} are known)"
        raise BadPicture(f"{name!r}: {what}") from error
    if width * height > max_pixels:
        raise BadPicture(
            f"{name!r}: {width}x{height} pixels; at most {max_pixels / 1e6:g} megapixels allowed", "too large"
        )
    if (depth := _depth(image)) * width * height > DEEPEST * max_pixels:
        most = DEEPEST * max_pixels / depth / 1e6
        raise BadPicture(
            f"{name!r}: {width}x{height} pixels of {depth} bytes; at most {most:g} megapixels so deep", "too large"
        )
    return image


def _depth(image: Image.Image) -> int:
    """Bytes a pixel has in the file, uncompressed: channels times their depth."""
    wide = any("16" in str(tile.args) for tile in getattr(image, "tile", ()))  # the decoder's name for its input
    each = 4 if image.mode in ("I", "F") and not wide else 2 if wide else 1
    return len(image.getbands()) * each


@contextmanager
def _alone(image: Image.Image) -> Iterator[None]:
    """Large pictures one after the other: eight at a time would take gigabytes."""
    with _one_large if image.width * image.height > LARGE else nullcontext():
        yield


def decode(blob: bytes, name: str, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Bytes of a picture file -> RGB as a viewer shows it: upright, first frame, see-through parts on white."""
    image = _opened(blob, name, max_pixels)
    try:
        with _alone(image):
            return _rgb(ImageOps.exif_transpose(image))
    except Exception as error:
        raise BadPicture(f"{name!r}: cannot be decoded; the file is cut or damaged ({_short(error)})") from error


def thumbnail(
    blob: bytes, name: str, side: int, *, max_pixels: int = MAX_PIXELS
) -> tuple[Image.Image, tuple[int, int]]:
    """A small RGB square of the picture and its true size: the whole file is decoded, as cheaply as its kind allows."""
    image = _opened(blob, name, max_pixels)
    size = image.size
    try:
        image.draft("RGB", (4 * side, 4 * side))
        with _alone(image):
            return _rgb(image).resize((side, side), Image.Resampling.BOX), size
    except Exception as error:
        raise BadPicture(f"{name!r}: cannot be decoded; the file is cut or damaged ({_short(error)})") from error


def _rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I") or image.mode == "F":  # 16 bit: the upper byte, not a clipped one
        deep = any(np.asarray(strip).max(initial=0) > 255 for _, strip in _strips(image))
        return _converted(image, partial(_grey, divisor=257 if deep else 1))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _converted(image, _on_white)
    return image.convert("RGB")


def _grey(image: Image.Image, *, divisor: int) -> Image.Image:
    grey = np.asarray(image, dtype=np.float64)
    return Image.fromarray((grey / divisor).clip(0, 255).astype(np.uint8)).convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")


def _converted(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """A picture converted strip by strip: what a conversion needs on its way is many times the picture."""
    whole = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        whole.paste(convert(strip), (0, top))
    return whole


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    width, height = image.size
    rows = max(1, STRIP // width)
    if rows >= height:
        yield 0, image
        return
    for top in range(0, height, rows):
        yield top, image.crop((0, top, width, min(height, top + rows)))


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
