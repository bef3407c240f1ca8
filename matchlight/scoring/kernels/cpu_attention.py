"""Scores by the pass of `numba_attention`, on a CPU: queries of like length side by side, a tile of products at a time.

A tile, some contexts with one group of queries, is as large as a core's own cache: the product writes it there, and the
pass finds it there. Threads take whole groups.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from matchlight.scoring import workers
from matchlight.scoring.kernels.packed import Packed, blocks, pack
from matchlight.scoring.kernels.products import as_operand
from matchlight.scoring.kernels.reference import AGGREGATES, GATES, AttentionSettings

QUERIES = 16  # side by side: what the widest registers hold
TILE = 1 << 20  # bytes of products made at a time
AT_ONCE = 1 << 12  # members whose Gram matrices are made at a time
BOUND = 40.0  # up to this temperature a normalised product can be raised without taking the largest off first


def side_by_side(query: Packed, some: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, D): row q * queries + k is member q of the k-th of some queries, the longest first; and which are real."""
    place = torch.arange(max(1, int(query.lengths[some[0]])))[:, None]
    real = (place < query.lengths[some]).flatten()
    rows = torch.zeros(len(real), query.words.shape[1])
    rows[real] = query.words[(query.offsets[some] + place).flatten()[real]]
    return rows, real.float()


def folded(context: Packed) -> Tensor:
    """(N, M, M) Gram matrices as a G a reads them: twice what is below the diagonal, nothing above; M in fours."""
    most = -(-int(context.lengths.max()) // 4) * 4
    out = torch.zeros(len(context), most, most)
    for first, last in blocks(context.offsets, words=AT_ONCE):
        members, _ = context.block(first, last).padded()
        gram, long = members @ members.mT, members.shape[1]
        out[first:last, :long, :long] = 2 * gram.tril() - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    return out


def attended_scores(
    regions: Tensor,
    region_mask: Tensor | None,
    texts: Packed,
    settings: AttentionSettings,
    *,
    precision: str = "fp32",
    budget: int = TILE,
) -> Tensor:
    """(I, T) float32 scores; `kernels.attended_scores` says what the arguments are. Of precisions, bf16 is another."""
    pictures, captions = pack(regions.float(), region_mask), Packed(texts.words.float(), texts.offsets)
    t2i = settings.direction == "t2i"
    context, query = (pictures, captions) if t2i else (captions, pictures)
    out = np.empty((len(context), len(query)), np.float32)
    operand = Packed(as_operand(context.words, "bf16" if precision == "bf16" else "fp32"), context.offsets)
    numbers = _numbers(settings)
    work = partial(_group, operand, folded(context), query, numbers, min(TILE, budget // workers.count()))
    groups = torch.argsort(query.lengths, descending=True, stable=True).tensor_split(-(-len(query) // QUERIES))
    for some, scores in zip(groups, workers.spread(work, groups), strict=True):
        out[:, some.numpy()] = scores
    return torch.from_numpy(out if t2i else out.T.copy())


Numbers = tuple[np.float32, np.float32, bool, bool, int, int, np.float32]


def _numbers(settings: AttentionSettings) -> Numbers:
    """The settings as numba's pass takes them: temperature, slope, unit, bounded, gate, aggregate, sharp."""
    unit = settings.norm.endswith("l2norm")
    return (
        np.float32(settings.temperature),
        np.float32(0.1 if settings.norm.startswith("clipped") else 1.0),
        unit,
        unit and settings.temperature <= BOUND,
        GATES.index(settings.gate),
        AGGREGATES.index(settings.aggregate),
        np.float32(settings.lse),
    )


def _group(context: Packed, grams: Tensor, query: Packed, numbers: Numbers, room: int, some: Tensor) -> np.ndarray:
    """(contexts, queries) scores of some queries, longest first."""
    from matchlight.scoring.kernels import numba_attention

    rows, real = side_by_side(query, some)
    size, other = torch.linalg.vector_norm(rows, dim=1), rows.to(context.words.dtype).T
    out = np.empty((len(context), len(some)), np.float32)
    for first, last in blocks(context.offsets, words=room // (4 * len(rows))):
        part = context.block(first, last)
        given = ((part.words @ other).float(), part.offsets, grams[first:last], size, real)
        numba_attention.score(*[*(x.numpy() for x in given), *numbers, out[first:last]])
    return out
