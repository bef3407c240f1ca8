"""A witness that takes seconds: fixed vectors of pictures and captions, joined along what varies together in both.

Canonical correlation with a ridge on either side has a closed form. It is fitted on all folds but one and asked about
that one, then once more with every pair weighing as far as it looked right. With vectors of several picture networks
and of the captions' meaning and words (`parts.py`) it tells wrong pairs better than small networks trained from
nothing, above all where data are few or mostly wrong: there is little in it that could memorise a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.better_partners import alternatives
from matchlight.auditing.gallery import GALLERY, NAMES, Asked, ask_vectors, gallery_of
from matchlight.auditing.neighbours import Lists, Scene
from matchlight.training.division import share_of_wrong, weighed

WIDE = 320  # main directions of either side that are looked at
KEPT = 80  # directions of the two sides together
RIDGE = 1.0, 1.0  # of pictures and of captions, in mean variances of a direction
POWER = 1.5  # how much more a direction counts where both sides agree on it
PASSES = 3


@dataclass(frozen=True)
class Joint:
    """Where pictures and captions meet: centres to take off, and maps onto the common directions."""

    centres: tuple[Tensor, Tensor]
    maps: tuple[Tensor, Tensor]

    def vectors(self, side: int, x: Tensor) -> Tensor:
        """(N, KEPT) unit vectors of pictures (side 0) or captions (side 1)."""
        return torch.nn.functional.normalize((x - self.centres[side]) @ self.maps[side], dim=1).float()


def joined(images: Tensor, texts: Tensor, weight: Tensor) -> Joint:
    """The common directions of (N, D) pictures and (N, E) captions that belong together, each pair with its weight."""
    share = (weight / weight.sum())[:, None]
    centres = (images * share).sum(0), (texts * share).sum(0)
    x, y = images - centres[0], texts - centres[1]
    roots = [_root(side.T @ (side * share), ridge) for side, ridge in ((x, RIDGE[0]), (y, RIDGE[1]))]
    across = torch.linalg.solve_triangular(roots[0], x.T @ (y * share), upper=False)
    across = torch.linalg.solve_triangular(roots[1], across.T, upper=False).T
    u, strength, v = torch.linalg.svd(across, full_matrices=False)
    count = min(KEPT, len(strength))
    ends = u[:, :count] * strength[:count] ** POWER, v[:count].T
    maps = [torch.linalg.solve_triangular(root.T, end, upper=True) for root, end in zip(roots, ends, strict=True)]
    return Joint(centres, (maps[0], maps[1]))


def _root(spread: Tensor, ridge: float) -> Tensor:
    """The lower triangle L with L L' = spread + ridge."""
    mean = spread.diagonal().mean().clamp(min=1e-12)
    return torch.linalg.cholesky(spread + ridge * mean * torch.eye(len(spread), dtype=spread.dtype))


def reduced(vectors: Tensor, *, most: int = WIDE) -> Tensor:
    """(N, d) float64: the main directions, as large as they come."""
    x = vectors.double().cpu()
    x = x - x.mean(0)
    if x.shape[1] > most:
        x = x @ torch.linalg.eigh(x.T @ x)[1][:, -most:]
    return x / x.std().clamp(min=1e-12)


def witness(images: Tensor, texts: Tensor, scene: Scene, fold: np.ndarray, *, seed: int) -> Lists:
    """Answers about every row and its wrong double, and better partners, by fits that saw neither side of the row."""
    images, texts = reduced(images), reduced(texts)
    weight, found = np.ones(len(fold)), {}
    for turn in range(PASSES):
        parts = [_part(images, texts, scene, fold, k, weight, seed=seed, last=turn == PASSES - 1) for k in _folds(fold)]
        found = _together(parts, fold)
        loss, made = ((found[f"i2t{end}"] + found[f"t2i{end}"]) / 2 for end in ("", "_wrong"))
        weight = np.maximum(weighed(loss, share_of_wrong(loss, made)), 1e-3)
    return found


def _folds(fold: np.ndarray) -> range:
    return range(int(fold.max()) + 1)


def _part(
    images: Tensor, texts: Tensor, scene: Scene, fold: np.ndarray, k: int, weight: np.ndarray, *, seed: int, last: bool
) -> Lists:
    """What the fit without fold k says of it."""
    others, inside = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
    pairs = images[torch.from_numpy(scene.picture[others])], texts[torch.from_numpy(others)]
    joint = joined(*pairs, torch.from_numpy(weight[others]))
    sides = joint.vectors(0, images), joint.vectors(1, texts)
    gallery = gallery_of(scene.picture, inside, others, size=GALLERY, seed=seed)
    captions = np.concatenate([inside, scene.wrong[inside]])
    asked = Asked(np.tile(scene.picture[inside], 2), captions, gallery, scene.group)
    answers = ask_vectors(*sides, scene.picture, asked)
    found: Lists = {}
    for name in NAMES:
        found[name], found[f"{name}_wrong"] = np.split(answers[name], 2)
    return found | (alternatives(*sides, scene, inside) if last else {})


def _together(parts: list[Lists], fold: np.ndarray) -> Lists:
    """The folds' answers as arrays over all rows."""
    found = {name: np.empty((len(fold), *value.shape[1:]), value.dtype) for name, value in parts[0].items()}
    for k, part in enumerate(parts):
        for name, value in part.items():
            found[name][fold == k] = value
    return found
