"""Items as Gaussians: a mean, a spread, draws from both, and how two sets of draws match.

Part of PCME (`pcme.py`). Outside training an item's draws are a function of its side and id, so that it scores alike
alone and in a batch, in any block and on any device.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.core import IMAGE, TEXT, Embedding, Embeddings, Items, Matcher, Seed, Similarity, Sizes
from matchlight.inputs.augmentation import row_uniform
from matchlight.methods.pie_net import BothWays, LocalAttention, Polysemous, Pooled, polysemous_image, polysemous_text
from matchlight.parts.layers import glorot, unit

MEASURES = ("dot", "matmul", "probability")


def normal(ids: Tensor, samples: int, dim: int, *, seed: Seed) -> Tensor:
    """(N, samples, dim) standard normal numbers, a function of (seed, id, place) alone."""
    even = row_uniform(ids, samples * dim, seed)
    centred = 2 * even - (1 - 2.0**-24)  # the middles of 2^24 steps of (-1, 1): never an end, where erfinv is infinite
    return (math.sqrt(2) * torch.erfinv(centred)).view(len(ids), samples, dim)


class Spread(nn.Module):
    """log sigma: what one head saw of the parts, projected, plus a view of the whole."""

    def __init__(self, inside: int, dim: int, whole: nn.Module, *, hidden: int | None = None, start: float = 0.0):
        super().__init__()
        self.attention = LocalAttention(inside, heads=1, hidden=hidden)
        self.fc = glorot(nn.Linear(inside, dim))
        nn.init.constant_(self.fc.bias, start)
        self.whole = whole

    def forward(self, parts: Tensor, items: Items) -> Tensor:
        """(N, dim)."""
        return self.fc(self.attention(parts, items.mask)[:, 0]) + self.whole(parts, items)


class Gaussian(nn.Module):
    """An item as draws from its Gaussian: fresh ones in training, always the same ones outside it."""

    def __init__(self, mean: Polysemous, spread: Spread, *, samples: int, side: str, keep: bool):
        super().__init__()
        self.mean = mean
        self.spread = spread
        self.samples = samples
        self.seed = (IMAGE, TEXT).index(side)
        self.keep = keep  # whole sets of draws also where nothing is learnt; else their mean, all that a dot needs

    def forward(self, items: Items) -> Embedding:
        """(N, samples, dim), with "mean" and "log_sigma", (N, dim) each."""
        parts = self.mean.parts(items)
        mean = self.mean.sets(parts, items)[0][:, 0].float()
        log_sigma = self.spread(parts, items).float()
        seed = 2 + devices.shared_draw() if self.training else self.seed
        noise = normal(items.id.to(mean.device), self.samples, mean.shape[-1], seed=seed)
        drawn = mean[:, None] + log_sigma.exp()[:, None] * noise
        if torch.is_inference_mode_enabled() and not self.keep:
            drawn = drawn.mean(1, keepdim=True)
        return Embedding(drawn, extra={"mean": mean, "log_sigma": log_sigma})


def uncertainty(embedding: Embedding) -> Tensor:
    """(N,): the geometric mean of an item's standard deviations; large = the model is unsure what it means."""
    return embedding.extra["log_sigma"].mean(-1).exp()


def both_sides(
    sizes: Sizes,
    dim: int,
    *,
    word_dim: int,
    hidden: int | None,
    last_word: bool,
    start: float,
    eps: float,
    **drawn: Any,
) -> dict[str, nn.Module]:
    """The two encoders; `drawn` goes to both (samples, keep)."""
    mean: dict[str, Any] = {"heads": 1, "hidden": hidden, "dropout": 0.0, "eps": eps}
    image = polysemous_image(sizes.image_dim, dim, **mean)
    text = polysemous_text(sizes.vocabulary, dim, word_dim=word_dim, last_word=last_word, **mean)
    spread = partial(Spread, hidden=hidden, start=start)
    wide = spread(sizes.image_dim, dim, Pooled(sizes.image_dim, dim))
    long = spread(word_dim, dim, BothWays(word_dim, dim, last_word=last_word))
    return {IMAGE: Gaussian(image, wide, side=IMAGE, **drawn), TEXT: Gaussian(text, long, side=TEXT, **drawn)}


# ---- how two Gaussians match -----------------------------------------------------------------------------------------


def log_odds(square: Tensor, scale: Tensor, shift: Tensor, dims: tuple[int, int]) -> Tensor:
    """log p / (1 - p) of p, the mean over `dims` of sigmoid(2 (shift - scale d)); d^2 = square + 1e-6.

    -log p and -log (1 - p) are the softplus of minus and plus this number, exact also where p is all but 0 or 1.
    """
    logit = 2 * (shift - scale * (square.clamp(min=0) + 1e-6).sqrt())
    return F.logsigmoid(logit).logsumexp(dims) - F.logsigmoid(-logit).logsumexp(dims)


def squares(x: Tensor, y: Tensor) -> Tensor:
    """(I, J, D), (T, J, D) -> (I, J, T, J) squared distances of all draws, by one product."""
    with torch.autocast(x.device.type, enabled=False):
        a, b = x.float().flatten(0, 1), y.float().flatten(0, 1)
        far = a.square().sum(1)[:, None] + b.square().sum(1)[None] - 2 * a @ b.T
    return far.view(len(x), x.shape[1], len(y), y.shape[1])


class Draws(Similarity):
    """How alike two sets of draws are: their mean dot product, the sum of these (`matmul`), or how likely they match.

    The scale a and the shift b of the match probability live here, since they score; the loss meets them through
    `Uncertain`.
    """

    def __init__(self, *, measure: str, samples: int, scale: float, shift: float):
        super().__init__()
        self.measure = measure
        self.factor = samples**2 if measure == "matmul" else 1
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.shift = nn.Parameter(torch.tensor(float(shift)))

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        if self.measure != "probability":
            return images.vectors.mean(1) @ texts.vectors.mean(1).T * self.factor
        return log_odds(squares(images.vectors, texts.vectors), self.scale, self.shift, (1, 3)).sigmoid()

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        x, y = images.vectors.float(), texts.vectors.float()
        if self.measure != "probability":
            return (x.mean(1) * y.mean(1)).sum(-1) * self.factor
        with torch.autocast(x.device.type, enabled=False):
            dots = torch.einsum("pjd,pkd->pjk", x, y)
        far = x.square().sum(-1)[:, :, None] + y.square().sum(-1)[:, None] - 2 * dots
        return log_odds(far, self.scale, self.shift, (1, 2)).sigmoid()

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The direction of the draws' mean."""
        return unit(embedding.vectors.mean(1, keepdim=True))

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """One number a pair, or all distances in the four forms they go through."""
        draws = images.vectors.shape[1] * texts.vectors.shape[1]
        return 16 * draws if self.measure == "probability" else 4


class Uncertain(Matcher):
    """A matcher whose captions carry the scale and shift of the match probability to the loss, as "match" (N, 2)."""

    similarity: Draws

    def embed(self, side: str, items: Items) -> Embeddings:
        """Sets of draws."""
        embedding = super().embed(side, items)
        if side != TEXT or torch.is_inference_mode_enabled():
            return embedding
        assert isinstance(embedding, Embedding)
        match = torch.stack([self.similarity.scale, self.similarity.shift]).expand(len(embedding), 2)
        return replace(embedding, extra={**embedding.extra, "match": match})
