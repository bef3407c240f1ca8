"""What proposes: a few vectors an item whose inner products with a query's come near the true score.

A model gives such vectors itself (`Similarity.coarse`), or they are distilled from its scores (`distil.py`). Members of
an ensemble that give one vector each stand side by side, so that one inner product is the sum of theirs; where a member
gives several, each member has dimensions of its own, so that its rows only ever meet its own queries.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from matchlight.core import Embeddings, Matcher
from matchlight.indexing.stored_sets import Sets
from matchlight.scoring.all_pairs import coarse_parts

BLOCK = 2048  # items read at once
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
def all_rows(proposer: Proposer, sets: Sets, side: str, device: torch.device) -> np.ndarray:
    """(N, k, d) half precision: what proposes, of every item."""
    out = None
    for span, embedding in sets.blocks(BLOCK):
        rows = proposer.rows(embedding.to(device), side).half().numpy()
        out = np.empty((len(sets), *rows.shape[1:]), dtype=np.float16) if out is None else out
        out[span] = rows
    assert out is not None
    return out


def merged(best: np.ndarray, merge: str) -> np.ndarray:
    """(q, ...) the best inner product of each of a query's vectors -> (...) one number an item."""
    return np.asarray(best.mean(0) if merge == "mean" else best.max(0))


def proposal_scores(queries: Tensor, rows: np.ndarray, merge: str) -> np.ndarray:
    """(Q, N) what queries (Q, q, d) would propose if all of `rows` (N, k, d) were looked at."""
    out = np.empty((len(queries), len(rows)), dtype=np.float32)
    flat = queries.flatten(0, 1)
    for start in range(0, len(rows), 4 * BLOCK):
        part = torch.from_numpy(rows[start : start + 4 * BLOCK]).float()
        best = (flat @ part.flatten(0, 1).T).view(*queries.shape[:2], *part.shape[:2]).amax(3)
        out[:, start : start + len(part)] = merged(best.transpose(0, 1).numpy(), merge)
    return out
