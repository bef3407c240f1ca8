"""Rendering: backdrop, soft shadows, then the cut-outs from far to near, reduced to the picture's size."""

from __future__ import annotations

import io
from random import Random

from PIL import Image, ImageDraw, ImageFilter

from matchlight.data.scenes.backdrops import backdrop
from matchlight.data.scenes.compose import FINE, Layout

WASH = {"sunset": ("#ff9a5c", 0.08), "night": ("#10194a", 0.1)}  # the light of the hour falls on the cut-outs too


def render(layout: Layout, rng: Random, size: tuple[int, int]) -> Image.Image:
    """The picture of a layout."""
    fine = (size[0] * FINE, size[1] * FINE)
    canvas = backdrop(layout.place.name, layout.time, rng, fine).convert("RGBA")
    _shadows(canvas, layout)
    for group, thing in _far_to_near(layout):
        canvas.alpha_composite(layout.cutouts[group][thing], layout.corners[group][thing])
    picture = canvas.convert("RGB")
    if layout.time in WASH:
        colour, part = WASH[layout.time]
        picture = Image.blend(picture, Image.new("RGB", fine, colour), part)
    return picture.reduce(FINE)


def encode(picture: Image.Image) -> bytes:
    """The picture as a WebP file."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=88, method=4)
    return file.getvalue()


def _far_to_near(layout: Layout) -> list[tuple[int, int]]:
    """(group, thing) in drawing order: what floats first, then by where the feet are."""
    order = [(g, t) for g in range(len(layout.groups)) for t in range(layout.groups[g]["count"])]
    return sorted(order, key=lambda at: (layout.groups[at[0]]["stands"], layout.groups[at[0]]["boxes"][at[1]][3]))


def _shadows(canvas: Image.Image, layout: Layout) -> None:
    """A blurred ellipse under each thing that stands; a pale ripple where it stands in water."""
    for home, colour, strength in (("w", "#ffffff", 90), ("", "#1c2340", 105)):
        layer = Image.new("L", canvas.size)
        pen = ImageDraw.Draw(layer)
        for group, where in enumerate(layout.homes):
            if layout.groups[group]["stands"] and (where == "w") == (home == "w"):
                for cutout, (x, y) in zip(layout.cutouts[group], layout.corners[group], strict=True):
                    foot, high = y + cutout.height, max(2.0, 0.07 * cutout.width)
                    pen.ellipse((x + 1, foot - high * 1.3, x + cutout.width - 1, foot + high * 0.7), fill=strength)
        if layer.getbbox():
            soft = layer.filter(ImageFilter.GaussianBlur(0.012 * canvas.height))
            canvas.paste(Image.new("RGBA", canvas.size, colour), (0, 0), soft)
