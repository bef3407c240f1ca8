"""What a search gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table

from matchlight.files import Json
from matchlight.measuring.shown import Shown, data_frame, plain_table

if TYPE_CHECKING:
    import pandas as pd

WORDS = ((0.75, "very likely"), (0.5, "likely"), (0.2, "possible"), (0.0, "unlikely"))


@dataclass(frozen=True)
class Hit:
    """One result: a picture and one of its captions (of a search for captions: the caption and its picture)."""

    rank: int  # from 1
    score: float
    id: int  # of the picture
    image: str  # its name
    caption: str
    row: int  # of the caption; -1 for a picture without one
    chance: float | None = None  # that it is right, 0 to 1; None: nothing is known to measure it by
    alike: tuple[int, ...] = ()  # ids of near-duplicates that are folded into this one


def in_words(chance: float) -> str:
    """A chance as a person says it."""
    return next(word for least, word in WORDS if chance >= least)


@dataclass(frozen=True)
class Results(Shown):
    """What was found, best first."""

    query: str
    hits: list[Hit]
    milliseconds: float
    scored: int = 0  # items that the true similarity looked at
    total: int = 0  # items that passed the filter
    exact: bool = False
    unknown: list[str] = field(default_factory=list)  # words of the question that the model does not know
    reading: float = 0.0  # of the milliseconds: what the model took to read the question
    nothing_fits: bool = False  # even the best hit is too unlikely
    chances_from: str | None = None  # what chances were measured with; None: there are none

    def parts(self) -> Sequence[str | Table]:
        """The question, and a table of the hits."""
        head = f"{self.query or 'a picture'}: {len(self.hits)} hits in {self.milliseconds:.1f} ms"
        rows = [(one.rank, one.score, one.image, one.caption) for one in self.hits]
        return [head, plain_table(["rank", "score", "image", "caption"], rows)]

    def to_pandas(self) -> pd.DataFrame:
        """A line a hit, its rank as the index."""
        return data_frame([asdict(hit) for hit in self.hits], "rank")

    def plain(self) -> dict[str, Json]:
        """The JSON object of `matchlight search --json`."""
        return {
            "query": self.query,
            "nothing_fits": self.nothing_fits,
            "results": [asdict(hit) | ({"caption": None} if hit.row < 0 else {}) for hit in self.hits],
            "milliseconds": self.milliseconds,
            "scored": self.scored,
            "total": self.total,
            "exact": self.exact,
            "unknown": list(self.unknown),
            "reading": self.reading,
            "chances_from": self.chances_from,
        }
