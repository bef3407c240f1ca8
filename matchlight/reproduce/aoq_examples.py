"""AOQ's Figures 2 and 3 (supplement): the same queries answered by the base and by the second round, where they differ.

A query is shown where exactly one of the two has a right first answer. The paper shows queries that the second round
wins; here one that it loses stands among them wherever there is one, and the table counts both kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.inputs.batches import seeded
from matchlight.pairs import Pairs
from matchlight.reproduce import style
from matchlight.reproduce.aoq_rounds import bases, both_rounds, first, second, title
from matchlight.reproduce.exhibits import Paths, Result, Work, paths_of
from matchlight.reproduce.ncr_examples import answers
from matchlight.reproduce.numbers import Row
from matchlight.reproduce.sheets import ASKS, EDGE, GAP, HEAD, Page, Query, a_few, as_rows, listed, picture, said, words
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

TOP = 3
WON, LOST = 2, 1  # queries a side
LISTED, ROOM, NAME = 0.85, 0.62, 0.2  # inches: a list of texts, a picture's height, the line above them
ASKED = {IMAGE: "pictures, for texts", TEXT: "texts, for pictures"}


@dataclass(frozen=True)
class Both:
    """A query with the first answers of the base and of the second round."""

    before: Query
    after: Query

    @property
    def won(self) -> bool:
        """Whether the second round is the one that is right."""
        return self.after.answers[0].right


def examples(work: Work, *, run: Paths | None = None) -> Result:
    """Queries whose first answer is right after the first round alone, or after the second alone."""
    work.check_splits(work.split)
    names, runs = _runs(work, run)
    scores = [split_scores(one, work.pairs, work.split) for one in runs]
    shown: list[Both] = []
    table: list[Row] = []
    for side in (IMAGE, TEXT):
        both = [Both(*each) for each in zip(*(answers(work, one, side, top=TOP) for one in scores), strict=True)]
        differ = [one for one in both if one.before.answers[0].right != one.after.answers[0].right]
        won = sum(one.won for one in differ)
        told = {"queries": len(both), "won by the second round": won, "lost by it": len(differ) - won}
        table.append({"who asks": ASKED[side], **told})
        shown += chosen(work.pairs, differ)
    rows = [
        {"model": name, **row}
        for one in shown
        for name, query in zip(names, (one.before, one.after), strict=True)
        for row in as_rows(work.pairs, [query])
    ]
    facts = ["drawn at random (seed 0) among queries that differ", "right: the own one, or a known fit"]
    if not shown:
        facts.append("both rounds answer every query alike: there is nothing to show")
    return work.save(rows or [{"model": None}], lambda: _draw(work.pairs, shown, names), table=table, facts=facts)


def _runs(work: Work, run: Paths | None) -> tuple[list[str], list[Run]]:
    if run is not None:
        work.check_idle()
        paths = paths_of(run)
        if len(paths) != 2:
            raise BadInput(f"{work.name} compares two runs, before and after; {len(paths)} were given")
        loaded = [Run.load(path, device=work.device) for path in paths]
        return [f"before: {loaded[0].method}", f"after: {loaded[1].method}"], loaded
    base = bases(work)[0]
    work.check((first(base), second(base)))
    return [title(base), f"{title(base)} + AOQ"], list(both_rounds(work, base))


def chosen(pairs: Pairs, differ: list[Both], *, seed: int = 0) -> list[Both]:
    """Some that the second round wins and one that it loses, one a picture; more of one kind where the other lacks."""
    order = [differ[k] for k in seeded(seed, len(differ)).permutation(len(differ))]

    def picture_of(one: Both) -> int:
        return one.after.place if one.after.side == IMAGE else int(pairs.picture[one.after.place])

    return a_few(order, good=lambda one: one.won, owner=picture_of, counts=(WON, LOST))


# ---- the sheet -------------------------------------------------------------------------------------------------------


def _draw(pairs: Pairs, shown: list[Both], names: list[str]) -> style.Figure:
    images, texts = ([one for one in shown if one.after.side == side] for side in (IMAGE, TEXT))
    line = {IMAGE: 2 * (LISTED + NAME) + GAP, TEXT: ROOM + NAME + 2 * GAP}
    height = EDGE + HEAD * (bool(images) + bool(texts)) + sum(line[one.after.side] for one in shown)
    page = Page(max(height, 1.0))
    if not shown:
        page.heads([(EDGE, "left", "both rounds answer every query alike")])
    if images:
        page.heads([(EDGE, "left", "picture"), (EDGE + 1.75, "left", "texts that come first")])
    for one in images:
        _lists(page, pairs, one, names)
        page.left -= line[IMAGE]
    if texts:
        page.heads([(EDGE, "left", "text"), (ASKS, "left", "pictures that come first")])
    for one in texts:
        _pictures(page, pairs, one, names)
        page.left -= line[TEXT]
    return page.figure


def _lists(page: Page, pairs: Pairs, one: Both, names: list[str]) -> None:
    """A picture, and beside it the texts of both, one list below the other."""
    top = page.left
    picture(page.axes(EDGE, 1.5, 2 * LISTED), pairs, one.after.place)
    for name, query in zip(names, (one.before, one.after), strict=True):
        _name(page, EDGE + 1.75, name)
        listed(page.axes(EDGE + 1.75, style.DOUBLE - 1.75 - 2 * EDGE, LISTED), pairs, query.answers)
        page.left -= LISTED
    page.left = top


def _pictures(page: Page, pairs: Pairs, one: Both, names: list[str]) -> None:
    """A text, and beside it the pictures of both, framed green or red."""
    top = page.left
    words(page.axes(EDGE, ASKS - 2 * EDGE, ROOM), said(pairs, one.after.place))
    wide = (style.DOUBLE - ASKS - EDGE) / 2
    for column, (name, query) in enumerate(zip(names, (one.before, one.after), strict=True)):
        page.left = top
        _name(page, ASKS + column * wide, name)
        each = (wide - GAP) / TOP
        for k, answer in enumerate(query.answers):
            frame = style.RIGHT if answer.right else style.WRONG
            picture(page.axes(ASKS + column * wide + k * each, each - GAP / 2, ROOM), pairs, answer.place, frame=frame)
    page.left = top


def _name(page: Page, x: float, name: str) -> None:
    """Whose answers follow, on the present line."""
    y = (page.left - NAME / 2) / page.height
    page.figure.text(x / style.DOUBLE, y, name, ha="left", va="center", fontsize=7.5, fontweight="bold")
    page.left -= NAME
