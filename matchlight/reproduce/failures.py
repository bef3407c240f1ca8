"""Where semantic sharing fails (supplement, Figure 2): test queries whose first answers share no label with them."""

from __future__ import annotations

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.pairs import Pairs
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.sharing import SHARING
from matchlight.reproduce.sheets import Answer, Query, as_rows, draw_sheet
from matchlight.runs.evaluation import split_scores

TOP = {IMAGE: 5, TEXT: 3}  # sentences for a picture, pictures for a sentence
ASKS = {IMAGE: "pictures, for texts", TEXT: "texts, for pictures"}
SHOWN = 3  # queries a side


def failures(work: Work) -> Result:
    """The queries that went most wrong: fewest right answers among the first, and surest of the first of them."""
    work.check((SHARING,))
    run = work.train(SHARING)
    scores = split_scores(run, work.pairs, "test")
    queries = [query for side in TOP for query in worst(work.pairs, scores, side)]
    table = [{"who asks": ASKS[side], **_rates(work.pairs, scores, side)} for side in TOP]
    return work.save(
        as_rows(work.pairs, queries), lambda: draw_sheet(work.pairs, queries, across=TOP[TEXT]), table=table
    )


def shares(pairs: Pairs, side: str, *, split: str = "test") -> np.ndarray:
    """(queries, gallery) True where two items of a split share a label."""
    labels = pairs.subset(split).labels
    assert labels is not None
    both = np.asarray(labels.image.astype(np.float32) @ labels.text.T.astype(np.float32) > 0)
    return both if side == IMAGE else both.T


def first(scores: np.ndarray, side: str) -> np.ndarray:
    """(queries, k) the places of the gallery that come first."""
    asked = scores if side == IMAGE else scores.T
    return np.argsort(-asked, axis=1, kind="stable")[:, : TOP[side]]


def worst(pairs: Pairs, scores: np.ndarray, side: str, *, split: str = "test", most: int = SHOWN) -> list[Query]:
    """Queries in the order of their failing, at most one a picture."""
    asked, right, top = (scores if side == IMAGE else scores.T), shares(pairs, side, split=split), first(scores, side)
    hits = np.take_along_axis(right, top, axis=1).sum(1)
    sure = np.take_along_axis(asked, top[:, :1], axis=1)[:, 0]
    possible = np.asarray(right.any(1))  # where nothing fits, nothing can be found
    order = [int(q) for q in np.lexsort((-sure, hits)) if possible[q] and hits[q] < top.shape[1]]
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    mine, theirs = (pictures, rows) if side == IMAGE else (rows, pictures)
    owner = mine if side == IMAGE else pairs.picture[rows]
    _, once = np.unique(owner[order], return_index=True)
    out = []
    for q in [order[k] for k in np.sort(once)[:most]]:
        answers = [
            Answer(int(theirs[g]), bool(right[q, g]), float(asked[q, g]), note=_labels(pairs, side, int(theirs[g])))
            for g in top[q]
        ]
        out.append(Query(side, int(mine[q]), tuple(answers), note=_labels(pairs, other(side), int(mine[q]))))
    return out


def other(side: str) -> str:
    """The side that is asked for."""
    return TEXT if side == IMAGE else IMAGE


def _labels(pairs: Pairs, side: str, place: int) -> str:
    """Names of an item's labels; `side` is the one that asks, so the item is of the other."""
    assert pairs.labels is not None
    table = pairs.labels.text if side == IMAGE else pairs.labels.image
    return ", ".join(pairs.labels.names[k] for k in np.flatnonzero(table[place]))


def _rates(pairs: Pairs, scores: np.ndarray, side: str) -> Row:
    """How many queries have no right answer among the first, of those that could have one."""
    right, top = shares(pairs, side), first(scores, side)
    possible = right.any(1)
    missed = ~np.take_along_axis(right, top, axis=1).any(1)
    return {
        "queries": int(possible.sum()),
        "first": TOP[side],
        "nothing right among them": int((missed & possible).sum()),
    }
