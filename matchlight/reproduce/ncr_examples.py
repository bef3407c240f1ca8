"""NCR's Figures 2 and 3 (supplement): what a model of noisy pairs finds, successes and failures side by side.

A caption stands above two pictures: its own at the left, the first answer at the right, framed green where it is right
and red where it is not. A picture stands beside its own caption and the first three answers, each marked. What the
data's relevance file calls a fit counts as right.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import IMAGE, TEXT
from matchlight.inputs.batches import seeded
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.exhibit_page import run_facts
from matchlight.reproduce.exhibits import Paths, Result, Work
from matchlight.reproduce.ncr_runs import NOISE, asked_run
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.recalls import recalls
from matchlight.reproduce.sheets import EDGE, GAP, HEAD, Answer, Page, Query, a_few, as_rows, fits, picture, said
from matchlight.runs.evaluation import split_scores

TOP = {TEXT: 1, IMAGE: 3}
SHOWN = {TEXT: (2, 2), IMAGE: (3, 1)}  # successes and failures, as many as the paper shows
ROOM, WORDS, LISTED = 1.15, 0.42, 1.3  # inches: a picture's height, the words above it, a list of texts


def examples(work: Work, *, run: Paths | None = None, noise: float = NOISE) -> Result:
    """Captions with their own picture and the first answer, pictures with their own caption and the first three."""
    work.check_splits(work.split)
    loaded, _ = asked_run(work, run, noise=noise)
    scores = split_scores(loaded, work.pairs, work.split)
    queries = [query for side in SHOWN for query in drawn(work, scores, side)]
    told = [_hits(work, scores, side) for side in SHOWN]
    facts = [
        run_facts("run", loaded),
        "drawn at random (seed 0) among successes and among failures",
        "right: the own one, or a known fit",
    ]
    return work.save(
        [{**row, "own": _own(work.pairs, row)} for row in as_rows(work.pairs, queries)],
        lambda: _draw(work.pairs, queries),
        table=[
            {"who asks": "texts, for pictures" if line["side"] == TEXT else "pictures, for texts", **line}
            for line in told
        ],
        facts=facts,
        run=Path(loaded.folder).name,
        recalls=recalls(work, loaded),
    )


def answers(work: Work, scores: np.ndarray, side: str, *, top: int) -> list[Query]:
    """Every query of a side with its first answers: within its own gallery, where there are several."""
    pictures, rows = work.pairs.pictures_of(work.split), work.pairs.rows(work.split)
    out = []
    for gallery in work.galleries():
        block = scores[np.ix_(gallery.pictures, gallery.rows)]
        asked, mine, theirs = block, pictures[gallery.pictures], rows[gallery.rows]
        if side == TEXT:
            asked, mine, theirs = block.T, theirs, mine
        order = np.argsort(-asked, axis=1, kind="stable")[:, :top]
        for q, found in enumerate(order):
            got = [(int(theirs[g]), float(asked[q, g])) for g in found]
            place = int(mine[q])
            right = [fits(work.pairs, place, g) if side == TEXT else fits(work.pairs, g, place) for g, _ in got]
            out.append(
                Query(side, place, tuple(Answer(g, ok, value) for (g, value), ok in zip(got, right, strict=True)))
            )
    return out


def drawn(work: Work, scores: np.ndarray, side: str, *, seed: int = 0) -> list[Query]:
    """Successes, then failures, one a picture at most; where there are too few of a kind, more of the other."""
    every = [query for query in answers(work, scores, side, top=TOP[side]) if side == TEXT or _has_words(work, query)]
    order = [every[k] for k in seeded(seed, len(every)).permutation(len(every))]
    owner = work.pairs.picture
    return a_few(
        order,
        good=lambda query: query.answers[0].right,
        owner=lambda query: query.place if side == IMAGE else int(owner[query.place]),
        counts=SHOWN[side],
    )


def _has_words(work: Work, query: Query) -> bool:
    """Whether a picture has a caption: only then something can be found for it."""
    return bool((work.pairs.picture == query.place).any())


def _hits(work: Work, scores: np.ndarray, side: str) -> Row:
    every = answers(work, scores, side, top=1)
    hits = sum(query.answers[0].right for query in every)
    return {"side": side, "queries": len(every), "first answer right": hits, "percent": 100 * hits / max(1, len(every))}


def _own(pairs: Pairs, row: Row) -> str:
    """What belongs to a query: a caption's picture, a picture's first caption."""
    if row["asks"] == TEXT:
        return str(pairs.names[int(pairs.picture[row["query"]])])
    return pairs.captions[own_caption(pairs, row["query"])]


def own_caption(pairs: Pairs, place: int) -> int:
    """The first caption of a picture."""
    return int(np.flatnonzero(pairs.picture == place)[0])


# ---- the sheet -------------------------------------------------------------------------------------------------------


def _draw(pairs: Pairs, queries: list[Query]) -> style.Figure:
    texts, images = ([query for query in queries if query.side == side] for side in (TEXT, IMAGE))
    lines = -(-len(texts) // 2)
    height = (
        EDGE + lines * (ROOM + WORDS + 2 * GAP) + len(images) * (LISTED + GAP) + HEAD * (bool(texts) + bool(images))
    )
    page = Page(height)
    half = style.DOUBLE / 2
    if texts:
        heads = [(EDGE, "left", "text to picture: its own picture, then the first answer")]
        page.heads(heads)
    for k in range(0, len(texts), 2):
        for column, query in enumerate(texts[k : k + 2]):
            _pair(page, pairs, query, x=EDGE + column * half, number=k + column + 1)
        page.left -= ROOM + WORDS + 2 * GAP
    if images:
        page.heads([(EDGE, "left", "picture to text: its own caption, then the first three answers")])
    for query in images:
        picture(page.axes(EDGE, 1.6, LISTED - GAP), pairs, query.place)
        _list(page.axes(EDGE + 1.8, style.DOUBLE - 1.8 - 2 * EDGE, LISTED - GAP), pairs, query)
        page.left -= LISTED + GAP
    return page.figure


def _pair(page: Page, pairs: Pairs, query: Query, *, x: float, number: int) -> None:
    """A caption above its own picture and the one that was found."""
    wide = style.DOUBLE / 4 - GAP
    above = page.axes(x, 2 * wide, WORDS)
    above.set_axis_off()
    text = style.wrapped(f"({number}) {said(pairs, query.place)}", 58, lines=2)
    above.text(0, 0.25, text, fontsize=7.5, va="bottom", transform=above.transAxes)
    page.left -= WORDS
    first = query.answers[0]
    for column, (place, right) in enumerate(((int(pairs.picture[query.place]), True), (first.place, first.right))):
        frame = style.RIGHT if right else style.WRONG
        picture(page.axes(x + column * wide, wide - GAP, ROOM), pairs, place, frame=frame, dashes="--")
    page.left += WORDS


def _list(axes: style.Axes, pairs: Pairs, query: Query) -> None:
    """A picture's own caption, then what was found, one below the other, each with a mark."""
    axes.set_axis_off()
    lines = [("own", style.GREY, own_caption(pairs, query.place))]
    lines += [
        ("✓" if one.right else "✗", style.RIGHT if one.right else style.WRONG, one.place) for one in query.answers
    ]
    for k, (mark, colour, row) in enumerate(lines):
        at: style.Options = {"y": 1 - (k + 0.5) / len(lines), "va": "center", "transform": axes.transAxes}
        axes.text(0.0, s=mark, color=colour, fontweight="bold", fontsize=7.5, **at)
        axes.text(0.07, s=style.wrapped(said(pairs, row), 80, lines=2), fontsize=7.5, **at)
