"""Scores from similarity vectors (SGR, SAF): captions of one length at a time, so that nothing is padded or masked.

For a picture and a caption of L words there are L + 1 nodes: one compares the whole picture with the whole caption, one
each word with what it saw. A head turns the nodes of many pairs into scores: `Reasoning` mixes them along a graph and
reads the first, `Filtering` weighs and sums them. Source: arXiv:2101.01368. Everything here works with and without the
fused kernels; `fused` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight.scoring.kernels import reference
from matchlight.scoring.kernels.gpu_attention import BUDGET, FEWEST_WORDS, SHAPES, half, padded_grams, power, two_tiles
from matchlight.scoring.kernels.packed import Packed, same_length
from matchlight.scoring.kernels.products import as_operand, grams, product

Head = Callable[[Tensor], Tensor]  # (P, L + 1, S) nodes -> (P,) scores
# rows, chunk, warps and stages of a tile: matrix units are busy where a tile is tall, registers allow 128 x 256 sums
SHORT, LONG = (128, 64, 8, 3), (64, 32, 4, 2)  # for 2-byte and for 4-byte numbers
WIDEST = 256  # a similarity vector a tile can sum
DOTS = {torch.float32: "tf32x3", torch.float16: "fp16"}  # how weights meet Gram matrices; in bf16 by TF32


@dataclass(frozen=True)
class Pictures:
    """I pictures: regions, which are real (None: all), and one vector for the whole."""

    regions: Tensor  # (I, R, D)
    mask: Tensor | None  # (I, R)
    whole: Tensor  # (I, D)


@dataclass(frozen=True)
class Captions:
    """T captions: packed words, and one vector for the whole."""

    texts: Packed
    whole: Tensor  # (T, D)


@dataclass(frozen=True)
class VectorLayers:
    """What makes similarity vectors: a layer for words, one for wholes (D -> S), and the words' attention."""

    local: nn.Linear
    overall: nn.Linear
    temperature: float = 9.0
    norm: str = "clipped_l2norm"


def vector_scores(
    pictures: Pictures,
    captions: Captions,
    layers: VectorLayers,
    head: Head,
    *,
    precision: str = "fp16",
    budget: int = BUDGET,
    fused: bool = True,
) -> Tensor:
    """(I, T) float32 scores of all pairs."""
    count = len(pictures.regions)
    out = torch.zeros(count, len(captions.texts), device=pictures.regions.device, dtype=torch.float32)
    sides = _Prepared(pictures, captions, layers, precision, fused)
    for length, group in same_length(captions.texts.lengths):
        for some, tall in _blocks(group, length, sides, budget):
            words, whole = sides.captions(some, length)
            for i in range(0, count, tall):
                nodes = sides.nodes(i, min(count, i + tall), words, whole, length)
                scores = head(nodes.flatten(0, 1)).view(nodes.shape[:2])
                out[i : i + tall, some.to(out.device)] = scores.float()
                del nodes  # the next block takes its place
    return out


