"""Semantic sharing the slow way: one item after another, one head after another, one token after another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from matchlight.core import Items
from matchlight.methods.semantic_sharing import Sharing
from matchlight.methods.shared_transformer import Layer, Normed, Shared


def norm(x: Tensor, part: Normed) -> Tensor:
    """Each token minus its mean, over its deviation (n - 1) plus 1e-6."""
    return torch.stack([part.scale * (row - row.mean()) / (row.std() + 1e-6) + part.shift for row in x])


def attention(x: Tensor, part: Layer) -> Tensor:
    """Every token asks every token, one head after another."""
    weights, biases = part.ask.weight.chunk(3), part.ask.bias.chunk(3)
    query, key, value = (x @ weight.T + bias for weight, bias in zip(weights, biases, strict=True))
    wide = x.shape[1] // part.heads
    heads = []
    for h in range(part.heads):
        own = slice(h * wide, (h + 1) * wide)
        scores = query[:, own] @ key[:, own].T / math.sqrt(wide)
        heads.append(scores.softmax(1) @ value[:, own])
    return torch.cat(heads, 1) @ part.tell.weight.T + part.tell.bias


def states(x: Tensor, shared: Shared) -> Tensor:
    """(K, D) tokens of one item through all layers."""
    for layer in shared.layers:
        x = x + attention(norm(x, layer.norms[0]), layer)
        inner = (norm(x, layer.norms[1]) @ layer.first.weight.T + layer.first.bias).clamp(min=0)
        x = x + inner @ layer.second.weight.T + layer.second.bias
    return norm(x, shared.norm).clamp(min=0)


def place(x: Tensor, shared: Shared) -> Tensor:
    """One item in label space: the mean of its tokens' label scores, each of unit length."""
    out = []
    for token in states(x, shared):
        score = torch.sigmoid(shared.labels.weight @ token + shared.labels.bias)
        out.append(score / (score.norm() + 1e-8))
    return torch.stack(out).mean(0)


def picture(matcher: Sharing, regions: Tensor, boxes: Tensor) -> Tensor:
    """One picture's tokens."""
    part = matcher.encoders["image"]
    looks = [part.fc.weight @ region + part.fc.bias for region in regions]
    where = [part.box.weight @ box + part.box.bias for box in boxes]
    return torch.stack([(f + part.box_scale * b) / 2 for f, b in zip(looks, where, strict=True)])


def caption(matcher: Sharing, ids: Tensor, width: int) -> Tensor:
    """One caption's tokens, with rows of padding up to `width`."""
    part = matcher.encoders["text"]
    alone = Items(ids[None], None, torch.zeros(1, dtype=torch.int64))
    read = torch.cat([part.words(alone)[0], torch.zeros(width - len(ids), part.place.weight.shape[1])])
    where = [0 if part.first_only else t for t in range(width)]
    return torch.stack([(h + part.position_scale * part.place.weight[t]) / 2 for h, t in zip(read, where, strict=True)])


def label_loss(places: list[Tensor], labels: Tensor) -> Tensor:
    """The mean over items of log(1 + exp(-<place, label>))."""
    costs = [torch.log(1 + torch.exp(-(e * y).sum())) for e, y in zip(places, labels, strict=True)]
    return torch.stack(costs).mean()


def consistency(f: Tensor, g: Tensor, label: Tensor) -> Tensor:
    """Likelihood terms over all pairs of items, within and across sides, and the mean distance of partners."""

    def likely(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(())
        for i in range(len(a)):
            for j in range(len(b)):
                half = 0.5 * (a[i] @ b[j]) / (a[i].norm() * b[j].norm())
                same = float((label[i] @ label[j]) > 0)
                total = total + torch.log(1 + half.exp()) - same * half
        return total / (len(a) * len(b))

    near = torch.stack([(x / x.norm() - y / y.norm()).norm() for x, y in zip(f, g, strict=True)]).mean()
    return likely(f, f) + likely(g, g) + likely(f, g) + near
