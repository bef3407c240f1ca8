"""Similarities of one vector a side: the dot product, and the order between vectors."""

from __future__ import annotations

from torch import Tensor

from matchlight.core import Embedding, Similarity


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
    """Order embeddings: 0 where the caption's vector lies below the picture's everywhere, else minus the excess."""

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
