"""How a pair scores against a fixed gallery, both ways: its loss, its rank and its standardised score.

Among a gallery of captions, does its picture find its caption; among a gallery of pictures, does its caption find its
picture? Near-duplicates of the pair's picture, and of the picture that a manufactured caption was taken from, are no
negatives and are left out of the gallery.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.core import IMAGE, TEXT, Embeddings, Matcher
from matchlight.inputs.batches import Table, seeded
from matchlight.parts.similarities import Dot
from matchlight.scoring.all_pairs import score_all
from matchlight.scoring.encode import encode

TEMPERATURE = 0.05
GALLERY = 1000  # pictures and captions to compare with
SET_GALLERY = 100  # for models whose scores are costly
CHUNK = 2048  # pairs at once
MEASURES = ("own", "i2t", "t2i", "i2t_rank", "t2i_rank", "i2t_z", "t2i_z")

GalleryScores = dict[str, np.ndarray]


@dataclass(frozen=True)
class GalleryQuery:
    """Pairs to score: places of pictures, rows of captions, and what serves as gallery."""

    picture: np.ndarray  # (P,)
    caption: np.ndarray  # (P,)
    gallery: np.ndarray  # (G,) rows: a picture and one caption of it each
    group: np.ndarray  # (pictures of the whole table,) near-duplicates share a number

    def part(self, some: slice) -> GalleryQuery:
        """Some of the pairs, against the same gallery."""
        return GalleryQuery(self.picture[some], self.caption[some], self.gallery, self.group)


def is_dot_product(matcher: Matcher) -> bool:
    """True for models with one vector an item, compared by a product: everything against everything is cheap."""
    return isinstance(getattr(matcher, "similarity", None), Dot)


def gallery_of(picture: np.ndarray, rows: np.ndarray, more: np.ndarray, *, size: int, seed: int) -> np.ndarray:
    """At most `size` rows of different pictures, those of `rows` before those of `more`."""
    rng = seeded(seed, 51)
    order = np.concatenate([rng.permutation(rows), rng.permutation(more)])
    first = np.unique(picture[order], return_index=True)[1]
    return order[np.sort(first)[:size]]


class Encoded:
    """Items of one side, encoded once, found again by their place in the whole table."""

    def __init__(self, matcher: Matcher, table: Table, side: str, places: np.ndarray):
        self.places = np.unique(places)
        on_gpu = next(matcher.parameters()).device.type == "cuda"
        self.values: Embeddings = encode(matcher, table, side, self.places, keep_on_device=on_gpu)

    def take(self, places: np.ndarray) -> Embeddings:
        """The embeddings of these places, in this order."""
        return self.values.take(torch.from_numpy(self.where(places)))

    def where(self, places: np.ndarray) -> np.ndarray:
        """Where these places stand in `values`."""
        return np.searchsorted(self.places, places)

    @property
    def vectors(self) -> Tensor:
        """(N, D) of a plain model."""
        return self.values.single  # type: ignore[union-attr]


def score_against_gallery(matcher: Matcher, table: Table, query: GalleryQuery) -> GalleryScores:
    """(P,) of each measure: score, losses, share of the gallery that scores better, and standardised scores."""
    chunk = len(query.picture) if is_dot_product(matcher) else CHUNK
    captions = Encoded(matcher, table, TEXT, query.gallery)
    pictures = Encoded(matcher, table, IMAGE, table.pairs.picture[query.gallery])
    parts = []
    for start in range(0, len(query.picture), chunk):
        some = query.part(slice(start, start + chunk))
        images = Encoded(matcher, table, IMAGE, some.picture)
        texts = Encoded(matcher, table, TEXT, some.caption)
        own = _own_scores(matcher, images, texts, some)
        ways = {
            "i2t": (_matrix(matcher, images, captions), images.where(some.picture), captions.places),
            "t2i": (_matrix(matcher, pictures, texts).T, texts.where(some.caption), None),
        }
        scores = {"own": own}
        for way, (matrix, place, rows) in ways.items():
            candidates = query.group[pictures.places if rows is None else table.pairs.picture[rows]]
            scores |= _one_direction(way, own, matrix, place, _groups(some, table.pairs.picture, candidates))
        parts.append({name: value.cpu().numpy() for name, value in scores.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in MEASURES}


@torch.inference_mode()
def vectors_against_gallery(
    images: Tensor, texts: Tensor, picture: np.ndarray, query: GalleryQuery, *, whole: bool = True
) -> GalleryScores:
    """The same of (pictures, D) and (captions, D) vectors whose product is the score; `picture` is each caption's.

    Not `whole`, it gives the two losses alone.
    """
    own = (images[torch.from_numpy(query.picture)] * texts[torch.from_numpy(query.caption)]).sum(1)
    candidates = picture[query.gallery]
    groups = query.group[query.picture], query.group[picture[query.caption]], query.group[candidates]
    scores = {"own": own}
    sides = (
        ("i2t", images, texts[torch.from_numpy(query.gallery)], query.picture),
        ("t2i", texts, images[torch.from_numpy(candidates)], query.caption),
    )
    for way, mine, others, places in sides:
        used, place = np.unique(places, return_inverse=True)
        matrix = mine[torch.from_numpy(used)] @ others.T
        scores |= _one_direction(way, own, matrix, place, groups, whole=whole)
    return {name: value.cpu().numpy() for name, value in scores.items() if whole or name in ("i2t", "t2i")}


def real_and_wrong(
    sides: tuple[Tensor, Tensor], picture: np.ndarray, query: GalleryQuery, *, whole: bool = True, name: str = ""
) -> GalleryScores:
    """`vectors_against_gallery` of pairs and then as many manufactured ones, which are `..._wrong`."""
    out: GalleryScores = {}
    for measure, scores in vectors_against_gallery(*sides, picture, query, whole=whole).items():
        out[f"{name}{measure}"], out[f"{name}{measure}_wrong"] = np.split(scores, 2)
    return out


@torch.inference_mode()
def _own_scores(matcher: Matcher, images: Encoded, texts: Encoded, query: GalleryQuery) -> Tensor:
    parts = []
    for start in range(0, len(query.picture), CHUNK):
        part = query.part(slice(start, start + CHUNK))
        parts.append(matcher.score_pairs(images.take(part.picture), texts.take(part.caption)).float())
    return torch.cat(parts) / matcher.per_cosine()


@torch.inference_mode()
def _matrix(matcher: Matcher, images: Encoded, texts: Encoded) -> Tensor:
    """(I, T) scores, on the model's device where they come from a product."""
    if is_dot_product(matcher):
        return matcher.score(images.values, texts.values).float() / matcher.per_cosine()
    return torch.from_numpy(score_all(matcher, images.values, texts.values)) / matcher.per_cosine()


