"""Approximate candidates, exact scores: what a costly similarity should look at is proposed by single vectors.

A first sweep compares one vector an item, or every vector of a set (`Similarity.coarse`), and proposes a few times as
many candidates as are wanted; the true similarity then scores just those, pair by pair. For a set whose pairs run into
the tens of billions that is hundreds of times less to score.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Matcher
from matchlight.scoring.all_pairs import coarse_parts, default_budget, pair_cost
from matchlight.training.checkpoints import State
from matchlight.training.mining.chunks import Chunks
from matchlight.training.mining.search import Ledger, Lists, Search, check_numbers, sweep
from matchlight.training.mining.top_k import INF

MANY = 2_000_000_000  # pairs; with fewer, proposals save little or nothing: a proposed pair costs more than one of many
COSTLY = 1024  # bytes a pair: attention between two sets, not a few products

Members = tuple[Tensor, ...]  # the vectors of each member of an ensemble


def would_help(search: Search) -> bool:
    """Whether so many pairs of so costly a similarity are to be scored that proposals are worth a thought."""
    if len(search.pictures) * len(search.rows) <= MANY:
        return False
    images, texts = search.images[0], search.texts[0]  # the search begins with them
    known = coarse_parts(search.matcher, TEXT, texts)
    return all(part is not None for part in known) and pair_cost(search.matcher, images, texts) >= COSTLY


def coarse_vectors(matcher: Matcher, side: str, chunks: Chunks, where: torch.device) -> list[Members]:
    """Per chunk, the (N, k, d) vectors that propose, of each member of an ensemble."""
    return [tuple(part.to(where) for part in _coarse(matcher, side, chunks[k])) for k in range(len(chunks))]


def _coarse(matcher: Matcher, side: str, embedding: Embeddings) -> Members:
    parts = coarse_parts(matcher, side, embedding)
    vectors = tuple(vector.float() for vector in parts if vector is not None)
    if len(vectors) < len(parts):
        raise BadInput("this model has no single vectors to propose candidates with; mine without coarse")
    return vectors


def proposed(images: Members, texts: Members) -> Tensor:
    """(I, T) largest dot products of two batches of vectors (I, k, d), (T, l, d), averaged over members."""
    return reduce(torch.add, map(_nearest, images, texts)) / len(images)


def _nearest(images: Tensor, texts: Tensor) -> Tensor:
    every = images.flatten(0, 1) @ texts.flatten(0, 1).T
    return every.view(len(images), images.shape[1], len(texts), texts.shape[1]).amax((1, 3))


class Rescore:
    """Exact scores of proposed pairs: those of a unit at a time, so that only two chunks need be there."""

    def __init__(self, search: Search, lists: Lists):
        self.search = search
        self.places = [torch.where(best.scores > -INF, best.places, -1).long() for best in lists]
        self.scores = [torch.full(best.scores.shape, -INF, device=search.where) for best in lists]

    def unit(self, k: int, j: int) -> None:
        """Score what was proposed between two chunks, by either side."""
        tall, wide = self.search.images.span(k), self.search.texts.span(j)
        for side, (own, other) in enumerate(((tall, wide), (wide, tall))):
            named = self.places[side][own]
            query, slot = ((named >= other.start) & (named < other.stop)).nonzero(as_tuple=True)
            if len(query):
                item = named[query, slot] - other.start
                image, text = (query, item) if side == 0 else (item, query)
                self.scores[side][query + own.start, slot] = self._pairs(k, j, image, text)

    def _pairs(self, k: int, j: int, image: Tensor, text: Tensor) -> Tensor:
        images, texts = self.search.images[k], self.search.texts[j]
        room = 16 * default_budget(self.search.where)
        each = 4 * pair_cost(self.search.matcher, images, texts) + _width(images) + _width(texts)
        size = max(1, room // each)
        out = []
        for start in range(0, len(image), size):
            part = slice(start, start + size)
            some = images.take(image[part]), texts.take(text[part])
            out.append(self.search.matcher.score_pairs(*(side.to(self.search.where) for side in some)).float())
        return torch.cat(out)


def _width(embedding: Embeddings) -> int:
    return sum(4 * part.vectors[0].numel() for part in embedding.members)


def propose_and_rescore(
    search: Search, wanted: tuple[int, int], coarse: int, ledger: Ledger
) -> list[tuple[Tensor, Tensor]]:
    """For both sides, exact scores and places of `coarse` times as many proposals as are wanted."""
    lists, state = search.empty(coarse * wanted[0], coarse * wanted[1]), ledger.read()
    if state is None or state["stage"] != "rescore":
        images = coarse_vectors(search.matcher, IMAGE, search.images, search.where)
        texts = coarse_vectors(search.matcher, TEXT, search.texts, search.where)
        sweep(search, lambda k, j: proposed(images[k], texts[j]), lists, ledger, name="coarse")
        check_numbers(best.scores for best in lists)  # they would be taken for no proposal
        state = None
    again, start = Rescore(search, lists), 0
    if state is not None:
        start = state["done"]
        again.places, again.scores = ([part.to(search.where) for part in state[name]] for name in ("places", "exact"))

    def kept(done: int) -> State:
        return {"stage": "rescore", "done": done, "places": again.places, "exact": again.scores}

    if state is None:
        ledger.write(lambda: kept(0), now=True)
    search.go("scoring", again.unit, start=start, after=lambda done: ledger.write(lambda: kept(done)))
    return list(zip(again.scores, again.places, strict=True))
