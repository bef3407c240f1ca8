"""What turns similarity vectors into a score: `Reasoning` (SGR) walks a graph, `Filtering` (SAF) weighs and sums.

Both are made from the trained layers, once a call, for scoring alone: nothing here has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from matchlight.scoring.kernels.gpu_attention import half
from matchlight.scoring.kernels.vector_scores import gather, gather_plain, reason, reason_plain

Step = tuple[nn.Linear, nn.Linear, nn.Linear]  # query, key, output


class Reasoning:
    """X <- relu(W (E X) + b), E = softmax of q . k, step by step; only the first node of the last step is read.

    q . k = (x A + u) . x' + what does not depend on x', with A = Wq^T Wk and u = bq Wk: one product instead of two, and
    the softmax over x' does not see the rest.
    """

    def __init__(self, steps: Sequence[Step], evaluate: nn.Linear, *, precision: str = "fp16", fused: bool = True):
        dtype = half(precision)
        self.steps = [_folded(*step, dtype) for step in steps]
        self.evaluate = evaluate
        self.step, self.gather = (reason, gather) if fused else (reason_plain, gather_plain)

    def __call__(self, nodes: Tensor) -> Tensor:
        """(P, N, S) -> (P,)."""
        for mix, shift, layer, bias in self.steps[:-1]:
            nodes = self.step(nodes, mix, shift, layer, bias)
        return self._last(nodes, *self.steps[-1])

    def _last(self, nodes: Tensor, mix: Tensor, shift: Tensor, layer: Tensor, bias: Tensor) -> Tensor:
        asked = torch.addmm(shift.to(nodes.dtype), nodes[:, 0], mix)
        first = torch.addmm(bias.to(nodes.dtype), self.gather(nodes, asked), layer)
        return _scored(first.relu_(), self.evaluate)


def _folded(query: nn.Linear, key: nn.Linear, out: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, ...]:
    mix = (query.weight.float().T @ key.weight.float()).to(dtype).contiguous()
    shift = query.bias.float() @ key.weight.float()
    return mix, shift, out.weight.T.to(dtype).contiguous(), out.bias.float()


class Filtering:
    """Each node's gate, a sigmoid of a normalised linear map, over the sum of all gates, is its weight."""

    def __init__(self, attend: nn.Linear, norm: nn.BatchNorm1d, evaluate: nn.Linear, *, fused: bool = False):
        assert norm.running_mean is not None and norm.running_var is not None
        slope = norm.weight * torch.rsqrt(norm.running_var + norm.eps)  # the normalisation is one more linear map
        self.weight = (attend.weight[0] * slope).float()
        self.bias = ((attend.bias - norm.running_mean) * slope + norm.bias).float()
        self.evaluate = evaluate
        self.gather = gather if fused else gather_plain

    def __call__(self, nodes: Tensor) -> Tensor:
        """(P, N, S) -> (P,)."""
        mixed = self.gather(nodes, self.weight, self.bias)
        return _scored(mixed / (mixed.norm(dim=-1, keepdim=True) + 1e-8), self.evaluate)


def _scored(vector: Tensor, evaluate: nn.Linear) -> Tensor:
    score: Tensor = (vector.float() @ evaluate.weight[0].float() + evaluate.bias.float()).sigmoid()
    return score
