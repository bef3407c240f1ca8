"""Where semantic sharing fails (supplement, Figure 2): test queries whose first answers share no label with them.

The paper names two causes. Super-class confusion: what was found belongs with what was asked for to a wider class, as
banana and orange do. All else is semantic confusion: another class that looks or sounds alike.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.pairs import Pairs
from matchlight.reproduce.exhibits import Result, Work
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.sharing import SHARING
from matchlight.reproduce.sheets import Answer, Query, as_rows, draw_sheet
from matchlight.reproduce.superclasses import SuperClasses, superclasses_of
from matchlight.runs.evaluation import split_scores

TOP = {IMAGE: 5, TEXT: 3}  # sentences for a picture, pictures for a sentence
ASKS = {IMAGE: "pictures, for texts", TEXT: "texts, for pictures"}
SHOWN = 3  # queries a side
NO_TABLE = "no super-classes are known for these classes; --superclasses FILE.json names them: {class: super-class}"


def failures(work: Work, *, superclasses: str | Path | None = None) -> Result:
    """The queries that went most wrong: fewest right answers among the first, and surest of the first of them."""
    work.check((SHARING,))
    assert work.pairs.labels is not None
    wider = superclasses_of(work.pairs.labels.names, superclasses)
    run = work.train(SHARING)
    scores = within_galleries(work, split_scores(run, work.pairs, work.split))
    queries = [q for side in TOP for q in worst(work.pairs, scores, side, split=work.split, wider=wider)]
    table = [{"who asks": ASKS[side], **_rates(work, scores, side, wider)} for side in TOP]
    known = f"super-classes: {wider.source}" if wider.groups else NO_TABLE
    return work.save(
        as_rows(work.pairs, queries),
        lambda: draw_sheet(work.pairs, queries, across=TOP[TEXT]),
        table=table,
        facts=[known, "the paper shows examples and counts nothing"],
    )


def within_galleries(work: Work, scores: np.ndarray) -> np.ndarray:
    """Scores of a split, less than any other where a picture and a text are not ranked among each other."""
    if work.fold is None:
        return scores
    apart = np.full_like(scores, -np.inf)
    for gallery in work.galleries():
        own = np.ix_(gallery.pictures, gallery.rows)
        apart[own] = scores[own]
    return apart


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


def worst(
    pairs: Pairs,
    scores: np.ndarray,
    side: str,
    *,
    split: str = "test",
    most: int = SHOWN,
    wider: SuperClasses | None = None,
) -> list[Query]:
    """Queries in the order of their failing, at most one a picture."""
    wider = wider or SuperClasses({})
    asked, top = (scores if side == IMAGE else scores.T), first(scores, side)
    right = shares(pairs, side, split=split) & np.isfinite(asked)
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
        own = labels_of(pairs, other(side), int(mine[q]))
        answers = []
        for g in top[q][np.isfinite(asked[q, top[q]])]:
            theirs_are = labels_of(pairs, side, int(theirs[g]))
            cause = "" if right[q, g] else cause_of(own, theirs_are, wider)
            named = ", ".join(theirs_are)
            note = f"{cause} ({named})" if cause else named
            answers.append(Answer(int(theirs[g]), bool(right[q, g]), float(asked[q, g]), note=note, cause=cause))
        out.append(Query(side, int(mine[q]), tuple(answers), note=", ".join(own)))
    return out


def cause_of(asked: list[str], found: list[str], wider: SuperClasses) -> str:
    """Why an answer is wrong: it belongs to another class of the same super-class, or to another class altogether."""
    shared = wider.shared(asked, found)
    return f"super-class: {shared}" if shared else "other class"


def other(side: str) -> str:
    """The side that is asked for."""
    return TEXT if side == IMAGE else IMAGE


def labels_of(pairs: Pairs, side: str, place: int) -> list[str]:
    """Names of an item's labels; `side` is the one that asks, so the item is of the other."""
    assert pairs.labels is not None
    table = pairs.labels.text if side == IMAGE else pairs.labels.image
    return [pairs.labels.names[k] for k in np.flatnonzero(table[place])]


def _rates(work: Work, scores: np.ndarray, side: str, wider: SuperClasses) -> Row:
    """How many queries have no right answer among the first, of those that could have one, and why."""
    pairs, top, asked = work.pairs, first(scores, side), scores if side == IMAGE else scores.T
    right = shares(pairs, side, split=work.split) & np.isfinite(asked)
    possible = right.any(1)
    missed = np.flatnonzero(~np.take_along_axis(right, top, axis=1).any(1) & possible)
    pictures, rows = pairs.pictures_of(work.split), pairs.rows(work.split)
    mine, theirs = (pictures, rows) if side == IMAGE else (rows, pictures)
    near = 0
    for q in missed:
        own = labels_of(pairs, other(side), int(mine[q]))
        near += any(
            wider.shared(own, labels_of(pairs, side, int(theirs[g]))) for g in top[q] if np.isfinite(asked[q, g])
        )
    return {
        "queries": int(possible.sum()),
        "first": TOP[side],
        "nothing right among them": len(missed),
        "of these, super-class": near if wider.groups else None,
        "of these, other class": len(missed) - near if wider.groups else None,
    }
