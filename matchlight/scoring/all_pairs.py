"""Scores of every picture with every caption: a big matrix in blocks within a memory budget, kept where it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from matchlight.console import track
from matchlight.core import Embedding, Embeddings, Matcher, Parts
from matchlight.scoring import kernels, workers


def default_budget(device: torch.device) -> int:
    """Bytes a block of scores may take: a quarter of a GPU's free memory, at most 2 GiB; what a CPU's caches hold."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return min(free // 4, 2 << 30)
    return 8 << 20


AT_ONCE = {"cuda": 64, "cpu": 512}  # blocks that a kernel is given as one, to cut as it sees fit
STRIPE = 64 << 20  # bytes of scores that are copied to the host at a time


def keeps_its_budget(matcher: Matcher, images: Embeddings, texts: Embeddings, where: torch.device) -> bool:
    """Whether every member's scores come from kernels that work under a byte budget of their own."""
    members = [member.similarity for member in matcher.each()]
    if not all(similarity.has_kernel(where) for similarity in members):
        return False
    if where.type == "cuda":
        return kernels.usable(torch.empty(0, device=where))
    sides = zip(images.members, texts.members, strict=True)
    return all(kernels.usable_on_cpu(i.vectors, t.vectors) for i, t in sides)


def coarse_parts(matcher: Matcher, side: str, embedding: Embeddings) -> list[Tensor | None]:
    """Each member's (N, k, d) vectors that propose candidates; None for one that has none."""
    members = matcher.each()
    return [member.similarity.coarse(part, side) for member, part in zip(members, embedding.members, strict=True)]


def pair_cost(matcher: Matcher, images: Embeddings, texts: Embeddings) -> int:
    """Bytes one pair needs, the costliest member of an ensemble deciding."""
    members = matcher.each()
    sides = zip(members, images.members, texts.members, strict=True)
    return max(member.similarity.cost(i, t) for member, i, t in sides)


