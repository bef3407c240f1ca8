"""Recalls on a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.starter.looking import Part
from benchmarks.starter.stored import Stored
from benchmarks.starter.towers import Towers

Report = dict[str, dict[str, float]]


@torch.inference_mode()
def image_vectors(net: Towers, stored: Stored) -> Tensor:
    """(pictures, dim)."""
    net.eval()
    spans = np.array_split(np.arange(len(stored)), -(-len(stored) // 128))
    with torch.autocast("cpu", torch.bfloat16):
        return torch.cat([net.images(stored.pictures(span)).float() for span in spans])


@torch.inference_mode()
def text_vectors(net: Towers, stored: Stored) -> Tensor:
    """(captions, dim)."""
    net.eval()
    order, found = np.argsort(stored.lengths, kind="stable"), torch.zeros(len(stored.owner), 1024)
    with torch.autocast("cpu", torch.bfloat16):
        for span in np.array_split(order, -(-len(order) // 512)):
            found[span] = net.texts(stored.texts(span)).float()
    return found


def recalls(net: Towers, stored: Stored) -> dict[str, float]:
    """R@1, R@5, R@10 both ways and their sum."""
    scores = image_vectors(net, stored) @ text_vectors(net, stored).T
    owner = torch.from_numpy(stored.owner)
    rank = (scores > scores[owner, torch.arange(len(owner))]).sum(0)
    theirs = owner[None] == torch.arange(len(scores))[:, None]
    back = (scores > scores.masked_fill(~theirs, -2).amax(1, keepdim=True)).sum(1)
    found = {f"i2t r{k}": 100 * (back < k).float().mean().item() for k in (1, 5, 10)}
    found |= {f"t2i r{k}": 100 * (rank < k).float().mean().item() for k in (1, 5, 10)}
    return {name: round(value, 2) for name, value in found.items()} | {"rsum": round(sum(found.values()), 1)}


def measured(net: Towers, work: Path, sets: dict[str, list[Part]], kind: str, split: str) -> Report:
    """On this split of every data set that was looked at."""
    there = {name: Stored(work, [one for one in parts if one.split == split], kind) for name, parts in sets.items()}
    return {name: recalls(net, stored) for name, stored in there.items() if len(stored)}
