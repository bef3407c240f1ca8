"""A picture tower and a caption tower over what is stored; both are those of a `vse_infty` run."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.starter.looking import CELLS, DINO_SIZE, READ, TINY_SIZE, TRUNK, through
from benchmarks.starter.stored import Stored
from matchlight.core import IMAGE, TEXT, Items, Matcher, Sizes
from matchlight.methods.vse import VSEInfinity
from matchlight.parts.canonical_correlation import fit_canonical_correlation
from matchlight.parts.canonical_start import set_directions
from matchlight.training.arguments import Value

HEADS: dict[str, Value] = {"dim": 1024, "hidden": 1024, "sentences": "minilm", "sentences_rate": 0.0, "norm": False}
HEADS |= {"pooling": "top", "top_words": 3, "drop_words": 0.0, "loss": "infonce", "temperature": 0.05}
STARTER: dict[str, Value] = {
    **HEADS,
    "backbone": "dinov2-small",
    "pixels": DINO_SIZE,
    "tokens": "both",
    "top_regions": 10,
}
SMALL: dict[str, Value] = {**HEADS, "backbone": "tinyvit-5m", "pixels": TINY_SIZE, "finetune": True, "top_regions": 10}

PLAIN: dict[str, Value] = {**SMALL, "finetune": False}


def coarser(cells: Tensor, grid: int) -> Tensor:
    """The class token and `grid` x `grid` means of the stored cells."""
    if grid == CELLS:
        return cells
    map_ = cells[:, 1:].unflatten(1, (CELLS, CELLS)).permute(0, 3, 1, 2)
    return torch.cat([cells[:, :1], F.adaptive_avg_pool2d(map_, grid).flatten(2).transpose(1, 2)], 1)


class Towers(nn.Module):
    """Heads over DINOv2's stored cells, and MiniLM's last blocks and a head over its stored states."""

    def __init__(self, matcher: Matcher, grid: int):
        super().__init__()
        self.matcher, self.grid = matcher, grid
        self.picture, self.caption = matcher.encoders[IMAGE], matcher.encoders[TEXT]
        self.late_reader = self.caption.reader.bert.blocks[READ:]  # type: ignore[union-attr, index]
        self.late_reader.requires_grad_(True)  # type: ignore[operator]

    def cells(self, stored: Tensor) -> Items:
        """What the head over the cells reads."""
        x = coarser(stored, self.grid)
        return Items(x, None, torch.arange(len(x)), {})

    @property
    def regions(self) -> nn.Module:
        """The head over the cells."""
        return self.picture

    def images(self, stored: Tensor) -> Tensor:
        """(N, dim) unit vectors."""
        return self.regions(self.cells(stored)).vectors[:, 0]

    def states(self, items: Items) -> Items:
        """MiniLM's last states."""
        x = items.x
        for block in self.late_reader:  # type: ignore[union-attr]
            x = block(x, items.mask)
        return Items(x.float(), items.mask, items.id, items.extra)

    def texts(self, items: Items) -> Tensor:
        """(N, dim) unit vectors."""
        return F.normalize(self.caption.pooled(self.states(items)), dim=-1)  # type: ignore[operator]

    def late(self) -> list[nn.Parameter]:
        """What was pretrained and is tuned."""
        return [p for p in self.late_reader.parameters() if p.requires_grad]

    def learnt(self) -> dict[str, Tensor]:
        """What a file of the run has to hold: the reader's early blocks come with their own package."""
        late = tuple(f".reader.bert.blocks.{k}." for k in range(READ, len(self.caption.reader.bert.blocks)))  # type: ignore[union-attr, arg-type]
        state = self.matcher.state_dict()
        return {name: value for name, value in state.items() if ".reader." not in name or any(k in name for k in late)}


class PlainTowers(Towers):
    """Heads over TinyViT's cells as it came, and MiniLM's last blocks and a head over its stored states."""

    def cells(self, stored: Tensor) -> Items:
        """(N, 49, 320), as they are stored."""
        return Items(stored, None, torch.arange(len(stored)), {})


