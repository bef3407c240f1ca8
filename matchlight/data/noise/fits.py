"""Which captions fit which pictures, and how to deal captions out so that none does.

A caption fits its own picture, every picture that has a caption in the very same words, and every picture that the
relevance of the data names. Dealing them out starts from a random permutation and repairs it: first many random swaps
at once, then, for what is left, chains of exchanges. Where captions only fit their own pictures one swap always helps,
unless a picture holds more than half of what is dealt; where they fit more, a chain (an augmenting path) is found
whenever there is a permutation without a fit (searched to the end for up to 10,000 captions).
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from matchlight.data.noise.truth import Bools, Ints
from matchlight.pairs import Pairs

ROUNDS = 64  # of random swaps; a few suffice unless one picture holds nearly half of the captions
WORK = 10**8  # look-ups one chain may cost before it is given up: all there are for up to 10,000 captions


class Fits:
    """A sparse yes/no table of contents (captions, or all captions of a picture) against pictures."""

    def __init__(self, table: Any):
        by_content, by_picture = table.tocsr(), table.tocsc()
        by_content.sort_indices()
        self.width = table.shape[1]
        self.rows = (by_content.indptr, by_content.indices)
        self.columns = (by_picture.indptr, by_picture.indices)
        content = np.repeat(np.arange(table.shape[0]), np.diff(by_content.indptr))
        self.keys: Ints = content * self.width + by_content.indices  # ascending, for look-ups

    def __call__(self, content: Ints, picture: Ints) -> Bools:
        """(P,) does each content fit the picture beside it?"""
        asked = content * self.width + picture
        places = np.searchsorted(self.keys, asked)
        return np.asarray(self.keys[np.minimum(places, len(self.keys) - 1)] == asked)

    def pictures_apart(self, content: int, picture: Ints) -> Bools:
        """(P,) which of these pictures this content does not fit."""
        return self._apart(self.rows, content, picture)

    def contents_apart(self, picture: int, content: Ints) -> Bools:
        """(P,) which of these contents do not fit this picture."""
        return self._apart(self.columns, picture, content)

    def movable(self, content: Ints, picture: Ints) -> Bools:
        """(P,) False for a place whose content fits every picture here, or whose picture every content here fits."""
        held, here = np.zeros(len(self.rows[0]) - 1, bool), np.zeros(self.width, bool)
        held[content], here[picture] = True, True
        contents, pictures = np.divmod(self.keys, self.width)
        inside = held[contents] & here[pictures]
        reach = np.bincount(contents[inside], minlength=len(held))
        drawn = np.bincount(pictures[inside], minlength=self.width)
        return np.asarray((reach[content] < here.sum()) & (drawn[picture] < held.sum()))

    @staticmethod
    def _apart(table: tuple[Ints, Ints], one: int, others: Ints) -> Bools:
        starts, indices = table
        apart = np.ones(int(others.max()) + 1, bool)
        near = indices[starts[one] : starts[one + 1]]
        apart[near[near < len(apart)]] = False
        return np.asarray(apart[others])


def caption_fits(pairs: Pairs) -> tuple[Fits, Ints]:
    """What each caption fits, and which content of that table each row holds (equal words are one content)."""
    from scipy.sparse import csr_matrix

    content = _same_words(pairs)
    contents, rows = int(content.max(initial=-1)) + 1, np.arange(len(pairs))
    yes = np.ones(len(pairs), bool)
    table = csr_matrix((yes, (content, pairs.picture)), shape=(contents, len(pairs.names)))
    if pairs.relevance is not None:
        gather = csr_matrix((yes, (content, rows)), shape=(contents, len(pairs)))
        table = table + gather @ pairs.relevance.tocsr().astype(bool)
    table.eliminate_zeros()
    return Fits(table), content


def block_fits(pairs: Pairs) -> Fits:
    """What the captions of each picture, taken together, fit: a picture that any one of them fits."""
    from scipy.sparse import csr_matrix

    fits, content = caption_fits(pairs)
    contents, pictures = len(fits.rows[0]) - 1, len(pairs.names)
    holds = csr_matrix((np.ones(len(pairs), bool), (pairs.picture, content)), shape=(pictures, contents))
    table = csr_matrix((np.ones(len(fits.keys), bool), fits.rows[1], fits.rows[0]), shape=(contents, pictures))
    return Fits(holds @ table)


def _same_words(pairs: Pairs) -> Ints:
    known: dict[str, int] = {}  # captions without words (text given as vectors) are each their own
    words = (caption or f"\0{row}" for row, caption in enumerate(pairs.captions))
    return np.fromiter((known.setdefault(word, len(known)) for word in words), np.int64, len(pairs))


def derange(fits: Fits, content: Ints, picture: Ints, rng: np.random.Generator) -> Ints | None:
    """A random permutation `turn` under which no `content[turn[k]]` fits `picture[k]`; None if there is none."""
    turn = rng.permutation(len(content))
    bad = np.flatnonzero(fits(content[turn], picture))
    for _ in range(ROUNDS):
        if not len(bad):
            break
        bad = _swap(fits, content, picture, turn, bad, rng)
    for place in bad.tolist():
        still = fits(content[turn[[place]]], picture[[place]])[0]  # an earlier chain may have helped it on its way
        if still and not _chain(fits, content, picture, turn, place, rng):
            return None
    return turn


def _swap(fits: Fits, content: Ints, picture: Ints, turn: Ints, bad: Ints, rng: np.random.Generator) -> Ints:
    """Every bad place tries one random partner; exchanges that help both are made in `turn`. What is still bad."""
    other = rng.integers(len(turn), size=len(bad))
    once = np.bincount(np.concatenate([bad, other]), minlength=len(turn)) == 1  # no place in two swaps at a time
    apart = once[bad] & once[other]
    mine, theirs = bad[apart], other[apart]
    good = ~fits(content[turn[theirs]], picture[mine]) & ~fits(content[turn[mine]], picture[theirs])
    mine, theirs = mine[good], theirs[good]
    turn[mine], turn[theirs] = turn[theirs], turn[mine]
    return bad[fits(content[turn[bad]], picture[bad])]


def _chain(fits: Fits, content: Ints, picture: Ints, turn: Ints, start: int, rng: np.random.Generator) -> bool:
    """Give `start` another caption along a chain of takers, breadth first; the last of the chain takes its own."""
    takes_last = fits.pictures_apart(int(content[turn[start]]), picture)
    if not takes_last.any():
        return False
    held = content[turn]
    before = np.full(len(turn), -1)  # before[k] = who would take what place k holds; -1: not reached
    before[start] = start
    queue = [start]
    for place in islice(queue, WORK // len(turn)):  # grows while it is walked
        reached = fits.contents_apart(int(picture[place]), held) & (before < 0)
        ends = np.flatnonzero(reached & takes_last)
        if len(ends):
            end = int(rng.choice(ends))
            before[end] = place
            _pass_along(turn, before, start, end)
            return True
        before[reached] = place
        queue.extend(np.flatnonzero(reached).tolist())
    return False


def _pass_along(turn: Ints, before: Ints, start: int, end: int) -> None:
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    turn[path] = turn[[start, *path[:-1]]]  # each takes what the next one held, the end what the start held
