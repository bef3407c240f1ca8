"""Cross-attention between two batches of sets, without forming what is attended.

Every member of a *query* set looks at the members of a *context* set (words at regions, or regions at words), and a
method asks how well it agrees with what it saw. For a query member q and a context with members v_m, let s_m = v_m . q
and let the attention a be computed from s alone. The attended vector is o = sum_m a_m v_m, and its cosine with q needs
no o:

    o . q = sum_m a_m s_m          |o|^2 = a^T G a,  G = V V^T  (once a context)

So one matrix product of all context members with all query members is the only work as long as a vector. Tensors here
have the axes (N contexts, M members, K queries, Q members); padded members are zero vectors. A cosine does not ask how
long the attended vector is, so weights may come in any positive scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import Embedding, Similarity
from matchlight.parts.layers import FAR, masked_mean, masked_softmax, unit
from matchlight.scoring import kernels

EPS = 1e-8
TINY = 1e-30  # under a root: keeps the slope at 0 finite, far below anything that EPS lets through
NORMS = ("clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm")
AGGREGATES = ("lse", "mean", "max", "sum")


@dataclass(frozen=True)
class Meeting:
    """Context sets met with query sets: all with all, or (paired) the k-th with the k-th, and then K is 1."""

    query: Embedding  # (K, Q, D); paired: (N, Q, D)
    context: Embedding  # (N, M, D)
    seen: Tensor  # (N, M, K, Q) inner products
    gram: Tensor  # (N, M, M) inner products of each context's members
    paired: bool

    def per_query(self, x: Tensor) -> Tensor:
        """(K, Q, ...) values of the queries' members, to meet (N, K, Q, ...)."""
        return x[:, None] if self.paired else x[None]

    @property
    def lengths(self) -> Tensor:
        """Norms of the queries' members, to meet (N, K, Q)."""
        return self.per_query(torch.linalg.vector_norm(self.query.vectors, dim=-1))

    @property
    def query_mask(self) -> Tensor | None:
        """Real members of the queries, to meet (N, K, Q)."""
        return None if self.query.mask is None else self.per_query(self.query.mask)

    @property
    def context_mask(self) -> Tensor | None:
        """Real members of the contexts, to meet (N, M, K, Q)."""
        return None if self.context.mask is None else self.context.mask[:, :, None, None]

    def take(self, part: slice) -> Meeting:
        """Some of the contexts, with every query (paired: with their own)."""
        query = self.query.take(part) if self.paired else self.query
        return Meeting(query, self.context.take(part), self.seen[part], self.gram[part], self.paired)

    def turned(self) -> Meeting:
        """The same meeting the other way round: who looked is looked at. Spares the second matrix product."""
        axes = (0, 3, 2, 1) if self.paired else (2, 3, 0, 1)
        return Meeting(self.context, self.query, self.seen.permute(axes).contiguous(), gram(self.query), self.paired)


def whole(embedding: Embedding) -> Embedding:
    """The same sets with zeros where they are padded, at least in single precision."""
    vectors = embedding.vectors if embedding.vectors.dtype == torch.float64 else embedding.vectors.float()
    return replace(embedding, vectors=vectors if embedding.mask is None else vectors * embedding.mask[..., None])


def gram(sets: Embedding) -> Tensor:
    """(N, M, M) inner products of each set's members."""
    return sets.vectors @ sets.vectors.transpose(1, 2)


def every(query: Embedding, context: Embedding) -> Meeting:
    """All contexts with all queries: one matrix product."""
    query, context = whole(query), whole(context)
    seen = context.vectors.flatten(0, 1) @ query.vectors.flatten(0, 1).T
    seen = seen.view(*context.vectors.shape[:2], *query.vectors.shape[:2])
    return Meeting(query, context, seen, gram(context), paired=False)


def own(query: Embedding, context: Embedding) -> Meeting:
    """Each context with the query at the same place only."""
    query, context = whole(query), whole(context)
    seen = context.vectors @ query.vectors.transpose(1, 2)
    return Meeting(query, context, seen[:, :, None], gram(context), paired=True)


