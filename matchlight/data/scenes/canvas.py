"""A canvas: the few strokes all backdrops are made of, in the light of a time of day.

Everything is given as parts of the canvas, so that any picture size looks alike.
"""

from __future__ import annotations

import math
from random import Random

from PIL import Image, ImageColor, ImageDraw, ImageOps

Colour = str | tuple[int, int, int]
SKIES = {"day": ("#86c9f4", "#e4f5fb"), "sunset": ("#f2876f", "#fde3ac"), "night": ("#18224d", "#4a5a96")}
LIGHT: dict[str | None, tuple[str, float]] = {"sunset": ("#e8795a", 0.22), "night": ("#1f2b63", 0.42)}


def blend(colour: Colour, other: Colour, part: float) -> tuple[int, int, int]:
    """A colour with a part of another mixed in."""
    a, b = (ImageColor.getrgb(c)[:3] if isinstance(c, str) else c for c in (colour, other))
    return tuple(round(x + (y - x) * part) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


class Canvas:
    """A picture being painted, with the few strokes that backdrops are made of."""

    def __init__(self, size: tuple[int, int], time: str | None, rng: Random):
        self.width, self.height = size
        self.time, self.rng = time, rng
        self.image = Image.new("RGB", size)
        self.pen = ImageDraw.Draw(self.image)

    def lit(self, colour: Colour) -> tuple[int, int, int]:
        """The colour in this time's light."""
        tint, part = LIGHT.get(self.time, ("#000000", 0.0))
        return blend(colour, tint, part)

    def gradient(self, upper: Colour, lower: Colour, top: float = 0.0, bottom: float = 1.0) -> None:
        """Fill from one height to another, one colour fading into the other."""
        first, last = round(top * self.height), round(bottom * self.height)
        ramp = Image.linear_gradient("L").resize((self.width, max(1, last - first)))
        self.image.paste(ImageOps.colorize(ramp, upper, lower), (0, first))  # type: ignore[arg-type]

    def hills(self, height: float, swing: float, colour: Colour, waves: float = 1.5) -> None:
        """Rolling land from an uneven edge down to the bottom."""
        first, second = self.rng.uniform(0, 6.3), self.rng.uniform(0, 6.3)
        steps = 48
        points = []
        for step in range(steps + 1):
            turn = waves * 6.283 * step / steps
            rise = 0.7 * math.sin(turn + first) + 0.3 * math.sin(2.3 * turn + second)
            points.append((self.width * step / steps, self.height * (height + swing * rise)))
        self.pen.polygon([(0, self.height), *points, (self.width, self.height)], fill=self.lit(colour))

    def peaks(self, height: float, rise: float, colour: Colour, cap: Colour | None, count: int) -> None:
        """A row of pointed shapes (mountains); `cap` paints their tips."""
        for k in range(count):
            x = self.width * (k + self.rng.uniform(0.2, 0.8)) / count
            tall = self.height * rise * self.rng.uniform(0.7, 1.0)
            base, half = self.height * height, tall * self.rng.uniform(0.8, 1.0)
            self.pen.polygon([(x - half, base), (x, base - tall), (x + half, base)], fill=self.lit(colour))
            if cap is not None:
                tip = [(x - half * 0.3, base - tall * 0.7), (x, base - tall), (x + half * 0.3, base - tall * 0.7)]
                self.pen.polygon([*tip, (x + half * 0.1, base - tall * 0.78)], fill=self.lit(cap))

    def specks(self, count: int, top: float, bottom: float, radius: float, colours: list[Colour]) -> None:
        """Small dots: flowers, stars, snow, pebbles."""
        for _ in range(count):
            x, y = self.rng.uniform(0, self.width), self.rng.uniform(top, bottom) * self.height
            r = max(1.0, radius * self.height * self.rng.uniform(0.6, 1.2))
            self.pen.ellipse((x - r, y - r, x + r, y + r), fill=self.rng.choice(colours))

    def strokes(self, count: int, top: float, bottom: float, length: float, colour: Colour) -> None:
        """Short level lines: waves, furrows, ripples in sand."""
        thick = max(1, round(0.008 * self.height))
        for _ in range(count):
            x, y = self.rng.uniform(0, self.width), self.rng.uniform(top, bottom) * self.height
            long = length * self.width * self.rng.uniform(0.5, 1.0)
            self.pen.line((x, y, x + long, y), fill=colour, width=thick)

    def box(
        self, left: float, top: float, right: float, bottom: float, fill: Colour, outline: Colour | None = None
    ) -> None:
        """A rectangle."""
        corners = (left * self.width, top * self.height, right * self.width, bottom * self.height)
        self.pen.rectangle(corners, fill=fill, outline=outline, width=max(1, round(0.014 * self.height)))

    def sky(self, horizon: float) -> None:
        """The sky of this time of day; small stars at night."""
        upper, lower = SKIES[self.time or "day"]
        self.gradient(upper, lower, 0.0, horizon)
        if self.time == "night":
            self.specks(24, 0.0, 0.45, 0.004, ["#c9d3f5", "#9fb0e0"])