def _groups(
    query: GalleryQuery, picture: np.ndarray, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of each pair's picture and of the picture its caption came from, beside those of the gallery."""
    return query.group[query.picture], query.group[picture[query.caption]], candidates


def _one_direction(
    way: str,
    own: Tensor,
    matrix: Tensor,
    place: np.ndarray,
    groups: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    whole: bool = True,
) -> dict[str, Tensor]:
    """One direction's measures: `matrix` (items, G), `place` (P,) the row of `matrix` each pair reads."""
    mine, source, candidates = (torch.from_numpy(np.asarray(group)).to(matrix.device) for group in groups)
    own = own.to(matrix.device)
    parts = []
    for start in range(0, len(own), CHUNK):
        some = slice(start, start + CHUNK)
        scores = matrix[torch.from_numpy(place[some]).to(matrix.device)]
        excluded = (candidates[None] == mine[some, None]) | (candidates[None] == source[some, None])
        loss = _loss(own[some], scores, excluded)
        parts.append((loss, *_rank_and_z(own[some], scores, ~excluded)) if whole else (loss,))
    names = (way, f"{way}_rank", f"{way}_z")
    return dict(zip(names, (torch.cat(column) for column in zip(*parts, strict=True)), strict=False))


def _loss(own: Tensor, scores: Tensor, excluded: Tensor) -> Tensor:
    """(P,) softmax loss of each pair among its negatives."""
    others = (scores / TEMPERATURE).masked_fill_(excluded, float("-inf"))
    return torch.logaddexp(others.logsumexp(1), own / TEMPERATURE) - own / TEMPERATURE


def _rank_and_z(own: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """(P,) share of the negatives that score at least as well, and the score in their standard deviations."""
    count = negative.sum(1).clamp(min=1)
    mean = (scores * negative).sum(1) / count
    spread = (((scores - mean[:, None]) * negative) ** 2).sum(1).div(count).sqrt().clamp(min=1e-6)
    beaten = ((scores >= own[:, None]) & negative).sum(1) / count
    return beaten, (own - mean) / spread
