"""Backdrops: each place painted with gradients, hills and a few details, none of which a caption ever names."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from PIL import Image

from matchlight.data.scenes.canvas import Canvas, blend


def meadow(c: Canvas) -> None:
    """Green hills and dots of flowers."""
    c.sky(0.62)
    c.hills(0.5, 0.04, "#a9d884")
    c.hills(0.58, 0.03, "#8fcb69", 1.0)
    c.specks(46, 0.64, 0.99, 0.01, [c.lit(f) for f in ("#fff6f0", "#ffd36e", "#f7a8c4", "#c9b3ee")])


def beach(c: Canvas) -> None:
    """Sky, a strip of sea, and sand."""
    c.sky(0.44)
    c.gradient(c.lit("#4fb3d9"), c.lit("#8ad7e6"), 0.42, 0.66)
    c.strokes(9, 0.45, 0.58, 0.1, c.lit("#d4f1f7"))
    c.hills(0.63, 0.012, "#fdfaf0", 1.0)
    c.hills(0.65, 0.012, "#f3dfa8", 1.0)
    c.specks(26, 0.7, 0.99, 0.006, [c.lit("#dcc487"), c.lit("#fff4d2")])


def snow(c: Canvas) -> None:
    """White hills under falling flakes."""
    c.sky(0.62)
    c.hills(0.5, 0.05, "#d3e4f2")
    c.hills(0.59, 0.03, "#f2f8fd", 1.0)
    c.strokes(8, 0.7, 0.98, 0.1, c.lit("#dbe8f3"))
    c.specks(40, 0.0, 0.98, 0.008, [c.lit("#ffffff"), blend(c.lit("#ffffff"), "#ffffff", 0.6)])


def street(c: Canvas) -> None:
    """Pale house fronts, a pavement and a road with a dashed line."""
    c.sky(0.62)
    x = 0.0
    while x < 1.0:
        wide, top = c.rng.uniform(0.1, 0.18), c.rng.uniform(0.2, 0.42)
        wall = c.rng.choice(("#c9ccd9", "#d9cfc9", "#cbd6d2", "#d3cbd9"))
        c.box(x, top, x + wide, 0.62, c.lit(wall))
        pane = "#ffe9a3" if c.time == "night" else c.lit("#eef3f7")
        for row in range(int((0.56 - top) / 0.085)):
            for column in (0.22, 0.62):
                left, high = x + wide * column, top + 0.035 + 0.085 * row
                c.box(left, high, left + wide * 0.2, high + 0.04, pane)
        x += wide
    c.box(0, 0.6, 1, 0.7, c.lit("#c6c2bb"))
    c.box(0, 0.7, 1, 1, c.lit("#8d9096"))
    for k in range(6):
        c.box(k / 6 + 0.03, 0.84, k / 6 + 0.11, 0.855, c.lit("#f4f1e6"))


def desert(c: Canvas) -> None:
    """Dunes one behind the other."""
    c.sky(0.6)
    c.hills(0.48, 0.06, "#f0c98a", 1.0)
    c.hills(0.56, 0.05, "#e9b66d", 1.3)
    c.hills(0.68, 0.04, "#efc27e", 0.8)
    c.strokes(12, 0.74, 0.98, 0.12, c.lit("#dda75c"))


def forest(c: Canvas) -> None:
    """Misty trunks and leaves behind a dark green floor."""
    c.sky(0.64)
    for layer, (green, trunk) in enumerate((("#b7d4b5", "#b4bfa6"), ("#93bf93", "#97a283"))):
        for k in range(7):
            x, wide = (k + c.rng.uniform(0.1, 0.9)) / 7, 0.018 + 0.008 * layer
            top = c.rng.uniform(-0.05, 0.15) + 0.08 * layer
            c.box(x - wide / 2, top, x + wide / 2, 0.64, c.lit(trunk))
            for part in range(3):
                half, low = 0.05 + 0.018 * part, top + 0.13 + 0.11 * part
                points = [((x - half) * c.width, low * c.height), ((x + half) * c.width, low * c.height)]
                c.pen.polygon([*points, (x * c.width, (low - 0.17) * c.height)], fill=c.lit(green))
    c.hills(0.6, 0.02, "#6ea362")
    c.hills(0.72, 0.02, "#7fb26d", 1.0)
    c.specks(24, 0.66, 0.99, 0.008, [c.lit("#5c9152"), c.lit("#98c47f")])


def playground(c: Canvas) -> None:
    """A lawn, a soft red surface, a swing frame and a fence far away."""
    c.sky(0.6)
    for k in range(21):
        c.box(k / 20 - 0.012, 0.47, k / 20 + 0.012, 0.6, c.lit("#f6ead6"))
    c.box(0, 0.5, 1, 0.52, c.lit("#f6ead6"))
    c.box(0, 0.58, 1, 1, c.lit("#a5d67f"))
    c.hills(0.72, 0.012, "#e3987f", 0.7)
    left, thick = c.rng.uniform(0.05, 0.65), max(2, round(0.014 * c.height))
    for a, b in (((0, 0.66), (0.03, 0.33)), ((0.03, 0.33), (0.06, 0.66)), ((0.03, 0.33), (0.27, 0.33))):
        ends = [((left + x) * c.width, y * c.height) for x, y in (a, b)]
        c.pen.line(ends, fill=c.lit("#7f9fc9"), width=thick)
    for a, b in (((0.24, 0.66), (0.27, 0.33)), ((0.27, 0.33), (0.3, 0.66))):
        c.pen.line([((left + x) * c.width, y * c.height) for x, y in (a, b)], fill=c.lit("#7f9fc9"), width=thick)
    for x in (0.1, 0.14, 0.19, 0.23):
        c.box(left + x, 0.33, left + x + 0.004, 0.54, c.lit("#b7b7b7"))
    for x in (0.1, 0.19):
        c.box(left + x, 0.54, left + x + 0.045, 0.56, c.lit("#e8b04b"))


def farm(c: Canvas) -> None:
    """Fields in stripes and a white fence."""
    c.sky(0.56)
    c.hills(0.46, 0.03, "#cfdc8a", 1.0)
    c.box(0, 0.52, 1, 1, c.lit("#d9b97e"))
    middle = c.rng.uniform(0.3, 0.7) * c.width
    for k in range(-14, 15, 2):
        far, near = (middle + k * 0.035 * c.width, middle + (k + 1) * 0.035 * c.width), 0.16 * c.width
        shape = [(far[0], 0.52 * c.height), (far[1], 0.52 * c.height)]
        shape += [(middle + (k + 1) * near, c.height), (middle + k * near, c.height)]
        c.pen.polygon(shape, fill=c.lit("#9cc46c"))
    for k in range(13):
        c.box(k / 12 - 0.01, 0.47, k / 12 + 0.01, 0.6, c.lit("#f7f1e5"))
    for y in (0.5, 0.55):
        c.box(0, y, 1, y + 0.018, c.lit("#f7f1e5"))


def mountains(c: Canvas) -> None:
    """Blue peaks with white tips over a green pasture."""
    c.sky(0.62)
    c.peaks(0.62, 0.5, "#a9b8d3", "#f4f7fb", 4)
    c.peaks(0.64, 0.34, "#8a9dbd", "#e9eff7", 5)
    c.hills(0.6, 0.03, "#93b877")
    c.hills(0.72, 0.02, "#a8c985", 1.0)
    c.specks(16, 0.72, 0.98, 0.01, [c.lit("#9aa09a"), c.lit("#c3c7c0")])


def lake(c: Canvas) -> None:
    """Water between two green shores."""
    c.sky(0.46)
    c.hills(0.42, 0.03, "#86b58a")
    c.gradient(c.lit("#7cc3dc"), c.lit("#4f9fc6"), 0.46, 0.84)
    c.strokes(16, 0.5, 0.76, 0.12, c.lit("#b7e2ee"))
    c.hills(0.79, 0.015, "#8cc56a", 0.8)
    c.specks(20, 0.84, 0.99, 0.008, [c.lit("#6fae55"), c.lit("#f5efc4")])


def sea(c: Canvas) -> None:
    """Waves to the horizon."""
    c.sky(0.5)
    c.gradient(c.lit("#3a8fc2"), c.lit("#2a6ea6"), 0.48, 1.0)
    for row in range(5):
        c.hills(0.53 + 0.095 * row, 0.008, blend("#5aa9d4", "#2f78b0", row / 4), 4.0)
    c.strokes(18, 0.52, 0.97, 0.07, c.lit("#a9d8ec"))


def living_room(c: Canvas) -> None:
    """Wallpaper, a window, a wooden floor and a rug."""
    wall = c.rng.choice(("#f6e3c8", "#e7dcf0", "#dceadd", "#f7d9d3"))
    c.box(0, 0, 1, 0.7, wall)
    for k in range(16):
        c.box(k / 16, 0, k / 16 + 0.03, 0.66, blend(wall, "#ffffff", 0.35))
    left = c.rng.uniform(0.08, 0.68)
    c.box(left, 0.08, left + 0.24, 0.42, "#cfe9f7", "#b98a5a")
    c.box(left + 0.114, 0.08, left + 0.126, 0.42, "#b98a5a")
    c.box(0, 0.65, 1, 0.68, "#fbf5ea")
    c.gradient("#d2a372", "#bd8a58", 0.68, 1.0)
    for y in (0.75, 0.83, 0.92):
        c.box(0, y, 1, y + 0.006, "#a97a4c")
    rug = c.rng.choice(("#c96f6f", "#6f8fc9", "#79ab7c"))
    for shrink, colour in ((0, rug), (0.05, blend(rug, "#ffffff", 0.35))):
        corners = ((0.14 + shrink) * c.width, (0.76 + shrink / 2) * c.height)
        c.pen.ellipse((*corners, (0.86 - shrink) * c.width, (0.97 - shrink / 2) * c.height), fill=colour)


def kitchen(c: Canvas) -> None:
    """Wall tiles, a counter with cupboards and a chequered floor."""
    tile = c.rng.choice(("#dff1f2", "#fdf3d6", "#e6efe0"))
    c.box(0, 0, 1, 0.7, tile)
    for k in range(1, 12):
        c.box(k / 12, 0, k / 12 + 0.004, 0.45, "#ffffff")
    for k in range(1, 6):
        c.box(0, k * 0.075, 1, k * 0.075 + 0.006, "#ffffff")
    door = c.rng.choice(("#8fb8c4", "#c9a27c", "#a9bf9a"))
    c.box(0, 0.42, 1, 0.46, "#efe7dc")
    c.box(0, 0.46, 1, 0.7, door)
    for k in range(6):
        c.box(k / 6 + 0.015, 0.49, (k + 1) / 6 - 0.015, 0.67, blend(door, "#ffffff", 0.25))
        c.box((k + 1) / 6 - 0.04, 0.55, (k + 1) / 6 - 0.03, 0.6, "#f7f3ea")
    for row in range(4):
        for column in range(-1, 13):
            left, high = (column + row % 2 * 0.5) / 6, 0.7 + 0.075 * row
            c.box(left, high, left + 1 / 12, high + 0.075, "#f4efe6")
            c.box(left + 1 / 12, high, left + 1 / 6, high + 0.075, "#b9c7cc")


def underwater(c: Canvas) -> None:
    """Blue depths with light from above, bubbles and a sandy bed."""
    c.gradient("#6fd0e3", "#1d6fa5")
    for k in range(4):
        x, wide = c.rng.uniform(0, 1) * c.width, c.rng.uniform(0.04, 0.1) * c.width
        lean = 0.12 * c.width
        shape = [(x, 0), (x + wide, 0), (x + wide * 1.6 - lean, 0.75 * c.height), (x - lean, 0.75 * c.height)]
        c.pen.polygon(shape, fill=blend("#57bcd6", "#3c9cc4", k / 4))
    for k in range(6):
        x = (k + c.rng.uniform(0.1, 0.9)) / 6 * c.width
        for y in range(6):
            sway, r = 0.012 * c.width * (-1) ** y, 0.022 * c.height
            centre = (0.86 - 0.035 * y) * c.height
            c.pen.ellipse((x + sway - r, centre - 2 * r, x + sway + r, centre + 2 * r), fill="#3f9c86")
    c.hills(0.82, 0.02, "#d9cf9d", 1.0)
    c.specks(22, 0.86, 0.99, 0.007, ["#c2b680", "#efe7bf"])
    c.specks(16, 0.05, 0.75, 0.009, ["#b9ebf4", "#a3e0ee"])


def moon(c: Canvas) -> None:
    """Black sky, grey dust and craters."""
    c.gradient("#0d1026", "#2a2c4f", 0.0, 0.66)
    c.specks(44, 0.0, 0.58, 0.005, ["#ffffff", "#c9cdf2", "#f5e7b8"])
    c.hills(0.58, 0.03, "#8f8f9c")
    c.hills(0.66, 0.02, "#a9a9b4", 1.0)
    for _ in range(7):
        x, y = c.rng.uniform(0, 1) * c.width, c.rng.uniform(0.7, 0.98) * c.height
        wide, high = c.rng.uniform(0.03, 0.07) * c.width, c.rng.uniform(0.015, 0.03) * c.height
        c.pen.ellipse((x - wide, y - high, x + wide, y + high), fill="#8d8d99")
        c.pen.ellipse((x - wide, y - high * 0.6, x + wide, y + high * 1.2), fill="#9a9aa6")


BACKDROPS: dict[str, Callable[[Canvas], None]] = {
    "meadow": meadow,
    "beach": beach,
    "snow": snow,
    "street": street,
    "desert": desert,
    "forest": forest,
    "playground": playground,
    "farm": farm,
    "mountains": mountains,
    "lake": lake,
    "sea": sea,
    "living room": living_room,
    "kitchen": kitchen,
    "underwater": underwater,
    "moon": moon,
}


def backdrop(place: str, time: str | None, rng: Random, size: tuple[int, int]) -> Image.Image:
    """The empty stage of a scene."""
    canvas = Canvas(size, time, rng)
    BACKDROPS[place](canvas)
    return canvas.image
