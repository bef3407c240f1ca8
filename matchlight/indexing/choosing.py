"""Which vectors propose candidates: the model's own, or distilled ones where those need fewer candidates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.indexing.candidate_vectors import all_rows
from matchlight.indexing.scorers import OwnVectors, Proposer
from matchlight.indexing.searcher import Searcher
from matchlight.indexing.tuning import Truth, needed
from matchlight.pairs import IMAGE

SHARE = 0.05  # of the items may be candidates before vectors are distilled
WORTH = 400  # items below which scoring everything is as quick as anything
COARSE = ("auto", "plain", "distilled")
MAPS = "coarse.safetensors"  # the file of distilled vectors in an index


@dataclass(frozen=True)
class Choice:
    """How it is chosen."""

    coarse: str  # one of COARSE
    target: float  # share of the true best ten that the candidates must hold
    seed: int
    room: Path  # for files of rows, where there are many, until `forget_rows`


def pick_proposer(
    searcher: Searcher, plain: OwnVectors, truths: dict[str, Truth], how: Choice
) -> dict[str, np.ndarray]:
    """The model's own vectors where they propose well enough, else distilled ones where those do better; their rows.

    Distilled ones are kept in `how.room`, the folder of the index.
    """
    if not truths:
        return _rows_of_pictures(searcher, plain, how.room)
    known = all(plain.known(truth.queries.take(slice(0, 1)), truth.given) for truth in truths.values())
    if not known and how.coarse == "plain":
        raise BadInput("this model has no vectors that propose candidates; coarse=auto distils some")
    own = _rows(searcher, plain, how.room) if known else None
    if own and plain.exact and how.coarse != "distilled":
        return own
    cost = _cost(truths, plain, own, how.target) if own else {}
    sizes = {side: len(searcher.sides[side].sets) for side in searcher.sides}
    good = all(cost[side] <= max(SHARE * sizes[side] / 2, 10) for side in cost)
    if own and (how.coarse == "plain" or (how.coarse == "auto" and (good or sizes[IMAGE] < WORTH))):
        return own
    from matchlight.indexing import distil  # by torch

    unseen = {truth.given: truth.places for truth in truths.values()}
    learned = distil.distilled(searcher, seed=how.seed, unseen=unseen)
    rows = _rows(searcher, learned, how.room)
    learned_cost = _cost(truths, learned, rows, how.target)
    if own and how.coarse == "auto" and sum(learned_cost.values()) >= sum(cost.values()):
        forget_rows(rows)
        return own
    if own:
        forget_rows(own)
    learned.save(how.room / MAPS)
    searcher.proposer = learned
    return rows


def _rows_of_pictures(searcher: Searcher, plain: OwnVectors, room: Path) -> dict[str, np.ndarray]:
    """Pictures alone: the model's own vectors propose, since others are learned from captions."""
    if not plain.known(searcher.sides[IMAGE].sets.take(np.arange(1)), IMAGE):
        raise BadInput(
            f"a model that compares by {plain.similarity} has no vectors of its own to search with, and learns them "
            "from captions; index pictures with captions, or take a model such as vse_infty or lantern"
        )
    return _rows(searcher, plain, room)


def _rows(searcher: Searcher, proposer: Proposer, room: Path) -> dict[str, np.ndarray]:
    return {side: all_rows(proposer, own.sets, side, room=room) for side, own in searcher.sides.items()}


def forget_rows(rows: dict[str, np.ndarray]) -> None:
    """Remove the files of rows that are no part of the index: its engine has them."""
    for array in rows.values():
        if isinstance(array, np.memmap):
            Path(str(array.filename)).unlink()


def _cost(truths: dict[str, Truth], proposer: Proposer, rows: dict[str, np.ndarray], target: float) -> dict[str, int]:
    return {side: needed(truth, proposer, rows[side], target) for side, truth in truths.items()}
