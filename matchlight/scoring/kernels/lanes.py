"""Scores by the pass of `compiled`, on a CPU: queries of like length side by side, a tile of products at a time.

A tile, some contexts with one group of queries, is as large as a core's own cache: the product writes it there, and the
pass finds it there. Threads take whole groups.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchlight.scoring import workers
from matchlight.scoring.kernels.packed import Packed, blocks, pack
from matchlight.scoring.kernels.plain import AGGREGATES, GATES, check
from matchlight.scoring.kernels.products import as_operand

LANES = 16  # queries side by side: what the widest registers hold
TILE = 1 << 20  # bytes of products made at a time
AT_ONCE = 1 << 12  # members whose Gram matrices are made at a time
BOUND = 40.0  # up to this temperature a normalised product can be raised without taking the largest off first


def side_by_side(query: Packed, some: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, D): row q * lanes + k is member q of the k-th of some queries, the longest first; and which are real."""
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
    words: Tensor,
    offsets: Tensor,
    *,
    direction: str = "t2i",
    temperature: float,
    norm: str = "clipped_l2norm",
    aggregate: str = "mean",
    lse: float = 6.0,
    gate: str = "none",
    precision: str = "fp32",
    budget: int = TILE,
) -> Tensor:
    """(I, T) float32 scores; `kernels.attended_scores` says what the arguments are. Of precisions, bf16 is another."""
    check(direction=direction, norm=norm, aggregate=aggregate, gate=gate)
    pictures, captions = pack(regions.float(), region_mask), Packed(words.float(), offsets)
    context, query = (pictures, captions) if direction == "t2i" else (captions, pictures)
    unit = norm.endswith("l2norm")
    how = {
        "temperature": np.float32(temperature),
        "slope": np.float32(0.1 if norm.startswith("clipped") else 1.0),
        "unit": unit,
        "bounded": unit and temperature <= BOUND,
        "gate": GATES.index(gate),
        "aggregate": AGGREGATES.index(aggregate),
        "sharp": np.float32(lse),
    }
    out = np.empty((len(context), len(query)), np.float32)
    operand = Packed(as_operand(context.words, "bf16" if precision == "bf16" else "fp32"), context.offsets)
    work = partial(_group, operand, folded(context), query, how, min(TILE, budget // workers.count()))
    groups = torch.argsort(query.lengths, descending=True, stable=True).tensor_split(-(-len(query) // LANES))
    for some, found in zip(groups, workers.spread(work, groups), strict=True):
        out[:, some.numpy()] = found
    return torch.from_numpy(out if direction == "t2i" else out.T.copy())


def _group(context: Packed, grams: Tensor, query: Packed, how: dict[str, Any], room: int, some: Tensor) -> np.ndarray:
    """(contexts, lanes) scores of some queries, longest first."""
    from matchlight.scoring.kernels import compiled

    rows, real = side_by_side(query, some)
    size, other = torch.linalg.vector_norm(rows, dim=1), rows.to(context.words.dtype).T
    out = np.empty((len(context), len(some)), np.float32)
    for first, last in blocks(context.offsets, words=room // (4 * len(rows))):
        part = context.block(first, last)
        given = ((part.words @ other).float(), part.offsets, grams[first:last], size, real)
        compiled.score(*(x.numpy() for x in given), *how.values(), out[first:last])
    return out
