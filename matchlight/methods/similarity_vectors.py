"""Similarity vectors: how a picture fits a caption as one short vector a word and one for the whole, not one number.

Each word looks at the regions; the squared difference between the word and what it saw, made S long by a learned map, is
the word's similarity vector. A head turns the vectors of a pair (the whole first, then the words: its nodes) into one:
`Reason` lets them exchange messages over a graph (SGR), `Filter` weighs them (SAF). A last layer makes it a score.

Exact, and arranged for speed: attention needs one product of all regions with all words; the length of what a word saw
comes from the regions' Gram matrix, so the D-long difference is made by one product and contracted at once, in blocks;
captions are grouped by length so that little is padding. Under autocast attention, norms, softmaxes and the last layer
stay in full precision. Word vectors must be exactly 0 at padded places (encoders here give that).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from matchlight import processes
from matchlight.core import Embedding, Similarity
from matchlight.layers import glorot, masked_softmax

EPS = 1e-8  # added to norms, as in the authors' code
INF = float("inf")
Moments = Tensor  # (2, K): mean and variance of the gate's input, for each of K captions (or of one batch)


def full(x: Tensor) -> Tensor:
    """In single precision at least: what norms, softmaxes and sums need."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def unit_full(x: Tensor) -> Tensor:
    """x / (|x| + 1e-8) along the last dimension with the norm in full precision; the type of x stays."""
    norm = torch.linalg.vector_norm(full(x), dim=-1, keepdim=True)
    return (x / (norm + EPS)).to(x.dtype)


def product_type(x: Tensor) -> torch.dtype:
    """What autocast makes of the operands of a product on this device."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


# ---- captions of nearly equal length -----------------------------------------------------------------------------------


def least_padding(lengths: np.ndarray, most: int) -> list[int]:
    """Ends of at most `most` groups of these ascending lengths such that padding each to its longest adds least."""
    kinds, first = np.unique(lengths, return_index=True)
    ends = np.append(first[1:], len(lengths))
    count = ends[None] - first[:, None]
    cost = np.where(count > 0, count * kinds[None], np.inf)  # [j, k]: one group from kind j to kind k
    best, cuts = cost[0], []
    for _ in range(min(most, len(kinds)) - 1):
        through = np.append(np.inf, best[:-1])[:, None] + cost
        cuts.append(through.argmin(0))
        best = through.min(0)
    last, out = len(kinds) - 1, [len(lengths)]
    for cut in reversed(cuts):
        last = int(cut[last]) - 1
        out.append(int(ends[last]))
    return out[::-1]


def known_lengths(texts: Embedding) -> Tensor | None:
    """(T,) words of each caption if that can be told without waiting for a GPU."""
    length = texts.extra.get("length")
    if texts.mask is None or (length is not None and length.device.type == "cpu"):
        return length
    return texts.mask.sum(1) if texts.mask.device.type == "cpu" else None


def by_length(texts: Embedding, *, most: int) -> tuple[list[Embedding], Tensor | None]:
    """Captions in groups of nearly equal length, cut to the longest of each, and the way back to the old order."""
    length = known_lengths(texts)
    if length is None or texts.mask is None or len(texts) == 0:
        return [texts], None
    order = torch.argsort(length, stable=True)
    ascending = length[order].numpy()
    ends = least_padding(ascending, most)
    parts = []
    for start, end in zip([0, *ends], ends, strict=False):
        part = texts.take(order[start:end])
        longest = int(ascending[end - 1])
        mask = None if ascending[start] == longest or part.mask is None else part.mask[:, :longest]
        parts.append(Embedding(part.vectors[:, :longest], mask, part.extra))
    return parts, torch.argsort(order).to(texts.vectors.device)


# ---- heads: the nodes of a pair -> one vector ---------------------------------------------------------------------------


class GraphStep(nn.Module):
    """One round of messages between the nodes of a pair.

    The authors' edge logits are (Wq x_i + bq) . (Wk x_j + bk). Terms of i alone do not change the softmax over j, so
    bk does nothing and is left out, and the rest is (x_i A + u) . x_j with A = Wq^T Wk, u = bq Wk: one map, not two.
    Rows of edges sum to 1, so the output map may come before them with its bias: both maps are one product.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.query = glorot(nn.Linear(dim, dim))
        self.key = nn.Linear(dim, dim, bias=False)
        nn.init.xavier_uniform_(self.key.weight)
        self.out = glorot(nn.Linear(dim, dim))

    def asking(self) -> tuple[Tensor, Tensor]:
        """The weight and bias of the map whose product with the nodes gives the edge logits."""
        with torch.autocast(self.key.weight.device.type, enabled=False):
            return self.key.weight.T @ self.query.weight, self.query.bias @ self.key.weight

    def forward(self, nodes: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, N, S) -> the same; `real` broadcasts to (B, T, N)."""
        weight, bias = self.asking()
        maps, shifts = torch.cat([weight, self.out.weight]), torch.cat([bias, self.out.bias])
        asked, said = F.linear(nodes, maps, shifts).chunk(2, -1)
        return F.relu(edges(asked @ nodes.mT, real) @ said)

    def first(self, nodes: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, S): what node 0 becomes; nobody reads the others after the last round."""
        asked = F.linear(nodes[..., :1, :], *self.asking())
        return F.relu(self.out(edges(asked @ nodes.mT, real) @ nodes)).squeeze(-2)


