"""The shapes of questions and answers, from which the OpenAPI description is made."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_ROW = 2**53 - 1  # the largest number a browser holds exactly


class Problem(BaseModel):
    """What went wrong, and what would have worked."""

    detail: object


class Hit(BaseModel):
    """One result: a picture with the caption that fits best, or a caption with its picture."""

    rank: int
    score: float
    id: int
    image: str
    caption: str
    row: int
    width: int
    height: int
    suspect: bool | None = None
    chance: float | None = Field(None, description="that it is right, 0 to 1; null: nothing to measure it by")
    said: str | None = Field(None, description="the chance in words: very likely, likely, possible, unlikely")
    alike: list[int] = Field([], description="ids of near-duplicates that are folded into this one")


class SearchResults(BaseModel):
    """The results of a search, best first."""

    query: str | None
    find: str
    results: list[Hit]
    milliseconds: float
    total: int
    scored: int
    unknown: list[str]
    exact: bool
    nothing_fits: bool = Field(False, description="even the best result is unlikely to be right")
    chances_from: str | None = Field(None, description="index, run or learnt captions; null: there are no chances")
    version: int


class Card(BaseModel):
    """A picture with its first caption."""

    id: int
    image: str
    caption: str
    width: int
    height: int
    suspect: bool | None = None


class Browsed(BaseModel):
    """Some pictures of the collection."""

    find: str
    results: list[Card]
    total: int
    version: int


class Caption(BaseModel):
    """A caption and its row in the data."""

    row: int
    text: str


class Item(BaseModel):
    """A picture of the collection."""

    id: int
    image: str
    captions: list[Caption]
    labels: list[str]
    split: str
    width: int
    height: int
    suspect: bool | None = None
    taken: str | None = Field(None, description="when, on the camera's clock")
    camera: str | None = None
    version: int


class Nearest(BaseModel):
    """A caption near one slot of a picture."""

    row: int
    caption: str
    score: float


class Explanation(BaseModel):
    """Which region answered which word; weights are words x regions, 0 to 1."""

    words: list[str]
    regions: list[list[float]]
    weights: list[list[float]]
    seen: list[float]
    score: float
    slots: list[list[float]] = Field(description="sets of vectors: what each looks at, slots x regions")
    nearest: list[Nearest] = Field(description="the caption nearest to each slot")
    kind: str = Field(description="attention, slots or occlusion: how this was found out")
    unknown: list[str] = Field(description="words the model does not know")


class Neighbours(BaseModel):
    """Pictures that resemble one, or captions that fit it."""

    results: list[Hit]
    version: int


class Pair(BaseModel):
    """A pair in the review queue."""

    row: int
    id: int | None
    image: str
    caption: str
    score: float
    suspect: bool
    reason: str
    split: str
    width: int
    height: int
    better_image: str | None = None
    better_id: int | None = None
    better_caption: str | None = None
    better_caption_row: int | None = None
    decision: dict[str, str | int] | None = None


class Histogram(BaseModel):
    """How many pairs have which score, how many of those are expected to be wrong, and where the suspects end."""

    edges: list[float]
    counts: list[int]
    wrong: list[float]
    threshold: float


class Review(BaseModel):
    """The queue, worst first, and how far it is."""

    available: bool
    total: int = 0
    done: int = 0
    left: int = 0
    undoable: int = 0
    counts: dict[str, int] = {}
    pairs: list[Pair] = []
    offset: int = 0
    summary: dict[str, object] = {}
    histogram: Histogram | dict[str, object] = {}
    version: int = 1


class Suggestion(BaseModel):
    """A caption that may fit the picture better, or a picture that may fit the caption better."""

    kind: Literal["caption", "image"]
    id: int
    image: str
    caption: str
    row: int
    score: float | None = None
    width: int
    height: int


class Suggestions(BaseModel):
    """A few of each, the audit's own first, and what was decided about the pair by now."""

    row: int
    captions: list[Suggestion]
    images: list[Suggestion]
    others: list[str] = Field(description="the picture's other captions")
    decision: dict[str, str | int] | None = None


Reviewer = Annotated[
    str, Field(max_length=60, pattern=r"^[^\x00-\x1f\x7f]*$", description="who decides; empty: nobody says")
]


class Undo(BaseModel):
    """Whose last decision is taken back; without a name, the last of all."""

    model_config = ConfigDict(extra="forbid")

    reviewer: Reviewer = ""


class Choice(BaseModel):
    """A decision about a row."""

    model_config = ConfigDict(extra="forbid")

    decision: Literal["keep", "drop", "rematch", "undo"]
    image: str | None = Field(None, max_length=4096, description="re-match: the picture the caption goes to")
    caption_row: int | None = Field(None, ge=0, le=MOST_ROW, description="re-match: the row whose caption is taken")
    image_row: int | None = Field(None, ge=0, le=MOST_ROW, description="a row of that picture: names may repeat")
    reviewer: Reviewer = ""


class Decided(BaseModel):
    """What holds for a row now, and how far the queue is."""

    row: int
    decision: dict[str, str | int] | None
    done: int
    left: int
    undoable: int
    counts: dict[str, int]
    replaced: dict[str, str | int] | None = Field(None, description="what another reviewer had decided before")


class Health(BaseModel):
    """Whether the server answers, and with what."""

    status: Literal["ok"]
    version: str
    items: int | None = None
    problem: str | None = None


class Colouring(BaseModel):
    """Names, and each point's place among them as bytes in base64."""

    names: list[str]
    of: str


class Map(BaseModel):
    """The collection as points: ids as 32-bit, x and y as 16-bit numbers, and colours, all in base64."""

    count: int
    ids: str
    points: str
    colours: dict[str, Colouring]
    version: int
    box: list[float]


class Figure(BaseModel):
    """A measured figure and, where known, its 95% interval."""

    name: str
    value: float
    interval: list[float] | None
    unit: str


class About(BaseModel):
    """The model card of what is served."""

    version: str
    index: dict[str, object]
    metrics: dict[str, object] | None = Field(description="what training measured of the model that was kept")
    figures: list[Figure] = Field(description="the same as figures with 95% intervals")
    audit: dict[str, object] | None
    filters: dict[str, dict[str, int]]
    review: bool
    map: bool
    originals: bool = Field(description="whether pictures can be had in full")
    limits: dict[str, int]
    number: int
