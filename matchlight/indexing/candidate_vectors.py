"""What proposes: a few vectors an item whose inner products with a query's come near the true score.

A model gives such vectors itself (`Similarity.coarse`), or they are distilled from its scores (`distil.py`). Members of
an ensemble that give one vector each stand side by side, so that one inner product is the sum of theirs; where a member
gives several, each member has dimensions of its own, so that its rows only ever meet its own queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from matchlight.core import Embeddings, Matcher
from matchlight.data.formats.safety import load_npy
from matchlight.indexing.stored_sets import Sets
from matchlight.scoring.all_pairs import coarse_parts

BLOCK = 2048  # items read at once
IN_MEMORY = 1 << 26  # bytes of rows that are not written to the disk while an index is built
MERGES = ("mean", "max")


class Proposer(Protocol):
    """Sets -> (N, k, d) float32 vectors on the CPU, k and d the same for all items of a side."""

    name: str

    def rows(self, embedding: Embeddings, side: str) -> Tensor:
        """The vectors of these items."""


class Plain:
    """The model's own."""

    name = "plain"

    def __init__(self, matcher: Matcher):
        self.matcher = matcher

    def rows(self, embedding: Embeddings, side: str) -> Tensor:
        """(N, k, d)."""
        parts = [part.float() for part in coarse_parts(self.matcher, side, embedding) if part is not None]
        if len({part.shape[1] for part in parts}) == 1 and parts[0].shape[1] == 1:
            return torch.cat(parts, -1).cpu()
        return apart(parts).cpu()

    def known(self, embedding: Embeddings, side: str) -> bool:
        """Whether every member has vectors that propose."""
        return all(part is not None for part in coarse_parts(self.matcher, side, embedding))


def apart(parts: list[Tensor]) -> Tensor:
    """(N, k1 + k2 + .., d1 + d2 + ..): each part in its own dimensions, zero elsewhere."""
    if len(parts) == 1:
        return parts[0]
    wide, out, start = sum(part.shape[2] for part in parts), [], 0
    for part in parts:
        room = part.new_zeros(*part.shape[:2], wide)
        room[..., start : start + part.shape[2]] = part
        out.append(room)
        start += part.shape[2]
    return torch.cat(out, 1)


@torch.inference_mode()
def all_rows(
    proposer: Proposer, sets: Sets, side: str, device: torch.device, *, room: Path | None = None
) -> np.ndarray:
    """(N, k, d) half precision: what proposes, of every item; where that is much, mapped from a file in `room`."""
    shape = (len(sets), *proposer.rows(sets.take(np.arange(1)).to(device), side).shape[1:])
    blocks = ((span, proposer.rows(part.to(device), side).half().numpy()) for span, part in sets.blocks(BLOCK))
    if room is None or 2 * np.prod(shape, dtype=np.int64) <= IN_MEMORY:
        out = np.empty(shape, dtype=np.float16)
        for span, rows in blocks:
            out[span] = rows
        return out
    path = room / f"rows-{side}-{proposer.name}.npy"
    with path.open("wb") as file:  # not through a map, which a full disk would end the process with
        np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
        for _, rows in blocks:
            rows.tofile(file)
    return load_npy(path)


def merged(best: np.ndarray, merge: str) -> np.ndarray:
    """(q, ...) the best inner product of each of a query's vectors -> (...) one number an item."""
    return np.asarray(best.mean(0) if merge == "mean" else best.max(0))


def proposal_scores(queries: Tensor, rows: np.ndarray, merge: str) -> Iterator[tuple[int, np.ndarray]]:
    """(Q, n) what queries (Q, q, d) propose of all `rows` (N, k, d), n of them at a time, with where they begin."""
    flat = queries.flatten(0, 1)
    for start in range(0, len(rows), 4 * BLOCK):
        part = torch.from_numpy(np.array(rows[start : start + 4 * BLOCK])).float()
        best = (flat @ part.flatten(0, 1).T).view(*queries.shape[:2], *part.shape[:2]).amax(3)
        yield start, merged(best.transpose(0, 1).numpy(), merge)
