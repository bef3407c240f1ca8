"""What training minimises: hinges (all, hardest), InfoNCE, complementary and generalised cross-entropy losses.

Every loss here reads a `Contrast`: for each labelled pair its own score, the scores of its picture with every caption
and of its caption with every picture, and which of those may serve as negatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from matchlight.core import IMAGE, TEXT, Batch, Embeddings, Objective, Scores, Terms

INF = float("inf")


@dataclass(frozen=True)
class Contrast:
    """P labelled pairs against everything else in the batch."""

    own: Tensor  # (P,)
    texts: Tensor  # (P, T) the pair's picture with every caption
    images: Tensor  # (P, I) the pair's caption with every picture
    text_ok: Tensor  # (P, T) True = may be a negative
    image_ok: Tensor  # (P, I)

    def directions(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The two ways to ask, by name: scores and which may be negatives."""
        return {"i2t": (self.texts, self.text_ok), "t2i": (self.images, self.image_ok)}


def contrast(matrix: Tensor, batch: Batch, *, siblings: str = "masked") -> Contrast:
    """Read a batch's matrix pair by pair. `siblings="negatives"` spares only the pair itself, as the old code does."""
    image, text = batch.positive[:, 0], batch.positive[:, 1]
    place_i = torch.arange(matrix.shape[0], device=matrix.device)
    place_t = torch.arange(matrix.shape[1], device=matrix.device)
    text_ok, image_ok = place_t[None] != text[:, None], place_i[None] != image[:, None]
    if siblings == "masked":
        owner = batch.sides[TEXT].extra["picture"][: matrix.shape[1]]
        pictures = batch.sides[IMAGE].id[: matrix.shape[0]]
        text_ok = text_ok & (owner[None] != pictures[image][:, None])
        image_ok = image_ok & (pictures[None] != owner[text][:, None])
    elif siblings != "negatives":
        raise ValueError(f"siblings is 'masked' or 'negatives', not {siblings!r}")
    texts, images = matrix.index_select(0, image), matrix.index_select(1, text).T
    return Contrast(texts.gather(1, text[:, None])[:, 0], texts, images, text_ok, image_ok)


def hinge_all(c: Contrast, margin: Tensor | float) -> Terms:
    """Per pair, the hinge costs of all its negatives summed, both ways."""
    floor = margin - c.own
    costs = {name: (floor[:, None] + score).relu() * ok for name, (score, ok) in c.directions().items()}
    return {name: cost.sum(1) for name, cost in costs.items()}


def hinge_hardest(c: Contrast, margin: Tensor | float) -> Terms:
    """Per pair, the hinge cost of its hardest negative, both ways; a pair without negatives costs nothing."""
    floor = margin - c.own
    worst = {name: score.masked_fill(~ok, -INF).amax(1) for name, (score, ok) in c.directions().items()}
    return {name: (floor + score).relu() for name, score in worst.items()}


def hardest_cost(cost: Tensor, ok: Tensor, hardness: Tensor | None = None) -> Tensor:
    """(P,) the hinge cost of each pair's hardest negative, of `cost` (P, N) before it is cut at 0.

    With `hardness` (P,) that has this share, and the mean over all of the pair's negatives has the rest.
    """
    worst = cost.masked_fill(~ok, -INF).amax(1).relu()
    if hardness is None:
        return worst
    mean = (cost.relu() * ok).sum(1) / ok.sum(1).clamp(min=1)
    return (1 - hardness) * mean + hardness * worst


def hinge_hardening(c: Contrast, margin: Tensor | float, hardness: Tensor) -> Terms:
    """Per pair, both ways, between the mean hinge cost of its negatives (`hardness` 0) and that of the hardest (1)."""
    floor = (margin - c.own)[:, None]
    return {name: hardest_cost(floor + score, ok, hardness) for name, (score, ok) in c.directions().items()}


def log_probabilities(c: Contrast, temperature: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Per direction: log probability (P,) of the pair's own partner, and of each negative (P, N), -inf where barred."""
    out = {}
    for name, (score, ok) in c.directions().items():
        others = (score / temperature).masked_fill(~ok, -INF)
        own = c.own / temperature
        norm = torch.logsumexp(torch.cat([own[:, None], others], 1), 1)
        out[name] = (own - norm, others - norm[:, None])
    return out


def evidence(matrix: Tensor, batch: Batch, *, temperature: float = 0.05) -> Tensor:
    """(P,) l_i = -1/2 (log r_ii + log c_ii): how badly each labelled pair fits, whatever the method trains with."""
    sure = log_probabilities(contrast(matrix.detach().float(), batch), temperature)
    return -(sure["i2t"][0] + sure["t2i"][0]) / 2


def info_nce(c: Contrast, *, temperature: float) -> Terms:
    """-log p of the own partner, half a direction each."""
    return {name: -own / 2 for name, (own, _) in log_probabilities(c, temperature).items()}


def complementary_log(c: Contrast, *, temperature: float, pull: float = 0.1) -> Terms:
    """-sum log(1 - p) over what a pair is *not*, plus a little pull towards what it is said to be."""
    terms: Terms = {}
    for name, (own, others) in log_probabilities(c, temperature).items():
        wrong = others.exp().clamp(max=1 - 1e-6)
        terms[name] = -torch.log1p(-wrong).sum(1) - pull * own
    return terms


def generalised_cross_entropy(c: Contrast, *, temperature: float, q: float = 0.5) -> Terms:
    """(1 - p^q) / q: between cross-entropy (q -> 0) and mean absolute error (q = 1)."""
    return {name: (1 - (q * own).exp()) / q for name, (own, _) in log_probabilities(c, temperature).items()}


class Hinge(Objective):
    """Ranking loss with a margin; `hardest=False` sums over all negatives (the warm-up of later methods).

    Where a batch has `extra["hardness"]`, the hardest negative counts by that share and the mean of all by the rest.
    """

    def __init__(self, *, margin: float = 0.2, hardest: bool = True, siblings: str = "masked"):
        super().__init__()
        self.margin = margin
        self.hardest = hardest
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: Mapping[str, Embeddings], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        if self.hardest and (hardness := batch.extra.get("hardness")) is not None:
            return hinge_hardening(c, self.margin, hardness)
        return (hinge_hardest if self.hardest else hinge_all)(c, self.margin)


class SoftmaxLoss(Objective):
    """Losses of softmax probabilities at a fixed temperature: `kind` is infonce, rclog (complementary) or gce."""

    reduction = "mean"
    kinds = ("infonce", "rclog", "gce")

    def __init__(
        self, kind: str, *, temperature: float = 0.05, pull: float = 0.1, q: float = 0.5, siblings: str = "masked"
    ):
        super().__init__()
        self.kind = kind
        self.temperature = temperature
        self.pull = pull
        self.q = q
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: Mapping[str, Embeddings], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        if self.kind == "infonce":
            return info_nce(c, temperature=self.temperature)
        if self.kind == "rclog":
            return complementary_log(c, temperature=self.temperature, pull=self.pull)
        return generalised_cross_entropy(c, temperature=self.temperature, q=self.q)
