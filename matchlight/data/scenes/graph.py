"""The scene graph: what is in a picture, where, and how its groups stand to each other.

These are the records of the file `scenes.jsonl`; the meanings of captions are written in the same terms.
All of it is decided by whole numbers of pixels, so that anyone who reads the file can work the relations out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; right and bottom are outside
Link = tuple[int, str, int]  # (place of a group or thing, relation, place of another)

INVERSE = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
    "next to": "next to",
}


class Group(TypedDict):
    """One, two or three things of one kind, size and colour, close together; a kind occurs once a picture."""

    object: str
    categories: list[str]
    count: int
    size: str  # "small" | "big"
    colour: str | None
    stands: bool  # False: in the air or under water
    box: Box  # around all of them
    boxes: list[Box]  # one each


class Term(TypedDict):
    """A noun phrase: a group it can stand for. Exactly one of `object` and `category` is there."""

    object: NotRequired[str]
    category: NotRequired[str]
    count: int | str  # 1, 2, 3: exactly; "many": two or more
    size: NotRequired[str]
    colour: NotRequired[str]


class Meaning(TypedDict):
    """What must hold of a picture for the caption to fit it."""

    things: list[Term]  # each stands for a group of its own
    relations: list[Link]  # between places in `things`
    totals: list[Term]  # of a category, counted over the whole picture
    places: list[str]  # one of these; empty: anywhere
    times: list[str]  # one of these; empty: at any time


class Caption(TypedDict):
    """A caption and what it means."""

    text: str
    meaning: Meaning


class Scene(TypedDict):
    """One picture."""

    image: str
    size: tuple[int, int]
    place: str
    time: str | None  # None indoors, under water and on the moon
    groups: list[Group]
    relations: list[Link]
    captions: list[Caption]


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds them all."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def overlap(low: int, high: int, other_low: int, other_high: int) -> int:
    """How many pixels two stretches share; negative: how many lie between them."""
    return min(high, other_high) - max(low, other_low)


def related(a: Group, b: Group, size: tuple[int, int]) -> list[str]:
    """Everything that group `a` is to group `b`."""
    (left, top, right, bottom), (left_b, top_b, right_b, bottom_b) = a["box"], b["box"]
    across, upright = overlap(left, right, left_b, right_b), overlap(top, bottom, top_b, bottom_b)
    covered = 2 * across >= min(right - left, right_b - left_b)
    level = a["stands"] == b["stands"] and 2 * upright >= min(bottom - top, bottom_b - top_b)
    both = a["stands"] and b["stands"]
    truth = {
        "left of": right <= left_b,
        "right of": right_b <= left,
        "above": not a["stands"] and bottom <= top_b,
        "below": not b["stands"] and bottom_b <= top,
        "in front of": both and covered and 12 * (bottom - bottom_b) >= size[1],
        "behind": both and covered and 12 * (bottom_b - bottom) >= size[1],
        "next to": level and across <= 0 and -5 * across <= size[0],
    }
    return [name for name, holds in truth.items() if holds]


def relations(groups: Sequence[Group], size: tuple[int, int]) -> list[Link]:
    """All relations between the groups of a picture."""
    pairs = [(i, j) for i in range(len(groups)) for j in range(len(groups)) if i != j]
    return [(i, name, j) for i, j in pairs for name in related(groups[i], groups[j], size)]
