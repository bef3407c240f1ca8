"""Where the relevant items of a query end up in its list: positions from 1, ascending, under either tie rule.

Links are placed by counting what scores higher, or where they are many by one sort of the line; a dense truth is
written out as lists (`gain_lists.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from matchlight.measuring.metrics.arrays import Array, Places
from matchlight.measuring.metrics.blocks import (
    BUDGET,
    Scores,
    ScoresLike,
    as_scores,
    check_size,
    check_ties,
    on_device,
    over,
    read,
    spans,
)
from matchlight.measuring.metrics.gain_lists import listed
from matchlight.measuring.metrics.links import Links
from matchlight.measuring.metrics.on_device import all_ahead
from matchlight.measuring.metrics.relevance import Relevance

FEW = 32  # up to so many items, counting is quicker than sorting the line
Positions = Places
T = TypeVar("T")


def relevant_positions(
    scores: ScoresLike, relevance: Relevance, *, ties: str = "worst", budget: int = BUDGET
) -> Iterator[tuple[int, Positions]]:
    """For each query with anything relevant: the query, and the positions (from 1, ascending) of its relevant items."""
    matrix = _checked(scores, relevance, ties)
    if relevance.links is not None and on_device(matrix):
        yield from _counted_on_device(matrix, relevance.links, ties, budget)
        return
    for q0, q1 in spans(matrix, budget):
        yield from _answers(q0, q1, read(matrix, slice(q0, q1), q0), relevance, ties)


def per_query(
    scores: ScoresLike, relevance: Relevance, value: Callable[[int, Positions], T], *, ties: str, budget: int
) -> list[tuple[int, T]]:
    """(query, `value(query, positions)`) of each query with anything relevant, in order."""
    matrix = _checked(scores, relevance, ties)
    if relevance.links is not None and on_device(matrix):
        found = _counted_on_device(matrix, relevance.links, ties, budget)
        return [(query, value(query, places)) for query, places in found]

    def work(q0: int, q1: int, block: Array) -> list[tuple[int, T]]:
        return [(query, value(query, places)) for query, places in _answers(q0, q1, block, relevance, ties)]

    return [answer for part in over(matrix, budget, work) for answer in part]


def _checked(scores: ScoresLike, relevance: Relevance, ties: str) -> Scores:
    check_ties(ties)
    matrix = as_scores(scores)
    check_size(matrix, relevance)
    return matrix


def _answers(q0: int, q1: int, block: Array, relevance: Relevance, ties: str) -> Iterator[tuple[int, Positions]]:
    """(query, positions) of the queries of a block that have anything relevant."""
    if relevance.links is None:
        every = (np.flatnonzero(line) + 1 for line in listed(block, relevance.gains(q0, q1, 0, block.shape[1]), ties))
    else:
        every = (positions(block[query - q0], relevance.links.of(query), ties) for query in range(q0, q1))
    return ((q0 + number, places) for number, places in enumerate(every) if len(places))


def _counted_on_device(scores: Scores, links: Links, ties: str, budget: int) -> Iterator[tuple[int, Positions]]:
    """(query, positions) of linked queries; scores and counts of links come from the device, the rest is sums."""
    own, ahead = all_ahead(scores, links, ties=ties, budget=budget)
    for query in np.flatnonzero(np.diff(links.start)):
        part = slice(links.start[query], links.start[query + 1])
        if ties == "official":
            yield int(query), np.sort(ahead[part]) + 1
        else:
            order = np.argsort(own[part], kind="stable")
            yield int(query), _wrong_first(own[part][order], ahead[part][order])


def positions(line: Array, places: Positions, ties: str) -> Positions:
    """Positions of these places in a list of falling scores; sorted."""
    return _worst(line, places) if ties == "worst" else _official(line, places)


def _worst(line: Array, places: Positions) -> Positions:
    """Wrong items first among equals: position = wrong items scored at least as high + own place among the relevant."""
    own = np.sort(line[places])
    return _wrong_first(own, _as_high(line, own))


def _wrong_first(own: Array, as_high: Positions) -> Positions:
    """Positions of relevant items from their scores, ascending, and how many of all items score as high as each."""
    relevant_as_high = len(own) - np.searchsorted(own, own, side="left")
    return (as_high - relevant_as_high)[::-1] + np.arange(1, len(own) + 1)


def _as_high(line: Array, own: Array) -> Positions:
    if len(own) <= FEW:
        return np.array([np.count_nonzero(line >= score) for score in own], np.int64)
    return np.asarray(len(line) - np.searchsorted(np.sort(line), own, side="left"), np.int64)


def _official(line: Array, places: Positions) -> Positions:
    """The larger index first among equals."""
    own = line[places]
    if len(own) <= FEW:
        ahead = [np.count_nonzero(line > score) for score in own]
        level = [np.count_nonzero(line[place:] == score) for place, score in zip(places, own, strict=True)]
        return np.sort(np.array(ahead, np.int64) + level)
    row = np.sort(line)
    last = len(line) - np.searchsorted(row, own, side="left")  # the position if it came last among its equals
    tied = last - (len(line) - np.searchsorted(row, own, side="right")) > 1
    if np.count_nonzero(tied) > FEW:
        mine = np.zeros(len(line), bool)
        mine[places] = True
        return np.flatnonzero(mine[np.argsort(line, kind="stable")[::-1]]) + 1
    for k in np.flatnonzero(tied):
        last[k] -= np.count_nonzero(line[: places[k]] == own[k])
    return np.sort(last)
