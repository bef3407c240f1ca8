"""What a camera wrote into a picture file: when it was taken, and with which camera (EXIF).

Only these two are read. Times are the camera's own clock, without a time zone. Whatever is missing, odd or hostile is
simply unknown: pictures are found without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats.decoding import notes_of
from matchlight.data.near_duplicates import in_threads
from matchlight.pairs import PictureSource

if TYPE_CHECKING:
    from PIL.Image import Exif

MAKE, MODEL, CHANGED, INSIDE, TAKEN = 0x010F, 0x0110, 0x0132, 0x8769, 0x9003  # tags; INSIDE holds TAKEN
UNKNOWN = -(1 << 62)  # a time that nobody knows
LONGEST = 60  # characters of a camera's name
MOMENT = re.compile(r"\s*(\d{4})[:\-/](\d{2})[:\-/](\d{2})(?:[ T](\d{2}):(\d{2}):(\d{2}))?")


@dataclass(frozen=True)
class CameraNotes:
    """When (seconds since 1970 on the camera's clock, or UNKNOWN) and with what ("": nobody knows)."""

    taken: int = UNKNOWN
    camera: str = ""


def camera_notes(blob: bytes) -> CameraNotes:
    """Of one picture file."""
    try:
        exif = notes_of(blob)
        return CameraNotes(_taken(exif), _camera(exif))
    except Exception:  # metadata of strangers fails in a dozen ways, and none of them matters
        return CameraNotes()


def read_notes(pictures: PictureSource | None, places: np.ndarray) -> list[CameraNotes]:
    """Of some pictures of a source; of features without pictures nothing is known."""
    if pictures is None:
        return [CameraNotes()] * len(places)
    source = pictures

    def one(place: int) -> CameraNotes:
        try:
            return camera_notes(source.read(place))
        except BadInput:
            return CameraNotes()

    return list(in_threads(one, places.tolist(), "reading dates"))


def _taken(exif: Exif) -> int:
    for value in (exif.get_ifd(INSIDE).get(TAKEN), exif.get(CHANGED)):
        if (found := MOMENT.match(str(value))) is not None:
            numbers = [int(part or 0) for part in found.groups()]
            if numbers[0] > 1825:  # before, there were no photographs
                return int(datetime(*numbers, tzinfo=UTC).timestamp())  # type: ignore[misc,arg-type]
    return UNKNOWN


def _camera(exif: Exif) -> str:
    """Make and model; many makers write their name into both."""
    make, model = (_plain(exif.get(tag)) for tag in (MAKE, MODEL))
    first = make.split(" ")[0].lower()
    named = model if first and model.lower().startswith(first) else f"{make} {model}"
    return named.strip()[:LONGEST]


def _plain(value: object) -> str:
    """Text as people write it: one line, no control characters."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def as_text(taken: int) -> str | None:
    """A time as ISO 8601 has it; None where nobody knows."""
    return None if taken == UNKNOWN else datetime.fromtimestamp(taken, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def bounds(text: str, what: str) -> tuple[int, int]:
    """The first second of a day, month or year (2024, 2024-05, 2024-05-31) and the first one behind it."""
    found = re.fullmatch(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", text.strip())
    try:
        if found is None:
            raise ValueError(text)
        year, month, day = (int(part) if part else None for part in found.groups())
        first = datetime(year or 0, month or 1, day or 1, tzinfo=UTC)
    except ValueError:
        raise BadInput(f"{what}={text}: a date is written 2024-05-31, or shorter: 2024-05, 2024") from None
    if day is not None:
        return int(first.timestamp()), int(first.timestamp()) + 86_400
    after = (first.year + 1, 1) if month is None or month == 12 else (first.year, first.month + 1)
    last = datetime(*after, 1, tzinfo=UTC) if after[0] <= 9999 else datetime.max.replace(tzinfo=UTC)
    return int(first.timestamp()), int(last.timestamp())
