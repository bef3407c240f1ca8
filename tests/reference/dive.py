"""DivE the long way: sets compared element by element, slots one at a time, losses pair by pair."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.methods.slots import SetPrediction


def pair_score(x: Tensor, y: Tensor, kind: str, alpha: float = 16.0) -> Tensor:
    """One set (K, D) against another (L, D)."""
    c = [[torch.dot(a, b) for b in y] for a in x]
    rows, columns = c, [list(column) for column in zip(*c, strict=True)]
    if kind == "mil":
        return torch.stack([value for row in rows for value in row]).max()
    if kind == "mp":
        return torch.stack([value.sigmoid() for row in rows for value in row]).mean()
    total = torch.zeros(())
    for lines in (rows, columns):
        for line in lines:
            values = torch.stack(line)
            near = values.max() if kind == "chamfer" else (alpha * values).exp().sum().log() / alpha
            total = total + near / (2 * len(lines))
    return total


def column(images: Tensor, text: Tensor, *, alpha: float = 16.0) -> Tensor:
    """All pictures (I, K, D) against one caption (L, D) by smooth-Chamfer similarity: one column of the matrix."""
    c = images @ text.T
    there = (alpha * c).exp().sum(2).log().mean(1)
    back = (alpha * c).exp().sum(1).log().mean(1)
    return (there + back) / (2 * alpha)


def loop_scores(images: Tensor, texts: Tensor, *, alpha: float = 16.0) -> Tensor:
    """(I, T), caption by caption."""
    return torch.stack([column(images, text, alpha=alpha) for text in texts], 1)


def predicted_set(module: SetPrediction, x: Tensor, whole: Tensor, codes: Tensor | None = None) -> Tensor:
    """One item's inputs (L, d_in), all real, through the module's weights: head by head, slot by slot."""
    m = module.compete
    slots = module.start.latents
    seen = m.norm_context(x)
    keys, values = m.key(seen if codes is None else seen + codes), m.value(seen)
    width = keys.shape[1] // m.heads
    for _ in range(module.depth):
        query = m.query(m.norm(slots))
        heads = []
        for h in range(m.heads):
            part = slice(h * width, (h + 1) * width)
            score = query[:, part] @ keys[:, part].T / math.sqrt(width)
            share = torch.stack([column.exp() / column.exp().sum() for column in score.T], 1)
            weight = torch.stack([row / (row.sum() + 1e-7) for row in share])
            heads.append(weight @ values[:, part])
        slots = slots + m.out(torch.cat(heads, 1))
        slots = slots + module.think(slots)
    found = module.norm(slots)
    return F.normalize(found + module.whole_norm(whole), dim=-1)


def triplet(scores: Tensor, owner: list[int], margin: float) -> tuple[float, float]:
    """(i2t, t2i): the mean over captions of the hinge with the hardest negative."""
    i2t, t2i = [], []
    for caption, picture in enumerate(owner):
        own = float(scores[picture, caption])
        others = [float(scores[picture, t]) for t, mine in enumerate(owner) if mine != picture]
        i2t.append(max(0.0, max(margin + other - own for other in others)))
        wrong = [float(scores[i, caption]) for i in range(len(scores)) if i != picture]
        t2i.append(max(0.0, max(margin + other - own for other in wrong)))
    return sum(i2t) / len(owner), sum(t2i) / len(owner)


def maximum_mean_discrepancy(x: Tensor, y: Tensor) -> float:
    """exp(-|a - b| / 2), averaged over the pairs of each kind."""

    def mean(a: Tensor, b: Tensor) -> float:
        return sum(math.exp(-0.5 * float((p - q).norm())) for p in a for q in b) / (len(a) * len(b))

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


def diversity_loss(one: Tensor) -> float:
    """exp(-2 |a - b|^2) over the pairs of one set's unit vectors, averaged."""
    r = F.normalize(one, dim=-1)
    pairs = [(k, other) for k in range(len(r)) for other in range(k + 1, len(r))]
    return sum(math.exp(-2 * float((r[k] - r[other]).square().sum())) for k, other in pairs) / len(pairs)
