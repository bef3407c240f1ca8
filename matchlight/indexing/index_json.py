"""What `index.json` of a version says, by name and type."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class EngineInfo(TypedDict):
    """Which engine holds the rows; `uid` is in the names of what a database holds of this version."""

    name: str
    address: str | None
    uid: NotRequired[str]


class SideInfo(TypedDict):
    """What was measured for pictures (or captions) as results, and the shape of their rows."""

    candidates: int
    merge: str
    recall: float | None  # of the true best ten; None: there were no captions to ask with
    questions: int
    target: float
    items: int  # that were there when it was measured
    each: int  # rows an item
    dim: int


class Wanted(TypedDict):
    """What the builder of the index asked for and did not leave to be measured."""

    candidates: int | None
    coarse: str


class Next(TypedDict):
    """The numbers that the next picture and the next caption get."""

    id: int
    row: int


class IndexInfo(TypedDict):
    """All of it."""

    method: str
    engine: EngineInfo
    coarse: str  # which vectors propose candidates: plain or distilled
    target: float
    asked: Wanted
    padding: int | None
    shards: dict[str, list[str]]
    pictures: int
    captions: int
    next: Next
    map: bool
    thumbnails: bool
    built: str
    version: str
    seed: int
    sides: dict[str, SideInfo]  # captions only where there are some
