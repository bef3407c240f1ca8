"""AdamP, an optimiser that torch does not bring.

Heo et al., ICLR 2021, arXiv:2006.08217. A weight whose scale does not matter only grows under momentum, which
slows it down; where gradient and weight are all but orthogonal, as they are for such weights, the update loses its part
along the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class AdamP(torch.optim.Optimizer):
    """Adam whose updates are projected away from scale-free weights; `delta` and `ratio` are the paper's."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        delta: float = 0.1,
        ratio: float = 0.1,
    ):
        known = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "delta": delta, "ratio": ratio}
        super().__init__(params, known)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, (slow, slower) = self.state[p], group["betas"]
        if not state:
            state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
        state["step"] += 1
        state["mean"].lerp_(grad, 1 - slow)
        state["square"].mul_(slower).addcmul_(grad, grad, value=1 - slower)
        size = (state["square"] / (1 - slower ** state["step"])).sqrt_().add_(group["eps"])
        move = state["mean"] / (1 - slow ** state["step"]) / size
        decay: Tensor | float = 1.0
        if p.dim() > 1:
            move, decay = projected(p, grad, move, delta=group["delta"], ratio=group["ratio"])
        if group["weight_decay"]:
            p.mul_(1 - group["lr"] * group["weight_decay"] * decay)
        p.add_(move, alpha=-group["lr"])


def projected(p: Tensor, grad: Tensor, move: Tensor, *, delta: float, ratio: float) -> tuple[Tensor, Tensor]:
    """The update, without its part along the weight where the weight looks scale-free, and the share of decay left.

    A weight looks scale-free row by row (each output channel) or, failing that, as a whole. Both are asked on the
    device: a GPU need not report back.
    """
    rows, whole = (p.shape[0], -1), (1, -1)
    by_row, by_all = _free(p, grad, rows, delta), _free(p, grad, whole, delta)
    out = torch.where(by_row, _without(move, p, rows), torch.where(by_all, _without(move, p, whole), move))
    return out, torch.where(by_row | by_all, ratio, 1.0)


def _free(p: Tensor, grad: Tensor, shape: tuple[int, int], delta: float) -> Tensor:
    w, g = p.reshape(shape), grad.reshape(shape)
    return F.cosine_similarity(g, w, dim=1, eps=1e-8).abs().max() < delta / w.shape[1] ** 0.5


def _without(move: Tensor, p: Tensor, shape: tuple[int, int]) -> Tensor:
    along = F.normalize(p.reshape(shape), dim=1, eps=1e-8)
    m = move.reshape(shape)
    return (m - along * (along * m).sum(1, keepdim=True)).view_as(p)