def edges(logits: Tensor, real: Tensor | None) -> Tensor:
    """Softmax over the last dimension in full precision; padded nodes get 0, each row sums to 1."""
    logits = full(logits)
    return (logits if real is None else logits.masked_fill(~real[..., None, :], -INF)).softmax(-1)


class Reason(nn.Module):
    """SGR: a few rounds of messages, then the node of the whole pair."""

    couples = False  # a picture's score does not depend on the other pictures of the batch

    def __init__(self, dim: int, *, steps: int = 3):
        super().__init__()
        self.steps = nn.ModuleList(GraphStep(dim) for _ in range(steps))

    def forward(self, nodes: Tensor, real: Tensor | None, *, measure: bool = False) -> tuple[Tensor, Moments | None]:
        """(B, T, N, S) -> (B, T, S); nothing is measured."""
        *before, last = self.steps
        for step in before:
            nodes = step(nodes, real)
        return last.first(nodes, real), None  # type: ignore[operator]

    def remember(self, moments: Moments) -> None:
        """No running statistics here."""


class GateNorm(nn.BatchNorm1d):
    """BatchNorm of one channel; in training over the pictures and nodes of each caption, or of the whole batch.

    The authors score caption by caption, so each has its own statistics and moves the running averages once: all at
    once here, in the order of the captions. All processes count.
    """

    def __init__(self, *, over: str):
        super().__init__(1)
        self.over = over  # "per_caption" | "batch"

    def measured(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Moments]:
        """(I, T, N) normalised by its own statistics, and those; `real` broadcasts to x."""
        weight = torch.ones_like(x) if real is None else real.expand_as(x).to(x.dtype)
        count = self._sum(weight).clamp(min=1)
        mean = self._sum(x * weight) / count
        variance = self._sum((x - mean).square() * weight) / count
        unbiased = variance.detach() * count / (count - 1).clamp(min=1)
        normal = (x - mean) * torch.rsqrt(variance + self.eps)
        return normal * self.weight + self.bias, torch.stack([mean.detach().flatten(), unbiased.flatten()])

    def _sum(self, x: Tensor) -> Tensor:
        """(1, T, 1) sums over pictures (of all processes) and nodes; (1, 1, 1) over captions too where `over` says so."""
        return processes.total(x.sum((0, 2) if self.over == "per_caption" else (0, 1, 2), keepdim=True))

    def usual(self, x: Tensor) -> Tensor:
        """x normalised by the running averages."""
        assert self.running_mean is not None and self.running_var is not None
        return (x - self.running_mean) * (torch.rsqrt(self.running_var + self.eps) * self.weight) + self.bias

    @torch.no_grad()
    def remember(self, moments: Moments) -> None:
        """Move the running averages as K updates, one after the other, would."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        count = moments.shape[1]
        keep = 1 - self.momentum
        powers = keep ** torch.arange(count - 1, -1, -1, device=moments.device, dtype=moments.dtype)
        moved = self.momentum * (moments * powers).sum(1)
        self.running_mean.mul_(keep**count).add_(moved[:1])
        self.running_var.mul_(keep**count).add_(moved[1:])
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(count)


class Filter(nn.Module):
    """SAF: a gate in (0, 1) for each node, and the mean of the nodes weighted by their gates."""

    couples = True  # in training the gate's statistics are over all pictures

    def __init__(self, dim: int, *, batch_norm: str = "per_caption"):
        super().__init__()
        self.gate = glorot(nn.Linear(dim, 1))
        self.norm = GateNorm(over=batch_norm)

    def weights(self, nodes: Tensor, real: Tensor | None, *, measure: bool) -> tuple[Tensor, Moments | None]:
        """(B, T, N) weights of the nodes, 0 for padded ones, and what was measured."""
        level = full(self.gate(nodes).squeeze(-1))
        level, moments = self.norm.measured(level, real) if measure else (self.norm.usual(level), None)
        gate = level.sigmoid() if real is None else level.sigmoid() * real
        return gate / (gate.sum(-1, keepdim=True) + EPS), moments

    def forward(self, nodes: Tensor, real: Tensor | None, *, measure: bool = False) -> tuple[Tensor, Moments | None]:
        """(B, T, N, S) -> (B, T, S); `measure`: by statistics of these nodes, which come back, as in training."""
        weights, moments = self.weights(nodes, real, measure=measure)
        return unit_full((weights[..., None, :].to(nodes.dtype) @ nodes).squeeze(-2)), moments

    def remember(self, moments: Moments) -> None:
        """Move the gate's running averages."""
        self.norm.remember(moments)


