"""What a model thinks of a pair: its loss against a fixed gallery, both ways, for real pairs and manufactured ones.

A pair is asked two questions: among a gallery of captions, does its picture find its caption; among a gallery of
pictures, does its caption find its picture. Look-alikes of the pair's picture, and of the picture a manufactured
caption was taken from, are no fair rivals and are left out of the gallery.
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
GALLERY = 1000  # pictures and captions asked against
SET_GALLERY = 100  # for models whose scores are costly
CHUNK = 2048  # pairs at once
NAMES = ("own", "i2t", "t2i", "i2t_rank", "t2i_rank", "i2t_z", "t2i_z")

Answers = dict[str, np.ndarray]


@dataclass(frozen=True)
class Asked:
    """Pairs to ask a model about: places of pictures, rows of captions, and what serves as gallery."""

    picture: np.ndarray  # (P,)
    caption: np.ndarray  # (P,)
    gallery: np.ndarray  # (G,) rows: a picture and one caption of it each
    group: np.ndarray  # (pictures of the whole table,) look-alikes share a number

    def part(self, some: slice) -> Asked:
        """Some of the pairs, against the same gallery."""
        return Asked(self.picture[some], self.caption[some], self.gallery, self.group)


def is_plain(matcher: Matcher) -> bool:
    """True for models with one vector an item, compared by a product: everything against everything is cheap."""
    return type(getattr(matcher, "similarity", None)) is Dot


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


def ask(matcher: Matcher, table: Table, asked: Asked) -> Answers:
    """(P,) of each name: score, losses, share of the gallery that scores better, and standardised scores."""
    chunk = len(asked.picture) if is_plain(matcher) else CHUNK
    captions = Encoded(matcher, table, TEXT, asked.gallery)
    pictures = Encoded(matcher, table, IMAGE, table.pairs.picture[asked.gallery])
    parts = []
    for start in range(0, len(asked.picture), chunk):
        some = asked.part(slice(start, start + chunk))
        images = Encoded(matcher, table, IMAGE, some.picture)
        texts = Encoded(matcher, table, TEXT, some.caption)
        own = _own(matcher, images, texts, some)
        ways = {
            "i2t": (_matrix(matcher, images, captions), images.where(some.picture), captions.places),
            "t2i": (_matrix(matcher, pictures, texts).T, texts.where(some.caption), None),
        }
        found = {"own": own}
        for way, (matrix, place, rows) in ways.items():
            rivals = asked.group[pictures.places if rows is None else table.pairs.picture[rows]]
            found |= _against(way, own, matrix, place, _barred(some, table.pairs.picture, rivals))
        parts.append({name: value.cpu().numpy() for name, value in found.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in NAMES}


@torch.inference_mode()
def ask_vectors(images: Tensor, texts: Tensor, picture: np.ndarray, asked: Asked) -> Answers:
    """The same of (pictures, D) and (captions, D) vectors whose product is the score; `picture` is each caption's."""
    own = (images[torch.from_numpy(asked.picture)] * texts[torch.from_numpy(asked.caption)]).sum(1)
    rivals = picture[asked.gallery]
    groups = asked.group[asked.picture], asked.group[picture[asked.caption]], asked.group[rivals]
    found = {"own": own}
    sides = (
        ("i2t", images, texts[torch.from_numpy(asked.gallery)], asked.picture),
        ("t2i", texts, images[torch.from_numpy(rivals)], asked.caption),
    )
    for way, mine, others, places in sides:
        used, place = np.unique(places, return_inverse=True)
        found |= _against(way, own, mine[torch.from_numpy(used)] @ others.T, place, groups)
    return {name: value.cpu().numpy() for name, value in found.items()}


@torch.inference_mode()
def _own(matcher: Matcher, images: Encoded, texts: Encoded, asked: Asked) -> Tensor:
    parts = []
    for start in range(0, len(asked.picture), CHUNK):
        part = asked.part(slice(start, start + CHUNK))
        parts.append(matcher.score_pairs(images.take(part.picture), texts.take(part.caption)).float())
    return torch.cat(parts)


@torch.inference_mode()
def _matrix(matcher: Matcher, images: Encoded, texts: Encoded) -> Tensor:
    """(I, T) scores, on the model's device where they come from a product."""
    if is_plain(matcher):
        return matcher.score(images.values, texts.values).float()
    return torch.from_numpy(score_all(matcher, images.values, texts.values))


def _barred(asked: Asked, picture: np.ndarray, rivals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of each pair's picture and of the picture its caption came from, beside those of the gallery."""
    return asked.group[asked.picture], asked.group[picture[asked.caption]], rivals


def _against(
    way: str, own: Tensor, matrix: Tensor, place: np.ndarray, groups: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> dict[str, Tensor]:
    """One direction's answers: `matrix` (items, G), `place` (P,) the row of `matrix` each pair reads."""
    mine, lent, rivals = (torch.from_numpy(np.asarray(group)).to(matrix.device) for group in groups)
    own = own.to(matrix.device)
    parts = []
    for start in range(0, len(own), CHUNK):
        some = slice(start, start + CHUNK)
        scores = matrix[torch.from_numpy(place[some]).to(matrix.device)]
        barred = (rivals[None] == mine[some, None]) | (rivals[None] == lent[some, None])
        parts.append(_answers(own[some], scores, ~barred))
    loss, rank, z = (torch.cat(column) for column in zip(*parts, strict=True))
    return {way: loss, f"{way}_rank": rank, f"{way}_z": z}


def _answers(own: Tensor, scores: Tensor, fair: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(P,) loss, share of fair rivals that score at least as well, and the score in their standard deviations."""
    count = fair.sum(1).clamp(min=1)
    others = (scores / TEMPERATURE).masked_fill(~fair, float("-inf"))
    loss = torch.logsumexp(torch.cat([own[:, None] / TEMPERATURE, others], 1), 1) - own / TEMPERATURE
    mean = (scores * fair).sum(1) / count
    spread = (((scores - mean[:, None]) * fair) ** 2).sum(1).div(count).sqrt().clamp(min=1e-6)
    beaten = ((scores >= own[:, None]) & fair).sum(1) / count
    return loss, beaten, (own - mean) / spread