class SmallTowers(Towers):
    """TinyViT's last blocks behind its stored map; the caption tower is given."""

    def __init__(self, matcher: Matcher, grid: int):
        super().__init__(matcher, grid)
        self.caption.requires_grad_(False)
        network = self.picture.backbone.network  # type: ignore[union-attr]
        third, last = network.stages[2], network.stages[3]  # type: ignore[union-attr, index]
        self.late_blocks = nn.ModuleList([*third.blocks[TRUNK:], last])
        network.requires_grad_(False)  # type: ignore[union-attr, operator]
        self.late_blocks.requires_grad_(True)

    def cells(self, stored: Tensor) -> Items:
        """TinyViT's cells: (N, 49, 320) as they are stored, or from its stored map."""
        x = stored if stored.dim() == 3 else through(self.late_blocks, stored.permute(0, 3, 1, 2))
        x = x if stored.dim() == 3 else x.flatten(2).transpose(1, 2)
        return Items(x, None, torch.arange(len(x)), {})

    @property
    def regions(self) -> nn.Module:
        """The head over the cells."""
        return self.picture.regions  # type: ignore[return-value]

    def late(self) -> list[nn.Parameter]:
        """TinyViT's last blocks."""
        return list(self.late_blocks.parameters())


def towers(kind: str, grid: int, **changed: Value) -> Towers:
    """Those of `starter` ("heads"), of `starter-small` ("small") or of what stands in for it ("plain"), untrained."""
    if kind == "plain":
        sizes = Sizes(pairs=0, pictures=0, image="regions", image_dim=320, regions=49)
        return PlainTowers(VSEInfinity(**{**PLAIN, **changed}).network(sizes), grid)  # type: ignore[arg-type]
    if kind == "small":
        sizes = Sizes(pairs=0, pictures=0, image="pixels", image_dim=320, regions=1)
        return SmallTowers(VSEInfinity(**{**SMALL, **changed}).network(sizes), grid)  # type: ignore[arg-type]
    sizes = Sizes(pairs=0, pictures=0, image="regions", image_dim=384, regions=grid * grid + 1)
    settings = {**STARTER, "cells": f"{grid}x{grid}", **changed}
    return Towers(VSEInfinity(**settings).network(sizes), grid)  # type: ignore[arg-type]


@torch.no_grad()
def start_canonically(net: Towers, stored: Stored, rng: np.random.Generator) -> None:
    """Both projections begin where canonical correlation ends."""
    some = np.sort(rng.permutation(len(stored))[:6000])
    rows = np.array([rng.choice(stored.captions[place]) for place in some])
    net.eval()
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.cat([net.cells(stored.pictures(span)).x.float().mean(1) for span in np.array_split(some, 32)])
        items = [net.states(stored.texts(span)) for span in np.array_split(rows, 32)]
    y = torch.cat([(one.x * one.mask[..., None]).sum(1) / one.mask.sum(1, keepdim=True) for one in items])
    fit = fit_canonical_correlation(x.double(), y.double(), torch.ones(len(x)).double(), kept=256, power=1.0)
    for side, tower in enumerate((net.regions, net.caption)):
        tower.settle()  # type: ignore[operator]
        set_directions(tower.linear, fit.maps[side])  # type: ignore[arg-type]
    seen = net.cells(stored.pictures(some[:500]))
    net.regions.linear.bias.copy_(-net.regions.pooled(seen).mean(0))  # type: ignore[union-attr, operator]
    net.caption.linear.bias.copy_(-net.caption.pooled(items[0]).mean(0))  # type: ignore[union-attr, operator]


@torch.no_grad()
def start_by_teacher(net: Towers, stored: Stored, teacher: Tensor) -> None:
    """The projection begins as ridge regression from the mean cell onto the teacher's vectors."""
    net.eval()
    spans = np.array_split(np.arange(len(stored)), -(-len(stored) // 128))
    with torch.autocast("cpu", torch.bfloat16):
        means = torch.cat([net.cells(stored.pictures(span)).x.float().mean(1) for span in spans])
    centre, size = means.mean(0), means.std(0) + 1e-3
    x = (means - centre) / size
    ridge = 0.3 * len(x) * torch.eye(x.shape[1])
    weight = torch.linalg.solve(x.T @ x + ridge, x.T @ (teacher - teacher.mean(0))) / size[:, None]
    net.regions.settle()  # type: ignore[operator]
    net.regions.linear.weight.copy_(weight.T)  # type: ignore[union-attr, operator]
    net.regions.linear.bias.copy_(teacher.mean(0) - centre @ weight)  # type: ignore[union-attr, operator]
