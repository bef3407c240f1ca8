"""SGR and SAF the slow way: one caption after the other, each repeated for every picture, on its true words alone.

It reads the weights of our modules and shares none of their arithmetic: attended vectors are formed, edges come from
two products, nothing is masked because nothing is padded. In training SAF's gate is normalised caption by caption.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from matchlight.core import Embedding
from matchlight.methods.similarity_heads import Filter, GraphStep, Reason
from matchlight.methods.similarity_vectors import SimilarityVectors
from matchlight.methods.whole_vectors import WholeVector


def unit(x: Tensor) -> Tensor:
    return x / (x.pow(2).sum(-1, keepdim=True).sqrt() + 1e-8)


def whole_vector(module: WholeVector, x: Tensor) -> Tensor:
    """(N, K, D) without padding -> (N, D); BatchNorm layers of torch stand for ours."""
    each, mean = module.each(x), module.mean(x.mean(1))
    if module.norm_each is not None and module.norm_mean is not None:
        each = as_torch(module.norm_each)(each)
        mean = as_torch(module.norm_mean)(mean)
    common = torch.tanh(each) * torch.tanh(mean)[:, None].repeat(1, x.shape[1], 1)
    weights = torch.softmax(module.weigh(common).squeeze(2), 1)
    return unit((weights[:, :, None] * x).sum(1))


def as_torch(norm: nn.BatchNorm1d) -> nn.BatchNorm1d:
    """A BatchNorm of torch with the same weights, averages and mode."""
    plain = nn.BatchNorm1d(norm.num_features).train(norm.training)
    plain.load_state_dict(norm.state_dict())
    plain.weight, plain.bias = norm.weight, norm.bias
    return plain


def attended(words: Tensor, regions: Tensor, temperature: float) -> Tensor:
    """What each word sees: (n, L, D) and (n, R, D) -> (n, L, D)."""
    attention = torch.bmm(regions, words.transpose(1, 2))  # (n, R, L)
    attention = unit(nn.LeakyReLU(0.1)(attention))
    attention = torch.softmax(attention.transpose(1, 2).contiguous() * temperature, 2)  # (n, L, R)
    context = torch.bmm(regions.transpose(1, 2).contiguous(), attention.transpose(1, 2).contiguous())
    return unit(context.transpose(1, 2).contiguous())


def reason(step: GraphStep, x: Tensor) -> Tensor:
    query, key = step.query(x), step.key(x)
    return torch.relu(step.out(torch.bmm(torch.softmax(torch.bmm(query, key.transpose(1, 2)), 2), x)))


def filtered(head: Filter, norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    gate = torch.sigmoid(norm(head.gate(x).transpose(1, 2)))  # (n, 1, N)
    gate = gate / (gate.abs().sum(2, keepdim=True) + 1e-8)
    return unit(torch.bmm(gate, x).squeeze(1))


def scores(module: SimilarityVectors, images: Embedding, texts: Embedding) -> tuple[Tensor, nn.BatchNorm1d | None]:
    """(I, T), and SAF's BatchNorm as the loop leaves it."""
    regions, pictures = images.vectors, images.extra["global"][:, 0]
    norm = as_torch(module.head.norm) if isinstance(module.head, Filter) else None
    columns = []
    for t in range(len(texts)):
        length = texts.vectors.shape[1] if texts.mask is None else int(texts.mask[t].sum())
        words = texts.vectors[t : t + 1, :length].repeat(len(regions), 1, 1)
        context = attended(words, regions, module.temperature)
        local = unit(module.local((context - words).pow(2)))
        whole = unit(module.whole((pictures - texts.extra["global"][t]).pow(2)))
        nodes = torch.cat([whole[:, None], local], 1)
        if isinstance(module.head, Reason):
            for step in module.head.steps:
                nodes = reason(step, nodes)
            pooled = nodes[:, 0]
        else:
            assert norm is not None
            pooled = filtered(module.head, norm, nodes)
        columns.append(torch.sigmoid(module.judge(pooled)))
    return torch.cat(columns, 1), norm


def twin(module: SimilarityVectors) -> SimilarityVectors:
    """A copy whose gradients and averages are its own."""
    return copy.deepcopy(module)