def sharpened(seen: Tensor, *, temperature: float, norm: str, real: Tensor | None = None) -> Tensor:
    """Inner products, normalised over the query's members, times the temperature; `real` masks those members.

    The norms need no mask, since a padded member has inner product 0; `vector_norm` has slope 0 at zero rows.
    """
    clipped = F.leaky_relu(seen, 0.1) if norm.startswith("clipped") else seen
    if norm.endswith("l2norm"):
        return clipped * (temperature / (torch.linalg.vector_norm(clipped, dim=-1, keepdim=True) + EPS))
    if norm.endswith("l1norm"):
        return clipped * (temperature / (clipped.abs().sum(-1, keepdim=True) + EPS))
    if norm == "softmax":
        return masked_softmax(clipped, real, -1) * temperature
    return clipped * temperature


def attention(
    meeting: Meeting, *, temperature: float, norm: str = "clipped_l2norm", seen: Tensor | None = None
) -> Tensor:
    """(N, M, K, Q) weights that sum to 1 over the context's real members; `seen` replaces the meeting's products."""
    mask = meeting.query_mask
    sharp = sharpened(
        meeting.seen if seen is None else seen,
        temperature=temperature,
        norm=norm,
        real=None if mask is None else mask[:, None],
    )
    return masked_softmax(sharp, meeting.context_mask, 1)


def attended_length(meeting: Meeting, weights: Tensor) -> Tensor:
    """(N, K, Q) norms of the attended vectors, by way of the Gram matrix."""
    flat = weights.flatten(2)
    square = (flat * (meeting.gram @ flat)).sum(1)
    return square.clamp(min=TINY).sqrt().view(len(weights), *weights.shape[2:])


def cosines(meeting: Meeting, weights: Tensor) -> Tensor:
    """(N, K, Q) cosine of each query member with what it attended to; 0 (and no slope) where either is nothing."""
    dot = (weights * meeting.seen).sum(1)
    norms = attended_length(meeting, weights) * meeting.lengths
    return dot * (norms > EPS) / norms.clamp(min=EPS)


def combined(cosine: Tensor, mask: Tensor | None, *, aggregate: str, sharpness: float = 6.0) -> Tensor:
    """(N, K): one score from the cosines (N, K, Q) of a query's real members."""
    if aggregate == "mean":
        return masked_mean(cosine, mask, 2)
    if aggregate == "sum":
        return cosine.sum(2) if mask is None else (cosine * mask).sum(2)
    scaled = cosine * sharpness if aggregate == "lse" else cosine
    scaled = scaled if mask is None else scaled.masked_fill(~mask, FAR)
    return scaled.amax(2) if aggregate == "max" else scaled.logsumexp(2) / sharpness


class CrossAttention(Similarity):
    """What such similarities share: directions ("t2i": words look at regions; "i2t": regions at words) that add up."""

    def __init__(self, *directions: str):
        super().__init__()
        self.directions = directions

    def direction_scores(self, meeting: Meeting, direction: str) -> Tensor:
        """(N, K) scores of contexts by queries in one direction."""
        raise NotImplementedError

    def fused(self) -> kernels.AttentionSettings | None:
        """The settings of `kernels.attended_scores` that give these scores; None where none do."""
        return None

    def has_kernel(self, device: torch.device) -> bool:
        """On every device, where the settings are some that the kernels know."""
        return self.fused() is not None

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        how = self.fused()
        if how is not None and kernels.usable(images.vectors, texts.vectors):
            return kernels.attended_sets(images, texts, self.directions, how)
        by_way = self._by_direction(images, texts, paired=False)
        return sum_of([scores if way == "t2i" else scores.T for way, scores in by_way.items()])

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return sum_of([scores[:, 0] for scores in self._by_direction(images, texts, paired=True).values()])

    def _by_direction(self, images: Embedding, texts: Embedding, *, paired: bool) -> dict[str, Tensor]:
        meet = own if paired else every
        with torch.autocast(images.vectors.device.type, enabled=False):  # cosines of close rivals need the digits
            first = meet(texts, images) if self.directions[0] == "t2i" else meet(images, texts)
            met = {way: first if way == self.directions[0] else first.turned() for way in self.directions}
            return {way: self.direction_scores(meeting, way) for way, meeting in met.items()}

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The mean of each set, of unit length."""
        return unit(masked_mean(embedding.vectors.float(), embedding.mask))[:, None]

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """Products, normalised products, weights, and two passes over them."""
        return 5 * 4 * images.vectors.shape[1] * texts.vectors.shape[1]


def sum_of(scores: list[Tensor]) -> Tensor:
    """The sum of one tensor or more."""
    return scores[0] if len(scores) == 1 else torch.stack(scores).sum(0)