# ---- the similarity ----------------------------------------------------------------------------------------------------


@cache
def room(kind: str, index: int | None, training: bool) -> int:
    """Bytes one block may take: on a CPU what caches hold, on a GPU a share of its memory."""
    if kind != "cuda":
        return 2 << 30 if training else 24 << 20
    whole = torch.cuda.get_device_properties(index or 0).total_memory
    return int(whole // (6 if training else 16))


class SimilarityVectors(Similarity):
    """Scores in (0, 1) from similarity vectors; `head` is Reason (SGR) or Filter (SAF)."""

    def __init__(self, dim: int, sim_dim: int, head: Reason | Filter, *, temperature: float = 9.0):
        super().__init__()
        self.temperature = temperature
        self.local = glorot(nn.Linear(dim, sim_dim))
        self.whole = glorot(nn.Linear(dim, sim_dim))
        self.head = head
        self.judge = glorot(nn.Linear(sim_dim, 1))

    def attend(self, seen: Tensor, mask: Tensor | None) -> Tensor:
        """Word-region cosines (.., W at dimension 1, .., R) -> how each word weighs the regions (softmax over R)."""
        clipped = F.leaky_relu(seen, 0.1)
        norm = torch.linalg.vector_norm(clipped, dim=1, keepdim=True)  # over the words of a caption, for each region
        return masked_softmax(clipped * (self.temperature / (norm + EPS)), mask)

    def attention(self, images: Embedding, texts: Embedding, *, paired: bool) -> Tensor:
        """(B, M, R) weights whose sum of regions has length 1: M = all words, or (paired) those of one caption."""
        with torch.autocast(images.vectors.device.type, enabled=False):
            regions, words, mask = full(images.vectors), full(texts.vectors), images.mask
            if paired:
                weights = self.attend(words @ regions.mT, None if mask is None else mask[:, None])
            else:
                seen = words.flatten(0, 1) @ regions.flatten(0, 1).T
                seen = seen.view(*words.shape[:2], *regions.shape[:2])
                weights = self.attend(seen, mask).flatten(0, 1).transpose(0, 1)
            square = ((weights @ (regions @ regions.mT)) * weights).sum(-1, keepdim=True)
            return weights / (square.clamp(min=1e-24).sqrt() + EPS)  # far below EPS: only the root's slope is spared

    def nodes(self, images: Embedding, texts: Embedding, *, paired: bool = False) -> Tensor:
        """(B, T, 1 + W, S): the similarity vectors of every picture with every caption (paired: T = 1, its own)."""
        regions, words = images.vectors, texts.vectors
        v, t = images.extra["global"], texts.extra["global"]  # (B, 1, D), (T, 1, D)
        apart = contracted(v - (t if paired else t.transpose(0, 1)), self.whole)  # (B, T, S)
        kind = product_type(regions)
        flat = (words if paired else words.flatten(0, 1)[None]).to(kind)
        weights = self.attention(images, texts, paired=paired)
        missed = torch.baddbmm(flat.expand(len(regions), -1, -1), weights.to(kind), regions.to(kind), beta=-1)
        local = contracted(missed, self.local).view(*apart.shape[:2], -1, apart.shape[-1])
        return unit_full(torch.cat([apart[:, :, None], local], 2))

    def _score(self, pooled: Tensor) -> Tensor:
        with torch.autocast(pooled.device.type, enabled=False):
            return self.judge(full(pooled)).squeeze(-1).sigmoid()

    def _blocks(self, images: Embedding, texts: Embedding, made: Callable[..., Tensor], *, paired: bool) -> Tensor:
        """`made` of a few pictures at a time; what training would have to keep is made again where it is too much."""
        count = len(images)
        learns = torch.is_grad_enabled()
        one = self.cost(images, texts) * (1 if paired else len(texts)) * (3 if learns else 1)
        size = max(1, room(images.vectors.device.type, images.vectors.device.index, learns) // max(one, 1))
        if size >= count:
            return made(images, texts, paired=paired)
        parts = []
        for start in range(0, count, size):
            cut = slice(start, start + size)
            block = (images.take(cut), texts.take(cut) if paired else texts)
            again = partial(checkpoint, made, use_reentrant=False, preserve_rng_state=False) if learns else made
            parts.append(again(*block, paired=paired))
        return torch.cat(parts)

    def _group(self, images: Embedding, texts: Embedding, *, measure: bool) -> tuple[Tensor, Moments | None]:
        """(I, T) scores of captions of nearly one length; `measure`: with the batch's own statistics in the gate."""
        if not measure:
            return self._blocks(images, texts, self._scored, paired=False), None
        nodes = self._blocks(images, texts, self.nodes, paired=False)
        pooled, moments = self.head(nodes, real_nodes(texts, paired=False), measure=True)
        return self._score(pooled), moments

    def _scored(self, images: Embedding, texts: Embedding, *, paired: bool) -> Tensor:
        nodes = self.nodes(images, texts, paired=paired)
        return self._score(self.head(nodes, real_nodes(texts, paired=paired))[0])

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        measure = self.head.couples and self.training
        together = measure and isinstance(self.head, Filter) and self.head.norm.over == "batch"
        most = 1 if together else 4 if images.vectors.device.type == "cuda" else 8
        parts, back = by_length(texts, most=most)
        found = [self._group(images, part, measure=measure) for part in parts]
        if measure:
            moments = torch.cat([moment for _, moment in found if moment is not None], 1)
            self.head.remember(moments if back is None or together else moments[:, back])
        scores = torch.cat([score for score, _ in found], 1)
        return scores if back is None else scores[:, back]

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,); the gate of SAF then takes its running averages, also in training: a pair alone has no statistics."""
        return self._blocks(images, texts, self._scored, paired=True).squeeze(1)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The vectors of the whole picture and the whole caption, which are of unit length."""
        return embedding.extra["global"]

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """A D-long difference a word, twice at most, and a few vectors of S."""
        words, regions = texts.vectors.shape[1] + 1, images.vectors.shape[1]
        return 4 * words * (2 * images.vectors.shape[2] + 4 * self.judge.in_features + 3 * regions)


def contracted(difference: Tensor, layer: nn.Linear) -> Tensor:
    """A layer of the squared difference; nothing is kept of it where nothing learns."""
    return layer(difference.square() if torch.is_grad_enabled() else difference.square_())


def real_nodes(texts: Embedding, *, paired: bool) -> Tensor | None:
    """Which nodes are real, to broadcast over (B, T, 1 + W); the first node is the whole and always is."""
    if texts.mask is None:
        return None
    real = F.pad(texts.mask, (1, 0), value=True)
    return real[:, None] if paired else real[None]
