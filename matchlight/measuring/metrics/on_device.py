"""Places in ranked lists where the scores are: counted on their device, so that only whole numbers leave it.

The functions read a (queries, gallery) tensor, or a window on one, a few queries at a time. Nothing is sorted unless a
query has many relevant items. `ranks.py` and `positions.py` do the same with NumPy for scores in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Places
from matchlight.measuring.metrics.blocks import Scores, Window, spans, workers
from matchlight.measuring.metrics.links import Links

FEW = 32  # up to so many items a query, counting is quicker than sorting its list
EXACT = 1 << 24  # whole numbers that float32 counts without error
AT_ONCE = 64  # a GPU reads so many times as much at once as a CPU: each block costs launches and a wait


def blocks(scores: Scores, budget: int) -> Iterator[tuple[int, int, Tensor]]:
    """(first query, one behind the last, their scores as floats); a score that is not a number is an error."""
    base = scores.base if isinstance(scores, Window) else scores
    assert isinstance(base, Tensor)
    for q0, q1 in spans(scores, _room(budget, base.device)):
        block = scores[q0:q1]
        assert isinstance(block, Tensor)
        block = block if block.dtype in (torch.float32, torch.float64) else _widened(block)
        if block.numel() and bool(block.amin().isnan()):
            row, column = block.isnan().nonzero()[0].tolist()
            raise BadInput(f"scores: row {q0 + row}, column {column} is not a number (NaN); every pair needs a score")
        yield q0, q1, block


def _room(budget: int, device: torch.device) -> int:
    """Bytes for `spans`, which shares them out among threads: on a GPU one works for all."""
    if device.type != "cuda":
        return budget
    return workers() * min(budget * AT_ONCE, torch.cuda.mem_get_info(device)[0] // 4)


def _widened(block: Tensor) -> Tensor:
    """Half precision as float32 and whole numbers as float64: both exact."""
    return block.float() if block.is_floating_point() else block.double()


def count_ahead(block: Tensor, level: Tensor, *, ties: bool) -> Tensor:
    """(queries,) how many scores of each query are above its level, or at it where `ties` count too."""
    compare = torch.ge if ties else torch.gt
    turned = block.stride(0) < block.stride(1)  # columns of a bigger matrix: compared in the order of memory
    lines, levels = (block.T, level[None]) if turned else (block, level[:, None])
    size = torch.float32 if block.shape[1] < EXACT else torch.float64
    ones = compare(lines, levels, out=torch.empty(lines.shape, dtype=size, device=lines.device))
    return ones.sum(0 if turned else 1).long()


@torch.inference_mode()
def best_ranks(scores: Scores, links: Links, *, ties: str, budget: int, nothing: int) -> Places:
    """The rank (from 0) of each query's best linked item, `nothing` where it has none."""
    parts = [_best_ranks(block, *_linked(links, q0, q1, block), ties) for q0, q1, block in blocks(scores, budget)]
    found = torch.cat(parts).cpu().numpy() if parts else np.zeros(0, np.int64)
    return np.where(np.diff(links.start) > 0, found, nothing)


def _linked(links: Links, q0: int, q1: int, block: Tensor) -> tuple[Tensor, Tensor]:
    row, place = links.between(q0, q1)
    return torch.from_numpy(row).to(block.device), torch.from_numpy(place).to(block.device)


def _best_ranks(block: Tensor, row: Tensor, place: Tensor, ties: str) -> Tensor:
    own = block[row, place]
    best = block.new_full((len(block),), -torch.inf).scatter_reduce_(0, row, own, "amax")
    top = own >= best[row]
    if ties == "worst":
        tied = torch.zeros_like(best, dtype=torch.int64).scatter_add_(0, row, top.long())
        return count_ahead(block, best, ties=True) - tied
    last = torch.zeros_like(best, dtype=torch.int64).scatter_reduce_(0, row[top], place[top], "amax")
    return count_ahead(block, best, ties=False) + _level_behind(block, best, last)


def _level_behind(block: Tensor, level: Tensor, place: Tensor) -> Tensor:
    """(queries,) how many equals of the item at `place`, which has the score `level`, stand behind it in the file."""
    at_level = block == level[:, None]
    return (at_level & (torch.arange(block.shape[1], device=block.device) > place[:, None])).sum(1)


@torch.inference_mode()
def all_ahead(scores: Scores, links: Links, *, ties: str, budget: int) -> tuple[np.ndarray, Places]:
    """Of every link, in the order of `links`: its score, and how many items of its query's list are ahead of it.

    "worst" counts the item itself and all its equals, "official" those above it and its equals behind it in the file,
    "strict" only those above it.
    """
    own, count = [], []
    for q0, q1, block in blocks(scores, budget):
        row, place = _linked(links, q0, q1, block)
        own.append(block[row, place])
        count.append(_all_ahead(block, row, place, own[-1], ties))
    if not own:
        return np.zeros(0), np.zeros(0, np.int64)
    return torch.cat(own).cpu().numpy(), torch.cat(count).cpu().numpy()


def _all_ahead(block: Tensor, row: Tensor, place: Tensor, own: Tensor, ties: str) -> Tensor:
    """One link of each query at a time; where a query has many and equals need no order, one sort of every list."""
    times = torch.bincount(row, minlength=len(block))
    most = int(times.max()) if len(row) else 0
    number = torch.arange(len(row), device=row.device) - (times.cumsum(0) - times)[row]
    if ties != "official" and most > FEW:
        levels = own.new_full((len(block), most), torch.inf).index_put_((row, number), own)
        return block.shape[1] - torch.searchsorted(block.sort(1).values, levels, right=ties != "worst")[row, number]
    out = torch.empty_like(row)
    for k in range(most):
        some = (number == k).nonzero()[:, 0]
        lines = block if len(some) == len(block) else block[row[some]]
        out[some] = count_ahead(lines, own[some], ties=ties == "worst")
        if ties == "official":
            out[some] += _level_behind(lines, own[some], place[some])
    return out