def block_shape(images: int, texts: int, cost: int, budget: int) -> tuple[int, int]:
    """How many pictures by how many captions fit the budget, as square as the matrix lets it be."""
    room = max(1, budget // max(cost, 1))
    side = max(1, int(room**0.5))
    tall = min(images, side)
    wide = min(texts, max(1, room // tall))
    return min(images, max(1, room // wide)), wide


def used(embedding: Embeddings) -> np.ndarray:
    """(N,) places each set needs, up to its last real member; sets without a mask need all of theirs."""
    widths = [_used(part) for part in embedding.members]
    return np.max(widths, axis=0)


def _used(part: Embedding) -> np.ndarray:
    if part.mask is None:
        return np.full(len(part), part.vectors.shape[1])
    place = torch.arange(1, part.mask.shape[1] + 1, device=part.mask.device)
    return (part.mask * place).amax(1).clamp(min=1).cpu().numpy()


def trim(embedding: Embeddings, width: int) -> Embeddings:
    """The same sets without the padding behind `width`; extras that follow the sets, (N, K, ...), are cut with them.

    Extras with two axes are one vector an item and stay whole.
    """
    members = tuple(_trim(part, width) for part in embedding.members)
    return Parts(members) if isinstance(embedding, Parts) else members[0]


def _trim(embedding: Embedding, width: int) -> Embedding:
    if embedding.mask is None:
        return embedding
    long = embedding.vectors.shape[1]
    extra = {k: v[:, :width] if v.dim() > 2 and v.shape[1] == long else v for k, v in embedding.extra.items()}
    return Embedding(embedding.vectors[:, :width], embedding.mask[:, :width], extra)


@dataclass(frozen=True)
class Blocks:
    """How a matrix is cut: pictures in equal slices, captions from long to short in runs of (start, stop, width)."""

    tall: int
    order: np.ndarray  # captions, longest first
    runs: list[tuple[int, int, int]]


def plan_blocks(matcher: Matcher, images: Embeddings, texts: Embeddings, budget: int) -> Blocks:
    """Captions of like length together, so that little of a block is padding; shorter captions come in wider runs."""
    widths = used(texts)
    order = np.argsort(-widths, kind="stable")
    if matcher.depends_on_padding:  # such a model must see the padding its encoder gave it
        order, widths = np.arange(len(widths)), np.full(len(widths), widths.max(initial=1))

    @cache
    def cost(width: int) -> int:
        return pair_cost(matcher, images, trim(texts, width))

    tall, _ = block_shape(len(images), len(texts), cost(int(widths.max(initial=1))), budget)
    runs, start = [], 0
    while start < len(order):
        width = int(widths[order[start]])
        stop = min(len(order), start + max(1, budget // (tall * max(1, cost(width)))))
        runs.append((start, stop, width))
        start = stop
    return Blocks(tall, order, runs)


def device_of(matcher: Matcher, images: Embeddings) -> torch.device:
    """Where the model's weights are; a model without weights scores where the vectors are."""
    weight = next(matcher.parameters(), None)
    return images.members[0].vectors.device if weight is None else weight.device


def score_all(
    matcher: Matcher,
    images: Embeddings,
    texts: Embeddings,
    *,
    budget: int | None = None,
    device: torch.device | str | None = None,
    quiet: bool = True,
) -> np.ndarray:
    """(I, T) float32 scores of everything against everything, in host memory; the blocks never change the result."""
    where = torch.device(device) if device is not None else device_of(matcher, images)
    blocks = score_blocks(matcher, images, texts, where, budget=budget, quiet=quiet)
    return _filled(blocks, (len(images), len(texts)), where, torch.device("cpu")).numpy()


def held_scores(
    matcher: Matcher,
    images: Embeddings,
    texts: Embeddings,
    *,
    budget: int | None = None,
    device: torch.device | str | None = None,
    quiet: bool = True,
) -> Tensor:
    """The same scores, left where they were computed; in host memory where they would fill half a GPU's."""
    where = torch.device(device) if device is not None else device_of(matcher, images)
    blocks = score_blocks(matcher, images, texts, where, budget=budget, quiet=quiet)
    room = where.type != "cuda" or 4 * len(images) * len(texts) <= torch.cuda.mem_get_info(where)[0] // 2
    return _filled(blocks, (len(images), len(texts)), where, where if room else torch.device("cpu"))


ScoredBlock = tuple[int, np.ndarray, Tensor]  # the first picture, the places of the captions, their scores


@torch.inference_mode()
def _filled(blocks: Iterator[ScoredBlock], shape: tuple[int, int], where: torch.device, home: torch.device) -> Tensor:
    """The matrix at home, from blocks that come from elsewhere or from there."""
    out = torch.empty(shape, device=home)
    for i, places, block in blocks if where == home else through_pinned(blocks, where):
        columns = _columns(places)
        if home.type == "cpu":  # NumPy does not wait for other threads
            out.numpy()[i : i + len(block), columns] = block.numpy()
        else:
            there = columns if isinstance(columns, slice) else torch.from_numpy(columns).to(home)
            out[i : i + len(block), there] = block
    return out


def _columns(places: np.ndarray) -> slice | np.ndarray:
    """Consecutive places as a slice, which is copied line by line."""
    return slice(places[0], places[-1] + 1) if (np.diff(places) == 1).all() else places


def through_pinned(blocks: Iterator[ScoredBlock], where: torch.device) -> Iterator[ScoredBlock]:
    """Blocks in host memory, each a turn late: it is copied while the GPU works on the next one."""
    side = torch.cuda.Stream(where)
    before: tuple[ScoredBlock, torch.cuda.Event] | None = None
    for i, places, block in blocks:
        side.wait_stream(torch.cuda.current_stream(where))
        with torch.cuda.stream(side):
            here = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
            here.copy_(block, non_blocking=True)
            block.record_stream(side)
            copied = side.record_event()
        if before is not None:
            before[1].synchronize()
            yield before[0]
        before = (i, places, here), copied
    if before is not None:
        before[1].synchronize()
        yield before[0]


def to_host(scores: Tensor) -> np.ndarray:
    """A whole matrix in host memory, a stripe copied while the one before it is put in place."""
    if scores.device.type == "cpu":
        return scores.numpy()
    step, places = max(1, STRIPE // max(1, 4 * scores.shape[1])), np.arange(scores.shape[1])
    stripes = ((i, places, scores[i : i + step]) for i in range(0, len(scores), step))
    return _filled(stripes, (len(scores), scores.shape[1]), scores.device, torch.device("cpu")).numpy()


def score_blocks(
    matcher: Matcher,
    images: Embeddings,
    texts: Embeddings,
    where: torch.device,
    *,
    budget: int | None = None,
    quiet: bool = True,
) -> Iterator[ScoredBlock]:
    """(first picture, places of captions, their scores on the device) until every pair was scored once."""
    whole = keeps_its_budget(matcher, images, texts, where)
    alone = whole or where.type == "cuda"
    room = budget or default_budget(where) * (AT_ONCE[where.type] if whole else 1)
    blocks = plan_blocks(matcher, images, texts, room if alone else max(1, room // workers.count()))
    todo = [(i, run) for i in range(0, len(images), blocks.tall) for run in blocks.runs]

    @lru_cache(1)
    def row_of(i: int) -> Embeddings:
        return images.take(slice(i, i + blocks.tall)).to(where)

    def scored(job: tuple[int, tuple[int, int, int]]) -> ScoredBlock:
        i, (start, stop, width) = job
        places = blocks.order[start:stop]
        some = texts.take(torch.from_numpy(places))
        some = some if matcher.depends_on_padding else trim(some, width)
        return i, places, matcher.score(row_of(i), some.to(where)).float()

    jobs = todo if quiet else track(todo, "scoring")
    yield from map(scored, jobs) if alone else workers.spread(scored, jobs)
