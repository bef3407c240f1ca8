"""Similarities used by two methods or more, and scoring a big matrix in blocks within a memory budget."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from matchlight.console import track
from matchlight.core import Embedding, Embeddings, Matcher, Parts, Similarity


class Dot(Similarity):
    """One vector each: the dot product (a cosine when the encoders give unit vectors)."""

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        return images.single @ texts.single.T

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return (images.single * texts.single).sum(-1)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The vectors themselves propose: for unit vectors the proposal is already exact."""
        return embedding.vectors

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """One number a pair."""
        return 4


class Order(Similarity):
    """Order embeddings: 0 where the caption's vector lies below the picture's in every dimension, else minus the excess."""

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        excess = (texts.single[None] - images.single[:, None]).relu()
        return -excess.norm(dim=-1)

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return -(texts.single - images.single).relu().norm(dim=-1)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """A difference vector a pair, twice."""
        return 8 * images.vectors.shape[-1]


def default_budget(device: torch.device) -> int:
    """Bytes a block of scores may take: a quarter of what is free, at most 2 GiB."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return min(free // 4, 2 << 30)
    return 256 << 20


def _first(embedding: Embeddings) -> Embedding:
    return tuple.__getitem__(embedding, 0) if isinstance(embedding, Parts) else embedding


def pair_cost(matcher: Matcher, images: Embeddings, texts: Embeddings) -> int:
    """Bytes one pair needs, the costliest member of an ensemble deciding."""
    members = getattr(matcher, "members", [matcher])
    return max(member.similarity.cost(_first(images), _first(texts)) for member in members)


def block_shape(images: int, texts: int, cost: int, budget: int) -> tuple[int, int]:
    """How many pictures by how many captions fit the budget, as square as the matrix lets it be."""
    room = max(1, budget // max(cost, 1))
    side = max(1, int(room**0.5))
    tall = min(images, side)
    wide = min(texts, max(1, room // tall))
    return min(images, max(1, room // wide)), wide


@torch.inference_mode()
def score_all(
    matcher: Matcher,
    images: Embeddings,
    texts: Embeddings,
    *,
    budget: int | None = None,
    device: torch.device | str | None = None,
    quiet: bool = True,
) -> np.ndarray:
    """(I, T) float32 scores of everything against everything, block by block; the blocks never change the result."""
    where = torch.device(device) if device is not None else next(matcher.parameters()).device
    cost = pair_cost(matcher, images, texts)
    tall, wide = block_shape(len(images), len(texts), cost, budget or default_budget(where))
    out = np.empty((len(images), len(texts)), dtype=np.float32)
    starts = [(i, t) for i in range(0, len(images), tall) for t in range(0, len(texts), wide)]
    held, row = -1, images
    for i, t in starts if quiet else track(starts, "scoring"):
        if i != held:
            held, row = i, images.take(slice(i, i + tall)).to(where)
        block = matcher.score(row, texts.take(slice(t, t + wide)).to(where))
        out[i : i + tall, t : t + wide] = block.float().cpu().numpy()
    return out
