"""The nearest of very many vectors without comparing everything with everything: by cells.

Vectors are put into the cells of centres found by a few rounds of k-means on a sample, and a query is compared with
those in the cells whose centres are nearest to it. As many cells are looked into as hold about `LOOKED_AT` vectors, so
that the time of a query hardly grows with their number. Nearly all that comparing everything finds is found, and what
takes the place of the rest is almost as near. The same vectors give the same answer.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from matchlight.inputs.batches import seeded

LOOKED_AT = 4000  # vectors that a query is compared with, about
ROUNDS, SAMPLE = 5, 32  # of k-means, on so many vectors for each cell
BLOCK = 1 << 22  # numbers of a block of similarities
QUERIES = 1 << 15  # that are asked at a time


class Cells:
    """Unit vectors by cells; those of one group do not count as each other's neighbours."""

    def __init__(self, vectors: Tensor, group: np.ndarray):
        self.vectors, self.group = vectors, torch.from_numpy(group).to(vectors.device)
        self.centres = _centres(vectors, count=round(math.sqrt(len(vectors))))
        self.members = _by_number(_likest(vectors, self.centres, 1)[:, 0], len(self.centres))
        share = LOOKED_AT / len(vectors)
        self.probes = min(len(self.centres), max(1, round(share * len(self.centres))))

    @torch.inference_mode()
    def nearest(self, queries: Tensor, group: np.ndarray, k: int) -> np.ndarray:
        """(q, k) places of the nearest of other groups than the query's; -1 where too few."""
        mine = torch.from_numpy(group).to(queries.device)
        parts = zip(queries.split(QUERIES), mine.split(QUERIES), strict=True)
        return np.concatenate([self._nearest(*part, k).cpu().numpy() for part in parts])

    def _nearest(self, queries: Tensor, mine: Tensor, k: int) -> Tensor:
        asked = _likest(queries, self.centres, self.probes).flatten()
        value = queries.new_full((len(asked), k), -2.0)  # a line for each query and cell it asks
        place = torch.full_like(value, -1, dtype=torch.int64)
        for inside, lines in zip(self.members, _by_number(asked, len(self.centres)), strict=True):
            for some in lines.split(_step(inside)) if len(inside) else ():
                query = some // self.probes
                likeness = queries[query] @ self.vectors[inside].T
                likeness.masked_fill_(mine[query, None] == self.group[None, inside], -2.0)
                best, where = likeness.topk(min(k, len(inside)), dim=1)
                value[some, : best.shape[1]] = best
                place[some, : best.shape[1]] = inside[where].masked_fill(best <= -2.0, -1)
        kept = value.view(len(queries), -1).topk(k, dim=1)[1]
        return place.view(len(queries), -1).gather(1, kept)


def _step(others: Tensor) -> int:
    return max(1, BLOCK // max(1, len(others)))


def _likest(vectors: Tensor, centres: Tensor, count: int) -> Tensor:
    """(n, count) centres that each vector is nearest to."""
    return torch.cat([(part @ centres.T).topk(count, dim=1)[1] for part in vectors.split(_step(centres))])


def _by_number(numbers: Tensor, count: int) -> list[Tensor]:
    """The places of each number 0 .. count - 1, ascending."""
    order = torch.sort(numbers, stable=True)[1]
    return list(order.split(torch.bincount(numbers, minlength=count).tolist()))


def _centres(vectors: Tensor, *, count: int) -> Tensor:
    """(count, D) unit vectors: means of what is nearest to them; a centre that nothing is nearest to stays."""
    drawn = seeded(0, 53).choice(len(vectors), min(len(vectors), SAMPLE * count), replace=False)
    sample = vectors[torch.from_numpy(drawn).to(vectors.device)]
    centres = sample[:count]
    for _ in range(ROUNDS):
        total = torch.zeros_like(centres).index_add_(0, _likest(sample, centres, 1)[:, 0], sample)
        length = total.norm(dim=1, keepdim=True)
        centres = torch.where(length > 0, total / length.clamp(min=1e-12), centres)
    return centres
