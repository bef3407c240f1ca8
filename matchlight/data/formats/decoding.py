"""Bytes of a picture file -> pixels, by a short list of decoders and up to a number of pixels.

Pictures come upright (the camera's orientation is applied) and in RGB. A JPEG above 16 megapixels is decoded at a half,
a quarter or an eighth of its size, which its kind allows at little cost: models look at far fewer pixels. HEIC is read
where the package pillow-heif is installed, AVIF by Pillow 11.3 or newer.

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
from PIL import ExifTags, Image, ImageOps, features

from matchlight.pairs import BadPicture

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm"),
    *(".heic", ".heif", ".avif"),
)
AVIF, HEIF = (b"avif", b"avis"), (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands
MAX_PIXELS = 64_000_000
DEEPEST = 4  # bytes a pixel may have on average before it is decoded: 16 bits a channel halve the pixels allowed
STRIP = 4_000_000  # pixels that are converted at a time
LARGE = 16_000_000  # pixels of a picture that is decoded alone, however many threads ask; of a JPEG, reduced
ENOUGH = 1024  # pixels that both sides of a reduced JPEG keep
HUGE = 4  # times as many pixels as are allowed may a JPEG have that is reduced to fewer
LYING = (5, 6, 7, 8)  # orientations of a camera that was held on its side
FULL_SIZE = "full_size"  # in `info` of a picture that was reduced: width and height as in the file, upright

_one_large = threading.Lock()

# Pillow warns at a limit of its own, above ours; a picture over ours is refused with one line instead.
# What it mutters about odd metadata helps nobody: a picture can be decoded or it cannot.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


def _opened(blob: bytes, name: str, max_pixels: int) -> Image.Image:
    """The picture's header read, its size checked, its pixels not decoded yet."""
    kinds = _kinds(blob, name)
    try:
        image = Image.open(io.BytesIO(blob), formats=kinds)
        width, height = _reduced(image, max_pixels).size
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


def _kinds(blob: bytes, name: str) -> tuple[str, ...]:
    """The decoders to try; those of a phone's files are loaded when one is met."""
    if blob[4:8] != b"ftyp":
        return KINDS
    if blob[8:12] in AVIF:
        if not features.check("avif"):
            raise BadPicture(f"{name!r}: an AVIF picture, which Pillow 11.3 or newer reads: pip install -U pillow")
        return ("AVIF",)
    if blob[8:12] in HEIF:
        return (_load_heif(name),)
    return KINDS


def _load_heif(name: str) -> str:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise BadPicture(f"{name!r}: a HEIC picture; pip install 'matchlight[heif]' to read those") from None
    register_heif_opener(thumbnails=False)
    return "HEIF"


def _reduced(image: Image.Image, max_pixels: int) -> Image.Image:
    """A large JPEG set to be decoded at a smaller scale; anything else as it is."""
    pixels = image.width * image.height
    if image.format == "JPEG" and LARGE < pixels <= HUGE * max_pixels:
        size = image.size
        image.draft(None, (ENOUGH, ENOUGH))
        image.info[FULL_SIZE] = size
    return image


def _upright(image: Image.Image) -> tuple[Image.Image, tuple[int, int]]:
    """As the camera was held, and the size of the whole picture so held."""
    size, width = true_size(image), image.width
    made = ImageOps.exif_transpose(image)
    return made, size if made.width == width else (size[1], size[0])


def true_size(image: Image.Image) -> tuple[int, int]:
    """Width and height of the picture in its file, upright."""
    size: tuple[int, int] = image.info.get(FULL_SIZE, image.size)
    return size


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
            upright, size = _upright(image)
            made = _rgb(upright)
        made.info = {FULL_SIZE: size} if size != made.size else {}
        return made
    except Exception as error:
        raise BadPicture(f"{name!r}: cannot be decoded; the file is cut or damaged ({_short(error)})") from error


def notes_of(blob: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Exif:
    """What the camera wrote into a picture file (EXIF); no pixel is decoded."""
    return _opened(blob, "the picture", max_pixels).getexif()


def thumbnail(
    blob: bytes, name: str, side: int, *, max_pixels: int = MAX_PIXELS
) -> tuple[Image.Image, tuple[int, int]]:
    """A small RGB square of the picture and its true size, upright: all is decoded, as cheaply as its kind allows."""
    image = _opened(blob, name, max_pixels)
    image.info.setdefault(FULL_SIZE, image.size)
    try:
        image.draft("RGB", (4 * side, 4 * side))
        with _alone(image):
            upright, size = _upright(image)
            return _rgb(upright).resize((side, side), Image.Resampling.BOX), size
    except Exception as error:
        raise BadPicture(f"{name!r}: cannot be decoded; the file is cut or damaged ({_short(error)})") from error


def decoded_size(blob: bytes, name: str, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """The picture's true size, upright. All of it is decoded, so that damage is found, and no pixel is kept."""
    image = _opened(blob, name, max_pixels)
    image.info.setdefault(FULL_SIZE, image.size)
    try:
        image.draft("RGB", (1, 1))
        with _alone(image):
            image.load()
        width, height = true_size(image)
        return (height, width) if image.getexif().get(ExifTags.Base.Orientation) in LYING else (width, height)
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