def _blocks(group: Tensor, length: int, sides: _Prepared, budget: int) -> Iterator[tuple[Tensor, int]]:
    """(captions, pictures at a time) whose products, weights and nodes (three copies at the widest) fit the budget."""
    count, regions = sides.regions.shape[:2]
    pair = length * (regions * 6 + 4) + 3 * (length + 1) * len(sides.local_bias) * sides.regions.element_size()
    if not sides.fused:
        pair += 16 * length * sides.regions.shape[2]  # the plain way forms the D-long differences
    many = max(1, min(len(group), budget // (pair * min(count, 32))))
    for k in range(0, len(group), many):
        some = group[k : k + many]
        tall = max(1, min(count, budget // (pair * len(some)), 1 << 15))  # a launch counts pictures in 16 bits
        yield some, tall if tall < 8 else tall // 4 * 4


def _widened(x: Tensor, dtype: torch.dtype, step: int) -> Tensor:
    """Zeros behind the last axis up to a multiple of `step`: differences of zeros count nothing."""
    return F.pad(x.to(dtype), (0, -x.shape[-1] % step)).contiguous()


class _Prepared:
    """Both sides and both layers in the types the products read, made once for all blocks."""

    def __init__(self, pictures: Pictures, captions: Captions, layers: VectorLayers, precision: str, fused: bool):
        dtype = half(precision)
        step = (SHORT if dtype != torch.float32 else LONG)[1]
        self.fused, self.precision = fused, precision
        self.mask = pictures.mask
        self.gram = (padded_grams if fused else grams)(pictures.regions)
        self.regions = _widened(pictures.regions, dtype, step)
        self.picture_whole = _widened(pictures.whole, dtype, step)[:, None]
        self.products = as_operand(pictures.regions.flatten(0, 1), precision)
        self.texts = captions.texts
        self.caption_whole = _widened(captions.whole, dtype, step)
        local, overall = layers.local, layers.overall
        self.temperature, self.norm = layers.temperature, layers.norm
        self.local, self.local_bias = _widened(local.weight, dtype, step).T.contiguous(), local.bias.float()
        self.overall, self.overall_bias = _widened(overall.weight, dtype, step).T.contiguous(), overall.bias.float()
        self.step, self.dtype = step, dtype

    def captions(self, some: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """(K * L, D) words and (K, D) wholes of captions that share a length."""
        device = self.texts.words.device
        place = (self.texts.offsets[some][:, None] + torch.arange(length)[None]).flatten().to(device)
        return self.texts.words[place], self.caption_whole[some.to(device)]

    def nodes(self, first: int, last: int, words: Tensor, whole: Tensor, length: int) -> Tensor:
        """(pictures, captions, L + 1, S) similarity vectors of one block, that of the wholes first."""
        count, many, regions = last - first, len(whole), self.regions.shape[1]
        s = product(as_operand(words, self.precision), self.products[first * regions : last * regions], self.precision)
        mask = None if self.mask is None else self.mask[first:last]
        see = attend if self.fused else attend_plain
        weights, scale = see(
            s, self.gram[first:last], mask, length, temperature=self.temperature, norm=self.norm, dtype=self.dtype
        )
        del s
        out = torch.empty(count, many, length + 1, len(self.local_bias), device=words.device, dtype=self.dtype)
        join = compare if self.fused else compare_plain
        texts = _widened(words, self.dtype, self.step)
        join(weights, scale, self.regions[first:last], texts, self.local, self.local_bias, out, length=length)
        one = torch.ones(count, many, 1, device=words.device, dtype=self.dtype)
        picture = self.picture_whole[first:last]
        join(one, one[..., 0].float(), picture, whole, self.overall, self.overall_bias, out, length=0)
        return out


# ---- the pieces: the kernel, and the same in plain PyTorch -----------------------------------------------------------


def attend(
    s: Tensor, gram: Tensor, mask: Tensor | None, length: int, *, temperature: float, norm: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(W, I * R) products with captions of one length -> (I, W, R) weights and (I, W) 1 / (|c| + 1e-8)."""
    from matchlight.scoring.kernels import triton_vectors

    count, words, captions = len(gram), len(s), len(s) // length
    regions = s.shape[1] // count
    head, tail = two_tiles(regions)
    padded = power(length, FEWEST_WORDS)
    shape = SHAPES["t2i"]
    many = max(1, shape.rows // padded)
    weights = torch.empty(count, words, regions, device=s.device, dtype=dtype)
    scale = torch.empty(count, words, device=s.device)
    place = torch.arange(captions, device=s.device, dtype=torch.int32)
    real = s if mask is None else mask.to(torch.int8).contiguous()
    triton_vectors.attend[(count, -(-captions // many))](
        s, gram, real, place, place * length, torch.full_like(place, length), weights, scale,
        captions, s.stride(0), words, temperature,
        R=regions, HEAD=head, TAIL=tail, L=padded, C=many, NORM=norm, MASKED=mask is not None,
        DOT=DOTS.get(dtype, "tf32"), num_warps=shape.warps,
    )  # fmt: skip
    return weights, scale


def attend_plain(
    s: Tensor, gram: Tensor, mask: Tensor | None, length: int, *, temperature: float, norm: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The same in plain PyTorch."""
    count, regions = gram.shape[:2]
    cube = s.view(-1, length, count, regions).permute(2, 0, 1, 3)  # (I, K, L, R)
    real = torch.ones(count, regions, dtype=torch.bool, device=s.device) if mask is None else mask
    real = real[:, None, None]
    a = reference.attention(cube.float() * real, real, temperature=temperature, norm=norm)
    square = ((a @ gram[:, None]) * a).sum(-1).clamp(min=0)
    return a.flatten(1, 2).to(dtype), (1 / (square.sqrt() + reference.TINY)).flatten(1, 2)


def compare(
    weights: Tensor,
    scale: Tensor,
    regions: Tensor,
    texts: Tensor,
    layer: Tensor,
    bias: Tensor,
    out: Tensor,
    *,
    length: int,
) -> None:
    """Similarity vectors into nodes 1 to L of `out` (I, K, L + 1, S), or into node 0 where `length` is 0."""
    from matchlight.scoring.kernels import triton_vectors

    count, _, nodes, size = out.shape
    words, long = len(texts), regions.shape[2]
    rows, chunk, warps, stages = SHORT if texts.element_size() == 2 else LONG
    step, gap, first = (1, 1, 1) if length else (nodes, 0, 0)
    triton_vectors.compare[(-(-words // rows), count)](
        weights, scale, regions, texts, layer, bias, out,
        words, max(1, length), out.stride(0) // size, step, gap, first,
        R=regions.shape[1], RP=power(regions.shape[1]), D=long, S=size, SP=power(size), M=rows, B=chunk,
        DOT="tf32x3", num_warps=warps, num_stages=stages,
    )  # fmt: skip


def compare_plain(
    weights: Tensor,
    scale: Tensor,
    regions: Tensor,
    texts: Tensor,
    layer: Tensor,
    bias: Tensor,
    out: Tensor,
    *,
    length: int,
) -> None:
    """The same in plain PyTorch."""
    apart = (weights @ regions) * scale[..., None].to(weights.dtype) - texts
    made = apart.square() @ layer + bias.to(layer.dtype)
    made = made / (made.float().norm(dim=-1, keepdim=True) + reference.TINY)
    if length:
        out[:, :, 1:] = made.view(len(out), out.shape[1], length, -1)
    else:
        out[:, :, 0] = made


def reason(nodes: Tensor, mix: Tensor, shift: Tensor, layer: Tensor, bias: Tensor) -> Tensor:
    """(P, N, S) -> relu(softmax((X A + u) X^T) X W + b), every node seeing its own pair's; `mix`, `layer` (in, out)."""
    from matchlight.scoring.kernels import triton_vectors

    many, each, size = nodes.shape
    rows, chunk, warps, stages = SHORT if nodes.element_size() == 2 else LONG
    rows = max(rows, power(each))
    span = rows // each * each
    out = torch.empty_like(nodes)
    triton_vectors.reason[(-(-many * each // span),)](
        nodes, mix, shift, layer, bias, out, many * each, each, span,
        S=size, M=rows, B=min(chunk, size), DOT="tf32x3", num_warps=warps, num_stages=min(stages, 2),
    )  # fmt: skip
    return out


def reason_plain(nodes: Tensor, mix: Tensor, shift: Tensor, layer: Tensor, bias: Tensor) -> Tensor:
    """The same in plain PyTorch."""
    asked = nodes @ mix + shift.to(nodes.dtype)
    edges = (asked @ nodes.transpose(1, 2)).float().softmax(-1).to(nodes.dtype)
    return ((edges @ nodes) @ layer + bias.to(nodes.dtype)).relu()


def gather(nodes: Tensor, asked: Tensor, shift: Tensor | None = None) -> Tensor:
    """(P, N, S) nodes summed to (P, S), by the softmax of their products with `asked` (P, S) of their pair.

    With a `shift` of one number `asked` is (S,), the same for all, and the weights are the sigmoids of the products
    plus the shift, divided by the sum of all of them.
    """
    from matchlight.scoring.kernels import triton_vectors

    pairs, each, size = nodes.shape
    wide = power(each)
    out = torch.empty(pairs, size, device=nodes.device, dtype=nodes.dtype if shift is None else torch.float32)
    triton_vectors.gather[(pairs,)](
        nodes, asked, asked if shift is None else shift, out, each, 0 if asked.dim() == 1 else size,
        S=size, NP=wide, GATE=shift is not None, num_warps=max(1, min(16, wide * size // 2048)),
    )  # fmt: skip
    return out


def gather_plain(nodes: Tensor, asked: Tensor, shift: Tensor | None = None) -> Tensor:
    """The same in plain PyTorch."""
    if shift is None:
        weights = torch.bmm(nodes, asked[..., None]).squeeze(-1).float().softmax(-1)
        return torch.bmm(weights[:, None].to(nodes.dtype), nodes).squeeze(1)
    gates = (nodes @ asked.to(nodes.dtype)).float().add(shift).sigmoid()
    weights = gates / (gates.sum(-1, keepdim=True) + 1e-8)
    return torch.bmm(weights[:, None].to(nodes.dtype), nodes).squeeze(1).float()
