"""Composing: which things meet where, how many, how big, and a spot for each where it hides little of the others."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from PIL import Image

from matchlight.data.scenes.graph import Box, Group, around, overlap
from matchlight.data.scenes.places import PLACES, Band, Place
from matchlight.data.scenes.places import TIMES as HOURS
from matchlight.data.scenes.sprites import sprite
from matchlight.data.scenes.things import THINGS, TIMES, Thing

FINE = 2  # pictures are drawn at twice their size and reduced
SIZES = {"small": 0.25, "big": 0.43}  # of the picture's height
ALONE = ("sun", "rainbow", "crescent moon")  # there are never two in a sky
SMOOTH = Image.Resampling.BILINEAR  # enough, since the fine canvas is reduced
TRIES = 30  # random places tried for a group before it is left out
HIDDEN = 0.2  # part of a thing's box that what stands before it may cover
DRAFTS = 4  # groups drafted for each one wanted: a crowded picture may stay with fewer


@dataclass
class Layout:
    """A scene and the cut-outs that draw it; `corners` are on the fine canvas."""

    place: Place
    time: str | None
    groups: list[Group]
    cutouts: list[list[Image.Image]]  # per group, per thing
    corners: list[list[tuple[int, int]]]
    homes: list[str]


@dataclass
class _Draft:
    """A group that has no place yet: its things stand around (0, 0)."""

    thing: Thing
    home: str
    size: str
    colour: str | None
    cutouts: list[Image.Image]
    corners: list[tuple[int, int]]


def compose(rng: Random, size: tuple[int, int]) -> Layout:
    """A scene of one to four groups."""
    place = rng.choices(PLACES, [place.weight for place in PLACES])[0]
    layout = Layout(place, rng.choices(HOURS, (5, 2, 3))[0] if place.outdoors else None, [], [], [], [])
    wanted = rng.choices((1, 2, 3, 4), (1, 4, 5, 3))[0]
    drafts = DRAFTS * wanted
    while len(layout.groups) < wanted and drafts > 0 or not layout.groups:
        _add(layout, rng, size)
        drafts -= 1
    return layout


def _add(layout: Layout, rng: Random, size: tuple[int, int]) -> None:
    """Draft one more group and put it somewhere, or leave it out."""
    draft = _draft(layout, rng, size)
    if draft is None:
        return
    band = layout.place.bands[draft.home]
    for _ in range(TRIES):
        moved = _somewhere(draft, band, rng, size)
        if moved is None:
            return
        boxes = [_pixels(corner, cutout) for corner, cutout in zip(moved, draft.cutouts, strict=True)]
        group = _group(draft, band, boxes)
        if all(_clear(group, other, size) for other in layout.groups):
            layout.groups.append(group)
            layout.cutouts.append(draft.cutouts)
            layout.corners.append(moved)
            layout.homes.append(draft.home)
            return


def _group(draft: _Draft, band: Band, boxes: list[Box]) -> Group:
    return {
        "object": draft.thing.name,
        "categories": draft.thing.categories,
        "count": len(boxes),
        "size": draft.size,
        "colour": draft.colour,
        "stands": band.stands,
        "box": around(boxes),
        "boxes": boxes,
    }


def _draft(layout: Layout, rng: Random, size: tuple[int, int]) -> _Draft | None:
    """Choose what comes next; None where the place has nothing more to offer."""
    bands = layout.place.bands
    home = rng.choices(list(bands), [band.weight for band in bands.values()])[0]
    here = {group["object"] for group in layout.groups}
    fit = [t for t in THINGS if home in t.homes and t.name not in here and _seen(t, layout.time)]
    if not fit:
        return None
    thing = rng.choices(fit, [1 / len(t.homes) for t in fit])[0]  # else what lives everywhere would crowd out a sofa
    big = "big" if rng.random() < thing.category.big else "small"
    count = 1 if thing.name in ALONE else rng.choices((1, 2, 3), (60, 24, 16))[0]
    colour = rng.choice(thing.colours) if thing.colours else None
    length = round(SIZES[big] * FINE * min(size[1], 0.75 * size[0]))
    still = sprite(thing.name, colour, length)
    count = min(count, max(1, int(size[0] * FINE / still.width)))  # no more than stand side by side
    cutouts = [_vary(still, thing, rng) for _ in range(count)]
    return _Draft(thing, home, big, colour, cutouts, _arrange(cutouts, rng))


def _seen(thing: Thing, time: str | None) -> bool:
    return time is None or thing.name not in TIMES or time in TIMES[thing.name]


def _vary(still: Image.Image, thing: Thing, rng: Random) -> Image.Image:
    """A cut-out a little larger or smaller, tilted, perhaps looking the other way."""
    scale, tilt, flip = rng.uniform(0.93, 1.07), rng.uniform(-1, 1), rng.random() < 0.5
    steady = 3 if thing.category.name in ("building", "piece of furniture", "vehicle") else 8
    look = still.resize((max(1, round(still.width * scale)), max(1, round(still.height * scale))), SMOOTH)
    if flip:
        look = look.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    look = look.rotate(tilt * steady, SMOOTH, expand=True)
    return look.crop(look.getchannel("A").point(lambda a: 255 * (a > 96)).getbbox())


def _arrange(cutouts: list[Image.Image], rng: Random) -> list[tuple[int, int]]:
    """Corners of a group's things: side by side on one line, feet a little up or down."""
    corners, x = [], 0
    for cutout in cutouts:
        corners.append((x, round(-cutout.height + rng.uniform(-0.07, 0.07) * cutout.height * (len(cutouts) > 1))))
        x += round(cutout.width * rng.uniform(0.88, 1.06))
    return corners


