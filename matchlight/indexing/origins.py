"""Which data sets an index was made of, and with which numbers their pictures and captions begin.

A picture's id and a caption's row are places in its data set, counted on where more data was added. So a row of an
audit and a picture of the data are found in the index by their place, whatever they are called: names may repeat. An
index of an earlier version does not say what it was made of: its data has no fingerprint, and any agrees with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from matchlight import files
from matchlight.console import BadInput
from matchlight.files import Json

FILE = "origins.json"
ENDLESS = 1 << 62


class Begin(TypedDict):
    """What origins.json says of a data set."""

    fingerprint: str  # "": nobody knows
    id: int  # of its first picture
    row: int  # of its first caption


@dataclass(frozen=True)
class Origin:
    """A data set and its part of the numbers of an index."""

    fingerprint: str
    ids: range
    rows: range

    @property
    def known(self) -> bool:
        """Whether the index says which data this is."""
        return bool(self.fingerprint)


UNKNOWN = Origin("", range(ENDLESS), range(ENDLESS))


def write(folder: Path, begins: Sequence[Begin]) -> None:
    """Beside the other files of a version."""
    files.write_json(folder / FILE, list(begins))


def read(folder: Path) -> list[Origin]:
    """The data sets of a version in the order they were added."""
    if not (folder / FILE).is_file():
        return [UNKNOWN]
    listed: Json = files.read_json(folder / FILE, "an index")
    if not isinstance(listed, list) or not listed:
        raise _damaged(folder)
    begins = [*(_begin(one, folder) for one in listed), Begin(fingerprint="", id=ENDLESS, row=ENDLESS)]
    return [
        Origin(own["fingerprint"], range(own["id"], after["id"]), range(own["row"], after["row"]))
        for own, after in zip(begins, begins[1:], strict=False)
    ]


def _begin(entry: Json, folder: Path) -> Begin:
    if not isinstance(entry, dict):
        raise _damaged(folder)
    mark, first, row = entry.get("fingerprint"), entry.get("id"), entry.get("row")
    if not isinstance(mark, str) or not isinstance(first, int) or not isinstance(row, int) or min(first, row) < 0:
        raise _damaged(folder)
    return {"fingerprint": mark, "id": first, "row": row}


def _damaged(folder: Path) -> BadInput:
    return BadInput(f"{folder / FILE}: does not say what the index was made of; build the index again")


def begins_of(origins: Sequence[Origin]) -> list[Begin]:
    """What `read` read, as `write` takes it."""
    return [{"fingerprint": one.fingerprint, "id": one.ids.start, "row": one.rows.start} for one in origins]


def origin_of(fingerprint: str, origins: Sequence[Origin]) -> Origin | None:
    """The part of these data in an index; None where it was made of other data."""
    if not fingerprint:
        return UNKNOWN  # an audit that does not say what it is about
    known = [one for one in origins if one.fingerprint == fingerprint]
    return next(iter([*known, *(one for one in origins if not one.known)]), None)
