"""Where scenes happen: how captions name a place and where in the picture its things may be."""

from __future__ import annotations

from dataclasses import dataclass

TIMES = ("day", "sunset", "night")
TIME_WORDS = {
    "day": ("by day", "in the daytime", "in bright daylight"),
    "sunset": ("at sunset", "at dusk", "as the day ends"),
    "night": ("at night", "by night", "in the dark"),
}


@dataclass(frozen=True)
class Band:
    """A part of the picture where things of one home are put; heights are parts of the picture's height."""

    weight: float  # how often a group is put here
    top: float  # standing things: the highest place of their feet; others: of their upper edge
    bottom: float
    stands: bool


@dataclass(frozen=True)
class Place:
    """A kind of backdrop."""

    name: str
    words: tuple[str, ...]  # phrases true of this place alone
    bands: dict[str, Band]  # home letter -> where
    outdoors: bool = True  # then it has a time of day
    weight: float = 1.0


SKY, LAND = Band(0.24, 0.02, 0.48, False), Band(0.76, 0.66, 0.97, True)
OPEN = {"s": SKY, "g": LAND}
ROOM = {"a": Band(0.06, 0.04, 0.5, False), "i": Band(0.94, 0.74, 0.97, True)}

PLACES = (
    Place("meadow", ("in a meadow", "in a flowery meadow", "among wild flowers"), OPEN),
    Place(
        "beach",
        ("on a beach", "at the seaside", "on the sand by the sea"),
        {"s": Band(0.25, 0.02, 0.4, False), "w": Band(0.15, 0.5, 0.56, True), "g": Band(0.6, 0.74, 0.97, True)},
    ),
    Place("snow", ("in the snow", "on a snowy field", "in a winter landscape"), OPEN),
    Place("street", ("on a city street", "in the city", "in town"), OPEN),
    Place("desert", ("in the desert", "among sand dunes", "on the dunes"), OPEN),
    Place("forest", ("in a forest", "in the woods", "in a wood"), OPEN),
    Place("playground", ("on a playground", "at the playground"), OPEN),
    Place("farm", ("on a farm", "on farmland", "by the fence of a farm"), OPEN),
    Place("mountains", ("in the mountains", "high in the mountains", "among high peaks"), OPEN),
    Place(
        "lake",
        ("by a lake", "at the lakeside", "on the shore of a lake"),
        {"s": Band(0.25, 0.02, 0.4, False), "w": Band(0.25, 0.56, 0.68, True), "g": Band(0.5, 0.84, 0.97, True)},
    ),
    Place(
        "sea",
        ("out at sea", "on the open sea", "on the ocean"),
        {"s": Band(0.4, 0.02, 0.45, False), "w": Band(0.6, 0.6, 0.95, True)},
        weight=0.7,
    ),
    Place(
        "living room", ("in a living room", "in the sitting room", "in a cosy room"), ROOM, outdoors=False, weight=1.3
    ),
    Place("kitchen", ("in a kitchen", "in the kitchen", "on the kitchen floor"), ROOM, outdoors=False, weight=1.3),
    Place(
        "underwater",
        ("under water", "under the sea", "below the waves"),
        {"u": Band(0.65, 0.05, 0.78, False), "b": Band(0.35, 0.82, 0.97, True)},
        outdoors=False,
        weight=0.6,
    ),
    Place(
        "moon",
        ("on the moon", "on the surface of the moon"),
        {"o": Band(0.3, 0.02, 0.48, False), "g": LAND},
        outdoors=False,
        weight=0.7,
    ),
)
BY_NAME = {place.name: place for place in PLACES}

# Phrases true of several places at once.
WIDER = {
    "indoors": ("living room", "kitchen"),
    "inside a house": ("living room", "kitchen"),
    "by the water": ("beach", "lake"),
    "out of doors": tuple(place.name for place in PLACES if place.outdoors),
    "in the open air": tuple(place.name for place in PLACES if place.outdoors),
}
