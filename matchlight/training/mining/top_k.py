"""The best so far: the `k` highest scores of every query, merged block by block, so that no whole matrix is kept."""

from __future__ import annotations

import torch
from torch import Tensor

INF = float("inf")


class TopK:
    """Running lists of (N queries, k) scores and the places they belong to, in no order (`in_order` makes one)."""

    def __init__(self, queries: int, k: int, device: torch.device):
        self.scores = torch.full((queries, k), -INF, device=device)
        self.places = torch.full((queries, k), -1, dtype=torch.int32, device=device)

    def add(self, queries: slice, scores: Tensor, first: int) -> None:
        """Offer (n, m) scores of some queries with the items at places first, first + 1, ...; -inf is no offer."""
        if not self.scores.shape[1]:
            return
        top, where = scores.topk(min(self.scores.shape[1], scores.shape[1]), dim=1, sorted=False)
        scores = torch.cat([self.scores[queries], top], 1)
        places = torch.cat([self.places[queries], (where + first).to(torch.int32)], 1)
        best, which = scores.topk(self.scores.shape[1], dim=1, sorted=False)
        self.scores[queries], self.places[queries] = best, places.gather(1, which)

    def state(self) -> dict[str, Tensor]:
        """What a resumed search needs."""
        return {"scores": self.scores, "places": self.places}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take it back."""
        self.scores.copy_(state["scores"])
        self.places.copy_(state["places"])


def in_order(scores: Tensor, places: Tensor) -> Tensor:
    """(N, k) places from the highest score to the lowest, equal scores by place; -1 where the score is -inf."""
    first = places.argsort(dim=1, stable=True)
    scores, places = scores.gather(1, first), places.gather(1, first)
    order = scores.argsort(dim=1, descending=True, stable=True)
    return torch.where(scores.gather(1, order) > -INF, places.gather(1, order), -1)
