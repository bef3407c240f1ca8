"""An exported run as a run again: its two towers are computed by ONNX Runtime, and everything is done with it as usual.

Only dual encoders: their score is a dot product, which needs nothing of the network but its vectors.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from matchlight.console import VERSION
from matchlight.core import IMAGE, TEXT, Embedding, Items, Matcher, Sizes
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.inputs.prepare import View
from matchlight.methods.dual import ScaledCosine
from matchlight.parts.similarities import Dot

ONNX = "onnx"  # what a recipe is called whose model this is


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


def onnx_recipe(path: Path) -> tuple[dict[str, Any], OnnxTowers]:
    """What `recipe.json` would say of an exported run, and its towers."""
    towers = OnnxTowers.open(path, threads=torch.get_num_threads())
    towers.check_dual()
    words, seen = towers.vocabulary, towers.info["picture"]
    pixels = seen["input"] == "pixels"
    kind = "pixels" if pixels else "vector" if len(seen["size"]) == 1 else "regions"
    sizes = Sizes(
        pairs=0,
        pictures=0,
        image=kind,
        image_dim=towers.info["dim"] if pixels else seen["size"][-1],
        regions=1 if pixels else seen["size"][0],
        vocabulary=len(words) if words is not None else 0,
    )
    info: dict[str, Any] = {"name": ONNX, "preset": "imported", "arguments": {}, "sizes": dataclasses.asdict(sizes)}
    view = View("pixels" if pixels else "given", onnx=path.name)
    return info | {"view": view.to_json(), "exported": towers.info["method"], "version": VERSION}, towers
