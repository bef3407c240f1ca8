"""PIE-Net: a few heads look at the parts of a picture or a caption, and each adds what it saw to the whole.

Song and Soleymani, CVPR 2019, arXiv:1906.04402. The parts are a picture's cells or a caption's word vectors, the whole
is the picture's mean cell, projected, or the caption as a GRU of two directions has read it. K heads make K vectors;
PVSE compares them as a set, PCME takes one as the mean of a Gaussian.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from matchlight.core import BadInput, Embedding, Items
from matchlight.parts.encoders import last_state, lengths, read, turn, word_vectors
from matchlight.parts.layers import glorot, masked_mean, masked_softmax, unit


class LocalAttention(nn.Module):
    """`heads` weighted means of a set of vectors; a small network gives each vector its weight for each head."""

    def __init__(self, inside: int, *, heads: int, hidden: int | None = None):
        super().__init__()
        hidden = hidden or max(1, inside // 2)
        self.first = nn.Linear(inside, hidden, bias=False)
        self.second = nn.Linear(hidden, heads, bias=False)
        for layer in (self.first, self.second):
            nn.init.xavier_uniform_(layer.weight)

    def weights(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, R, K): how much of each place each head takes; sums to 1 over real places, 0 on padding."""
        scores = self.second(torch.tanh(self.first(x)))
        return masked_softmax(scores, None if mask is None else mask[..., None], dim=1)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, R, D) -> (N, K, D)."""
        return torch.einsum("nrk,nrd->nkd", self.weights(x, mask), x)


class PieNet(nn.Module):
    """What each head saw, squashed, is added to the whole: K vectors of unit length."""

    def __init__(
        self,
        inside: int,
        dim: int,
        *,
        heads: int,
        hidden: int | None = None,
        dropout: float = 0.0,
        eps: float = 1e-8,
    ):
        super().__init__()
        self.attention = LocalAttention(inside, heads=heads, hidden=hidden)
        self.fc = glorot(nn.Linear(inside, dim))
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)
        self.eps = eps

    def forward(self, whole: Tensor, parts: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, dim) and (N, R, inside) -> the vectors (N, K, dim) and the residuals (N, K, dim) they were made with."""
        residual = self.dropout(torch.sigmoid(self.fc(self.attention(parts, mask))))
        return unit(self.norm(whole[:, None] + residual), eps=self.eps), residual


# ---- parts and wholes of either side ---------------------------------------------------------------------------------


class Cells(nn.Module):
    """A picture's parts are its regions or grid cells as they come; one vector is a set of one."""

    def forward(self, items: Items) -> Tensor:
        """(N, R, D)."""
        return items.x[:, None] if items.x.dim() == 2 else items.x


class WordVectors(nn.Module):
    """A caption's parts are its word vectors."""

    def __init__(self, vocabulary: int, word_dim: int, *, dropout: float = 0.0):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, word_dim)
        nn.init.xavier_uniform_(self.embed.weight)
        self.dropout = nn.Dropout(dropout)

    def forward(self, items: Items) -> Tensor:
        """(N, L, word_dim)."""
        return self.dropout(word_vectors(self.embed, items.x))


class Pooled(nn.Module):
    """The mean of the parts, projected."""

    def __init__(self, inside: int, dim: int):
        super().__init__()
        self.fc = nn.Linear(inside, dim)

    def forward(self, parts: Tensor, items: Items) -> Tensor:
        """(N, dim)."""
        return self.fc(masked_mean(parts, items.mask))


class BothWays(nn.Module):
    """The states of two GRUs side by side: one has read the caption to its end, the other back to its start.

    `last_word` is how released models were trained: both states are taken at the last word, where the GRU that reads
    backwards has seen that one word only.
    """

    def __init__(self, word_dim: int, dim: int, *, last_word: bool):
        super().__init__()
        if dim % 2:
            raise BadInput(f"dim={dim}: dim must be even, half of it for each direction of reading")
        self.ahead = nn.GRU(word_dim, dim // 2, batch_first=True)
        self.back = nn.GRU(word_dim, dim // 2, batch_first=True)
        self.last_word = last_word

    def forward(self, parts: Tensor, items: Items) -> Tensor:
        """(N, dim)."""
        count = lengths(items)
        with torch.autocast(parts.device.type, enabled=False):  # autocast would copy all weights at every call
            words = parts.float()
            ahead = last_state(read(self.ahead, words, count), items)
            return torch.cat([ahead, self._behind(words, count, items)], -1)

    def _behind(self, words: Tensor, count: Tensor, items: Items) -> Tensor:
        if self.last_word:
            return self.back(last_state(words, items)[:, None])[0][:, 0]
        return last_state(read(self.back, turn(words, count), count), items)


class Polysemous(nn.Module):
    """A picture or a caption as K vectors, each its whole and what one head saw of its parts."""

    def __init__(self, parts: nn.Module, whole: nn.Module, pie: PieNet, *, dropout: float = 0.0):
        super().__init__()
        self.parts = parts
        self.whole = whole
        self.pie = pie
        self.dropout = nn.Dropout(dropout)

    def sets(self, parts: Tensor, items: Items) -> tuple[Tensor, Tensor]:
        """Vectors and residuals, (N, K, dim) each."""
        return self.pie(self.dropout(self.whole(parts, items)), parts, items.mask)

    def forward(self, items: Items) -> Embedding:
        """(N, K, dim), with the residuals as "residual" while a loss may ask for them."""
        vectors, residual = self.sets(self.parts(items), items)
        kept = {} if torch.is_inference_mode_enabled() else {"residual": residual}
        return Embedding(vectors, extra=kept)


def polysemous_image(inside: int, dim: int, *, dropout: float, **pie: Any) -> Polysemous:
    """Pictures: cells and their mean; `pie` goes to PIE-Net (heads, hidden, eps)."""
    net = PieNet(inside, dim, dropout=dropout, **pie)
    return Polysemous(Cells(), Pooled(inside, dim), net, dropout=dropout)


def polysemous_text(
    vocabulary: int, dim: int, *, word_dim: int, last_word: bool, dropout: float, **pie: Any
) -> Polysemous:
    """Captions: word vectors and the two ways of reading them; `pie` goes to PIE-Net (heads, hidden, eps)."""
    net = PieNet(word_dim, dim, dropout=dropout, **pie)
    words = WordVectors(vocabulary, word_dim, dropout=dropout)
    return Polysemous(words, BothWays(word_dim, dim, last_word=last_word), net, dropout=dropout)
