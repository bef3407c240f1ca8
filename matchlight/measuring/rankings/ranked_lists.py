"""What each query found, as lists of names with scores, and what was judged relevant; both from a score matrix too.

Names are those of our files: picture-12 is picture 12 of the data and caption-40 the caption of row 40, whichever split
was evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from matchlight.measuring.metrics import Relevance
from matchlight.measuring.metrics.arrays import Array, Places
from matchlight.measuring.metrics.blocks import BUDGET, Scores, as_scores, read, spans
from matchlight.pairs import Pairs

SIDES = ("i2t", "t2i")


@dataclass(frozen=True, eq=False)
class Ranking:
    """What one query found, as the file lists it."""

    items: list[str]
    scores: Array  # (items,) higher = better
    order: Places  # (items,) the file's own order, which decides between equal scores under ties "official"


RankedLists = Mapping[str, Ranking]  # by query
Judgements = Mapping[str, Mapping[str, float]]  # query -> item -> how relevant; 0 or less: judged, and not relevant


@dataclass(frozen=True, eq=False)
class Side:
    """One direction of an evaluation: its scores, who fits whom, and what queries and items are called."""

    scores: Scores  # (queries, gallery)
    relevance: Relevance
    queries: list[str]
    items: list[str]

    def rankings(self, depth: int) -> Iterator[tuple[str, list[str], Array]]:
        """(query, items, scores) the best first, at least `depth` and whatever ties with the last of them.

        Among equals the larger place comes first, which is how released code breaks ties.
        """
        for q0, q1 in spans(self.scores, BUDGET):
            block = read(self.scores, slice(q0, q1), q0)
            for query, line in enumerate(block, q0):
                places = _best(line, depth)
                yield self.queries[query], [self.items[place] for place in places.tolist()], line[places]

    def judged(self) -> Iterator[tuple[str, list[str]]]:
        """(query, its relevant items) of each query that has any."""
        links = self.relevance.links
        assert links is not None  # pairs and relevance files are sparse
        for query, name in enumerate(self.queries):
            if len(places := links.of(query)):
                yield name, [self.items[place] for place in places.tolist()]


def _best(line: Array, depth: int) -> Places:
    if depth < len(line):
        least = np.partition(line, len(line) - depth)[len(line) - depth]
        places = np.flatnonzero(line >= least)
    else:
        places = np.arange(len(line))
    return np.asarray(places[np.argsort(line[places], kind="stable")[::-1]])


def both_sides(scores: np.ndarray, part: Pairs) -> dict[str, Side]:
    """Both directions of a split's scores (pictures x captions); a split's `notes` know the places in the whole."""
    matrix = as_scores(scores)
    whole = {"pictures": np.arange(len(part.names)), "rows": np.arange(len(part))} | part.notes
    pictures = [f"picture-{place}" for place in whole["pictures"].tolist()]
    captions = [f"caption-{row}" for row in whole["rows"].tolist()]
    fits = Relevance.of_owner(part.picture, pictures=len(pictures))
    return {"i2t": Side(matrix, fits, pictures, captions), "t2i": Side(matrix.T, fits.T, captions, pictures)}
