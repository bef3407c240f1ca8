"""Similarity vectors: how a picture fits a caption as one short vector a word and one for the whole, not one number.

Each word looks at the regions; the squared difference between the word and what it saw, made S long by a learned map,
is the word's similarity vector. A head turns the vectors of a pair (the whole first, then the words: its nodes) into
one: `Reason` lets them exchange messages over a graph (SGR), `Filter` weighs them (SAF). A last layer makes a score.

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

from matchlight.core import Embedding, Similarity
from matchlight.methods.similarity_heads import EPS, Filter, Moments, Reason, full, unit_full
from matchlight.parts.layers import glorot
from matchlight.scoring import kernels

TINY = 1e-30  # under a root, so that its slope at 0 is not infinite; far below what EPS lets through


def product_type(x: Tensor) -> torch.dtype:
    """What autocast makes of the operands of a product on this device."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


# ---- captions of nearly equal length ---------------------------------------------------------------------------------


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
    """(T,) words of each caption if that is known without waiting for a GPU."""
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


# ---- the similarity --------------------------------------------------------------------------------------------------


@cache
def room(kind: str, index: int | None, training: bool) -> int:
    """Bytes one block may take: on a CPU what caches hold, on a GPU a share of its memory."""
    if kind != "cuda":
        return 2 << 30 if training else 12 << 20
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
        """Word-region cosines (.., W at dimension 1, .., R) -> exp of the attention logits, 0 for padded regions.

        The logits lie within the temperature, so nothing overflows, and what is made of this has unit length: the sum
        that a softmax divides by would cancel.
        """
        clipped = F.leaky_relu(seen, 0.1)
        norm = clipped.square().sum(1, keepdim=True).clamp(min=TINY).sqrt()  # over a caption's words, for each region
        raised = (clipped * (self.temperature / (norm + EPS))).exp()
        return raised if mask is None else raised * mask

    def attention(self, images: Embedding, texts: Embedding, *, paired: bool) -> Tensor:
        """(B, M, R) weights whose sum of regions has length 1: M = all words, or (paired) those of one caption."""
        with torch.autocast(images.vectors.device.type, enabled=False):
            regions, words, mask = full(images.vectors), full(texts.vectors), images.mask
            if paired:
                raised = self.attend(words @ regions.mT, None if mask is None else mask[:, None])
            else:
                seen = words.flatten(0, 1) @ regions.flatten(0, 1).T
                seen = seen.view(*words.shape[:2], *regions.shape[:2])
                raised = self.attend(seen, mask).flatten(0, 1).transpose(0, 1)
            square = ((raised @ (regions @ regions.mT)) * raised).sum(-1, keepdim=True)
            return raised / (square.clamp(min=TINY).sqrt() + EPS * raised.sum(-1, keepdim=True))

    def nodes(self, images: Embedding, texts: Embedding, *, paired: bool = False) -> Tensor:
        """(B, T, 1 + W, S): the similarity vectors of every picture with every caption (paired: T = 1, its own)."""
        regions, words = images.vectors, texts.vectors
        v, t = images.extra["global"], texts.extra["global"]  # (B, 1, D), (T, 1, D)
        whole = contracted(v - (t if paired else t.transpose(0, 1)), self.whole)  # (B, T, S)
        kind = product_type(regions)
        weights = self.attention(images, texts, paired=paired)
        away = -(words if paired else words.flatten(0, 1))  # turned here: turning the gradient would be D long a pair
        missed = torch.bmm(weights.to(kind), regions.to(kind)).add_(away)
        local = contracted(missed, self.local).view(*whole.shape[:2], -1, whole.shape[-1])
        return unit_full(torch.cat([whole[:, :, None], local], 2))

    def _score(self, pooled: Tensor) -> Tensor:
        with torch.autocast(pooled.device.type, enabled=False):
            return self.judge(full(pooled)).squeeze(-1).sigmoid()

    def _blocks(self, images: Embedding, texts: Embedding, made: Callable[..., Tensor], *, paired: bool) -> Tensor:
        """`made` of a few pictures at a time; what training would have to keep is made again where it is too much."""
        count = len(images)
        learns = torch.is_grad_enabled()
        one = self.need(images, texts) * (1 if paired else len(texts)) * (5 if learns else 1)
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

    def may_round(self) -> bool:
        """Whether half precision will do: outside training, where products may be rounded."""
        return torch.get_float32_matmul_precision() != "highest" and not self.training

    def has_kernel(self, device: torch.device) -> bool:
        """On a GPU, where half precision will do."""
        return device.type == "cuda" and self.may_round()

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        if self.may_round() and kernels.usable(images.vectors, texts.vectors, family="vectors"):
            return self._fused(images, texts)
        measure = self.head.couples and self.training
        together = measure and isinstance(self.head, Filter) and self.head.norm.over == "batch"
        parts, back = by_length(texts, most=1 if together else self._most(texts))
        columns = [self._group(images, part, measure=measure) for part in parts]
        if measure:
            moments = torch.cat([moment for _, moment in columns if moment is not None], 1)
            self.head.remember(moments if back is None or together else moments[:, back])
        scores = torch.cat([score for score, _ in columns], 1)
        return scores if back is None else scores[:, back]

    def _most(self, texts: Embedding) -> int:
        """How many groups of captions: each spares padding and costs launches, which a GPU in training waits for.

        A step of 128 pairs on an H200 takes 61 ms with four groups, 41 with two, 38 with one.
        """
        least, each = (2, 64) if self.training and texts.vectors.is_cuda else (4, 32)
        return max(least, len(texts) // each)

    def _fused(self, images: Embedding, texts: Embedding) -> Tensor:
        pictures = kernels.Pictures(images.vectors, images.mask, images.extra["global"][:, 0])
        captions = kernels.Captions(kernels.pack(texts.vectors, texts.mask), texts.extra["global"][:, 0])
        sides = (pictures, captions, kernels.VectorLayers(self.local, self.whole, self.temperature))
        if isinstance(self.head, Reason):
            steps = [(step.query, step.key, step.out) for step in self.head.steps]  # type: ignore[union-attr, misc]
            return kernels.sgr_scores(*sides, steps, self.judge)  # type: ignore[arg-type]
        gate, norm = self.head.gate, self.head.norm
        return kernels.saf_scores(*sides, gate, norm, self.judge)

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,); the gate of SAF then takes its running averages, also in training: a pair alone has no statistics."""
        return self._blocks(images, texts, self._scored, paired=True).squeeze(1)

    def coarse(self, embedding: Embedding, side: str) -> Tensor | None:
        """The vectors of the whole picture and the whole caption, which are of unit length."""
        return embedding.extra["global"]

    def need(self, images: Embedding, texts: Embedding) -> int:
        """Bytes a pair takes at its widest: a D-long difference a word, its attention, and vectors of S."""
        nodes, regions = texts.vectors.shape[1] + 1, images.vectors.shape[1]
        return 4 * nodes * (images.vectors.shape[2] + 2 * self.judge.in_features + 3 * regions)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """A fraction of that: what is given is cut again, and more captions at once make purer groups of one length."""
        return max(4, self.need(images, texts) // 16)


def contracted(difference: Tensor, layer: nn.Linear) -> Tensor:
    """A layer of the squared difference; nothing is kept of it where nothing learns."""
    return layer(difference.square() if torch.is_grad_enabled() else difference.square_())


def real_nodes(texts: Embedding, *, paired: bool) -> Tensor | None:
    """Which nodes are real, to broadcast over (B, T, 1 + W); the first node is the whole and always is."""
    if texts.mask is None:
        return None
    real = F.pad(texts.mask, (1, 0), value=True)
    return real[:, None] if paired else real[None]