def _somewhere(draft: _Draft, band: Band, rng: Random, size: tuple[int, int]) -> list[tuple[int, int]] | None:
    """The group's corners at a random place of its band; None where it does not fit."""
    spots = [(x, y, x + c.width, y + c.height) for (x, y), c in zip(draft.corners, draft.cutouts, strict=True)]
    left, top, right, bottom = around(spots)
    width, height = size[0] * FINE, size[1] * FINE
    edge = round(0.02 * height)
    lowest = round(band.bottom * height) - bottom
    highest = round(band.top * height) - (bottom if band.stands else top)
    highest = max(highest, edge - top)
    if right - left > width - 2 * edge or lowest < highest:
        return None
    dx = rng.randint(edge, width - edge - (right - left)) - left
    dy = rng.randint(highest, lowest)
    return [(x + dx, y + dy) for x, y in draft.corners]


def _pixels(corner: tuple[int, int], cutout: Image.Image) -> Box:
    """The box in the pixels of the finished picture."""
    right, bottom = corner[0] + cutout.width, corner[1] + cutout.height
    return corner[0] // FINE, corner[1] // FINE, -(-right // FINE), -(-bottom // FINE)


def _clear(a: Group, b: Group, size: tuple[int, int]) -> bool:
    """True if two groups are apart, or one stands well in front of the other and hides little of it."""
    gap = max(1, size[0] // 64)
    (left, top, right, bottom), (left_b, top_b, right_b, bottom_b) = a["box"], b["box"]
    if overlap(left, right, left_b, right_b) <= -gap or overlap(top, bottom, top_b, bottom_b) <= -gap:
        return True
    if not (a["stands"] and b["stands"]) or 10 * abs(bottom - bottom_b) < size[1]:
        return False
    near, far = (a, b) if bottom > bottom_b else (b, a)
    return all(_hidden(box, near["boxes"]) <= HIDDEN for box in far["boxes"])


def _hidden(box: Box, others: list[Box]) -> float:
    """The part of a box that others cover, at most."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    shared = [max(0, overlap(box[0], box[2], o[0], o[2])) * max(0, overlap(box[1], box[3], o[1], o[3])) for o in others]
    return sum(shared) / max(1, area)
