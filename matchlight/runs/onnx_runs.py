"""An exported run as a run again: its two towers are computed by ONNX Runtime, and everything is done with it as usual.

Only dual encoders: their score is a dot product, which needs nothing of the network but its vectors.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from matchlight.core import IMAGE, TEXT, Embedding, Items, Matcher
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.methods.dual import ScaledCosine
from matchlight.parts.similarities import Dot


class Tower(nn.Module):
    """One side of an exported run."""

    def __init__(self, towers: OnnxTowers, side: str):
        super().__init__()
        self.length = nn.Parameter(torch.ones(()), requires_grad=False)  # torch wants to know where a model is
        self.towers, self.side = towers, side

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        x = items.x.cpu().numpy()
        if self.side == IMAGE:
            return Embedding(torch.from_numpy(self.towers.image(x)))
        mask = torch.ones_like(items.x, dtype=torch.bool) if items.mask is None else items.mask
        return Embedding(torch.from_numpy(self.towers.text(x, mask.cpu().numpy())))


def onnx_matcher(towers: OnnxTowers) -> Matcher:
    """Compares as the run did that was exported."""
    scale, bias, score = towers.info["scale"], towers.info["bias"], Dot()
    if (scale, bias) != (1.0, 0.0):
        score = ScaledCosine(bias=True)
        score.load_state_dict({"scale": torch.tensor(math.log(scale)), "bias": torch.tensor(bias)})
    return Matcher({IMAGE: Tower(towers, IMAGE), TEXT: Tower(towers, TEXT)}, score)


def open_towers(path: Path) -> OnnxTowers:
    """The towers of an exported dual encoder, with as many threads as torch has."""
    towers = OnnxTowers.open(path, threads=torch.get_num_threads())
    towers.check_dual()
    return towers
