"""Heads: the similarity vectors of a pair, its nodes, become one, by a graph that reasons (SGR) or a gate (SAF).

Nodes are (pictures, captions, 1 + words, S), the whole pair first; masks are True where a node is real.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.parts.layers import glorot

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


class GraphStep(nn.Module):
    """One round of messages between the nodes of a pair.

    The authors' edge logits are (Wq x_i + bq) . (Wk x_j + bk). Terms of i alone do not change the softmax over j, so
    bk does nothing and is left out, and the rest is (x_i A + u) . x_j with A = Wq^T Wk, u = bq Wk: one map, not two.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.query = glorot(nn.Linear(dim, dim))
        self.key = nn.Linear(dim, dim, bias=False)
        nn.init.xavier_uniform_(self.key.weight)
        self.out = glorot(nn.Linear(dim, dim))

    def edges(self, asking: Tensor, nodes: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, A, N) weights of all nodes for the asking ones; 0 for padded nodes, each row sums to 1."""
        with torch.autocast(nodes.device.type, enabled=False):
            weight, bias = self.key.weight.T @ self.query.weight, self.query.bias @ self.key.weight
        logits = full(F.linear(asking, weight, bias) @ nodes.mT)
        return softmax(logits if real is None else logits.masked_fill_(~real[..., None, :], -INF))

    def forward(self, nodes: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, N, S) -> the same; `real` broadcasts to (B, T, N)."""
        return F.relu(self.out(self.edges(nodes, nodes, real) @ nodes))

    def first(self, nodes: Tensor, real: Tensor | None) -> Tensor:
        """(B, T, S): what node 0 becomes; nobody reads the others after the last round."""
        return F.relu(self.out(self.edges(nodes[..., :1, :], nodes, real) @ nodes)).squeeze(-2)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension; on a CPU by hand, which is six times as fast for rows as short as a caption."""
    if x.device.type != "cpu":
        return x.softmax(-1)
    high = (x - x.amax(-1, keepdim=True).detach()).exp()
    return high / high.sum(-1, keepdim=True)


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
        """(1, T, 1) sums over pictures (of all processes) and nodes; (1, 1, 1) where captions are summed over too."""
        return devices.total(x.sum((0, 2) if self.over == "per_caption" else (0, 1, 2), keepdim=True))

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
