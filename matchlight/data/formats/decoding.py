"""Bytes of a picture file -> pixels, by a short list of decoders and up to a number of pixels.

Whatever is wrong with the bytes (cut, hostile, of a kind not on the list, too large) is a `BadPicture` with a kind.
A truncated file is never half decoded.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image, ImageOps

from matchlight.pairs import BadPicture

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
MAX_PIXELS = 64_000_000

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
    return image


def decode(blob: bytes, name: str, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Bytes of a picture file -> RGB as a viewer shows it: upright, first frame, see-through parts on white."""
    image = _opened(blob, name, max_pixels)
    try:
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
        image.load()
        return _rgb(image).resize((side, side), Image.Resampling.BOX), size
    except Exception as error:
        raise BadPicture(f"{name!r}: cannot be decoded; the file is cut or damaged ({_short(error)})") from error


def _rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I") or image.mode == "F":  # 16 bit: the upper byte, not a clipped one
        grey = np.asarray(image, dtype=np.float64)
        return Image.fromarray(
            (grey / (257 if grey.max(initial=0) > 255 else 1)).clip(0, 255).astype(np.uint8)
        ).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    return image.convert("RGB")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
