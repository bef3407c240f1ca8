"""Sheets of queries with their answers: pictures in frames, captions with a mark for right or wrong.

A picture that is not there (ready-made features) or cannot be read becomes a box with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from PIL import Image

from matchlight.inputs.preprocessing import UNREADABLE
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.numbers import Row

LONG = 280  # pixels of a picture's longer side on the sheet
# Inches: the page's edge, the room between pictures, the height of a heading, of a line below a picture;
EDGE, GAP, HEAD, NOTE = 0.06, 0.1, 0.28, 0.4
# the column of texts that ask, a picture's height to its width, the most it may have;
ASKS, RATIO, HIGHEST = 1.75, 0.75, 1.1
# where lists of texts begin, and how high they are.
LIST_AT, LISTED = 1.75, 1.4


@dataclass(frozen=True)
class Answer:
    """One answer: a place in the whole table (a picture, or a row of captions), and whether it is right."""

    place: int
    right: bool
    score: float
    note: str = ""
    cause: str = ""  # why it is wrong, where somebody says


@dataclass(frozen=True)
class Query:
    """A query (a picture's place or a caption's row) with what came first."""

    side: str  # "image": a picture asks for captions; "text": a caption asks for pictures
    place: int
    answers: tuple[Answer, ...]
    note: str = ""


def fits(pairs: Pairs, row: int, place: int) -> bool:
    """Whether a picture belongs to a caption, or is known to fit it."""
    if pairs.picture[row] == place:
        return True
    return pairs.relevance is not None and bool(pairs.relevance[row, place])


Shown = TypeVar("Shown")


def a_few(
    order: Sequence[Shown], *, good: Callable[[Shown], bool], owner: Callable[[Shown], int], counts: tuple[int, int]
) -> list[Shown]:
    """So many good ones, then so many others, one a picture (`owner`); where a kind lacks, more of the other."""
    used: dict[int, Shown] = {}
    for kinds, most in (((True,), counts[0]), ((False,), sum(counts)), ((True,), sum(counts))):
        for one in order:
            if len(used) < most and good(one) in kinds:
                used.setdefault(owner(one), one)
    return sorted(used.values(), key=lambda one: not good(one))


def thumbnail(pairs: Pairs, place: int) -> np.ndarray | None:
    """A picture as pixels, small enough to print; None where there is none to show."""
    if pairs.pictures is None:
        return None
    try:
        image = pairs.pictures.open(place).convert("RGB")
    except UNREADABLE:
        return None
    image.thumbnail((LONG, LONG), Image.Resampling.LANCZOS)
    return np.asarray(image)


def said(pairs: Pairs, row: int) -> str:
    """A caption, or what to call a text that has no words."""
    caption = pairs.captions[row].strip()
    return f"“{caption}”" if caption else f"text {row}"


def picture(
    axes: style.Axes, pairs: Pairs, place: int, *, frame: str | None = None, note: str = "", dashes: str = "-"
) -> None:
    """One picture with a frame and a line below it."""
    style.bare(axes)
    pixels = thumbnail(pairs, place)
    if pixels is None:
        axes.set_facecolor("#F4F4F4")
        middle: style.Options = {"ha": "center", "va": "center", "fontsize": 6.5, "transform": axes.transAxes}
        axes.text(0.5, 0.5, style.wrapped(str(pairs.names[place]), 16), **middle)
    else:
        axes.imshow(pixels, interpolation="antialiased")
        axes.set_anchor("N")
    for side in axes.spines.values():
        side.set(visible=True, color=frame or style.PALE, linewidth=2.4 if frame else 0.7, linestyle=dashes)
    if note:
        axes.set_xlabel(style.wrapped(note, 24, lines=2), fontsize=6.5, labelpad=3)


def words(axes: style.Axes, text: str, *, note: str = "", width: int = 28, lines: int = 5) -> None:
    """A text as a query."""
    axes.set_axis_off()
    axes.text(
        0, 1, style.wrapped(text, width, lines=lines), ha="left", va="top", fontsize=7.5, transform=axes.transAxes
    )
    if note:
        below = style.wrapped(note, width + 4, lines=2)
        axes.text(0, 0, below, ha="left", va="bottom", fontsize=6.5, color=style.GREY, transform=axes.transAxes)


def listed(axes: style.Axes, pairs: Pairs, answers: Sequence[Answer]) -> None:
    """Texts one below the other, each with a mark: a tick where it is right, a cross where it is not."""
    axes.set_axis_off()
    step, noted = 1 / max(1, len(answers)), any(one.note for one in answers)
    for k, one in enumerate(answers):
        mark, colour = ("✓", style.RIGHT) if one.right else ("✗", style.WRONG)
        line: style.Options = {"y": 1 - (k + 0.5) * step, "va": "center", "transform": axes.transAxes}
        body = style.wrapped(said(pairs, one.place), 56 if noted else 84, lines=2)
        axes.text(0.0, s=mark, color=colour, fontweight="bold", ha="left", fontsize=7.5, **line)
        axes.text(0.035, s=body, ha="left", fontsize=7.5, **line)
        axes.text(0.7, s=style.wrapped(one.note, 34, lines=2), ha="left", fontsize=6.5, color=style.GREY, **line)


class Page:
    """A figure that is filled from the top, measured in inches, so that columns stand below each other."""

    def __init__(self, height: float):
        self.figure = style.blank(style.DOUBLE, height)
        self.height = self.left = height

    def axes(self, x: float, width: float, height: float) -> style.Axes:
        """A place on the present line."""
        box = (x / style.DOUBLE, (self.left - height) / self.height, width / style.DOUBLE, height / self.height)
        return self.figure.add_axes(box)

    def heads(self, texts: Sequence[tuple[float, str, str]]) -> None:
        """A line of column heads: (place, how it is set, text)."""
        y = (self.left - 0.14) / self.height
        for x, how, text in texts:
            self.figure.text(x / style.DOUBLE, y, text, ha=how, va="center", fontsize=8, color=style.GREY)
        self.left -= HEAD


def draw_sheet(pairs: Pairs, queries: Sequence[Query], *, across: int) -> style.Figure:
    """Pictures with their first captions, then captions with their first `across` pictures, a line a query."""
    images, texts = ([query for query in queries if query.side == side] for side in ("image", "text"))
    wide = (style.DOUBLE - ASKS - EDGE) / max(across, 3)  # from the left edge of a picture to that of the next
    room = min(HIGHEST, RATIO * (wide - GAP))
    below = NOTE if any(one.note for query in texts for one in query.answers) else GAP
    line = {"image": LISTED + NOTE / 2, "text": room + below + GAP}
    total = sum(line[q.side] for q in queries) + HEAD * (bool(images) + bool(texts)) + EDGE
    page = Page(total)
    if images:
        page.heads([(EDGE, "left", "picture"), (EDGE + LIST_AT, "left", "texts that come first")])
    for query in images:
        picture(page.axes(EDGE, LIST_AT - 0.25, LISTED), pairs, query.place, note=query.note)
        listed(page.axes(EDGE + LIST_AT, style.DOUBLE - LIST_AT - 2 * EDGE, LISTED), pairs, query.answers)
        page.left -= line["image"]
    if texts:
        middles = [(ASKS + k * wide + (wide - GAP) / 2, "center", f"{k + 1}") for k in range(across)]
        page.heads([(EDGE, "left", "text"), *middles])
    for query in texts:
        words(page.axes(EDGE, ASKS - 2 * EDGE, room), said(pairs, query.place), note=query.note)
        for k, one in enumerate(query.answers[:across]):
            frame = style.RIGHT if one.right else None
            picture(page.axes(ASKS + k * wide, wide - GAP, room), pairs, one.place, frame=frame, note=one.note)
        page.left -= line["text"]
    return page.figure


def as_rows(pairs: Pairs, queries: Sequence[Query]) -> list[Row]:
    """The sheet as numbers: a line for each answer."""
    out = []
    for query in queries:
        asks = str(pairs.names[query.place]) if query.side == "image" else pairs.captions[query.place]
        for rank, one in enumerate(query.answers, 1):
            got = pairs.captions[one.place] if query.side == "image" else str(pairs.names[one.place])
            out.append(
                {
                    "asks": query.side,
                    "query": query.place,
                    "what": asks,
                    "rank": rank,
                    "place": one.place,
                    "found": got,
                    "score": one.score,
                    "right": one.right,
                    **({"cause": one.cause} if one.cause else {}),
                }
            )
    return out
