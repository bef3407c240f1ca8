"""Similarity vectors and one step of reasoning over them, fused (Triton): what SGR and SAF spend their time on.

`attend` leaves each word's weights over the regions and one over the length of what it saw. `compare` turns any run of
words of one picture into similarity vectors, unit(W (c / |c| - w)^2 + b), walking along the long axis D in chunks: a
chunk of c is a product of weights and regions, its squared difference goes straight into the product with W, and the
D-long tensor never exists. `reason` is one graph step, X <- relu(W (softmax((X A + u) X^T) X) + b), on as many whole
pairs as fit a tile; nodes of different pairs do not see each other.

Only imported where Triton is: see `matchlight.scoring.kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from matchlight.scoring.kernels.triton_attention import word_attention, word_grams, word_lengths, words_seen


# Numbers that change from block to block are not worth a compilation each.
@triton.jit(do_not_specialize=["inside", "words"])
def attend(
    s, gram, real, captions, starts, counts, weights, scale,
    inside, wide, words, temperature,
    R: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, L: tl.constexpr, C: tl.constexpr,
    NORM: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One picture, C captions: weights (pictures, words, R), the largest 1, and scale (pictures, words) = 1 / |c|."""
    picture = tl.program_id(0)
    row = tl.arange(0, C * L)
    slot = tl.program_id(1) * C + row // L
    caption = tl.load(captions + slot, mask=slot < inside, other=0)
    word = tl.load(starts + caption) + row % L
    word_real = (slot < inside) & (row % L < tl.load(counts + caption))
    seen, seen_real = words_seen(s, real, word, word_real, picture, wide, 0, HEAD, R, MASKED)
    rest, rest_real = seen, seen_real
    if TAIL:
        rest, rest_real = words_seen(s, real, word, word_real, picture, wide, HEAD, TAIL, R, MASKED)
    a, b = word_attention(seen, seen_real, rest, rest_real, temperature, C, L, HEAD, TAIL, R, NORM, "none", MASKED)
    whole, mixed, last = word_grams(gram, picture, HEAD, TAIL)
    length = word_lengths(a, b, whole, mixed, last, TAIL, DOT)
    line = picture.to(tl.int64) * words + word
    tl.store(scale + line, 1.0 / (length + 1e-8), mask=word_real)
    spot = weights + line[:, None] * R
    r = tl.arange(0, HEAD)
    tl.store(spot + r[None, :], a.to(weights.dtype.element_ty), mask=word_real[:, None] & (r[None, :] < R))
    if TAIL:
        r = HEAD + tl.arange(0, TAIL)
        tl.store(spot + r[None, :], b.to(weights.dtype.element_ty), mask=word_real[:, None] & (r[None, :] < R))


@triton.jit(do_not_specialize=["words", "length", "rows", "step", "gap", "first"])
def compare(
    weights, scale, regions, texts, layer, bias, out,
    words, length, rows, step, gap, first,
    R: tl.constexpr, RP: tl.constexpr, D: tl.constexpr, S: tl.constexpr, SP: tl.constexpr,
    M: tl.constexpr, B: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """M words of one picture -> S-long vectors. D is a multiple of B; `layer` is (D, S).

    Word w of a picture lands in row w * step + (w // length) * gap + first of the picture's `rows`.
    """
    picture = tl.program_id(1).to(tl.int64)
    word = tl.program_id(0) * M + tl.arange(0, M)
    live = word < words
    r = tl.arange(0, RP)
    line = picture * words + word
    spot = weights + line[:, None] * R + r[None, :]
    a = tl.load(spot, mask=live[:, None] & (r[None, :] < R), other=0.0)
    inverse = tl.load(scale + line, mask=live, other=0.0)
    k, column = tl.arange(0, B), tl.arange(0, SP)
    total = tl.zeros((M, SP), tl.float32)
    for d in range(0, D, B):
        chunk = tl.load(regions + picture * R * D + r[:, None] * D + (d + k)[None, :], mask=r[:, None] < R, other=0.0)
        own = tl.load(texts + word.to(tl.int64)[:, None] * D + (d + k)[None, :], mask=live[:, None], other=0.0)
        w = tl.load(layer + (d + k)[:, None] * S + column[None, :], mask=column[None, :] < S, other=0.0)
        apart = tl.dot(a, chunk, input_precision=DOT) * inverse[:, None] - own.to(tl.float32)
        total = tl.dot((apart * apart).to(w.dtype), w, total, input_precision=DOT)
    total += tl.load(bias + column, mask=column < S, other=0.0)[None, :]
    size = tl.sqrt(tl.sum(total * total, 1)) + 1e-8
    row = picture * rows + word * step + (word // length) * gap + first
    spot = out + row[:, None] * S + column[None, :]
    tl.store(spot, (total / size[:, None]).to(out.dtype.element_ty), mask=live[:, None] & (column[None, :] < S))


@triton.jit
def softmax(x, real, AXIS: tl.constexpr):
    """Softmax along AXIS over what is real; all padding gives all 0."""
    x = tl.where(real, x, -1e30)
    e = tl.where(real, tl.exp(x - tl.max(x, AXIS, keep_dims=True)), 0.0)
    return e / tl.maximum(tl.sum(e, AXIS, keep_dims=True), 1e-30)


@triton.jit(do_not_specialize=["total", "nodes", "span"])
def reason(
    x, mix, shift, layer, bias, out, total, nodes, span,
    S: tl.constexpr, M: tl.constexpr, B: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """`span` rows (whole pairs of `nodes` rows) of x (total, S). `mix` and `layer` are (in, out); S is a power of 2."""
    m = tl.arange(0, M)
    row = tl.program_id(0).to(tl.int64) * span + m
    live = (m < span) & (row < total)
    k, b = tl.arange(0, S), tl.arange(0, B)
    here = x + row[:, None] * S
    every = tl.load(here + k[None, :], mask=live[:, None], other=0.0)
    logits = tl.zeros((M, M), tl.float32)
    for d in range(0, S, B):
        a = tl.load(mix + k[:, None] * S + (d + b)[None, :])
        asked = tl.dot(every, a, input_precision=DOT) + tl.load(shift + d + b)[None, :]
        some = tl.load(here + (d + b)[None, :], mask=live[:, None], other=0.0)
        logits = tl.dot(asked.to(some.dtype), tl.trans(some), logits, input_precision=DOT)
    pair = m // nodes
    edges = softmax(logits, (pair[:, None] == pair[None, :]) & live[None, :], 1)
    mixed = tl.dot(edges.to(every.dtype), every, input_precision=DOT).to(every.dtype)
    for d in range(0, S, B):
        w = tl.load(layer + k[:, None] * S + (d + b)[None, :])
        new = tl.dot(mixed, w, input_precision=DOT) + tl.load(bias + d + b)[None, :]
        tl.store(out + row[:, None] * S + (d + b)[None, :], tl.maximum(new, 0.0).to(every.dtype), mask=live[:, None])


@triton.jit(do_not_specialize=["nodes", "step"])
def gather(
    x, asked, shift, out, nodes, step,
    S: tl.constexpr, NP: tl.constexpr, GATE: tl.constexpr,
):  # fmt: skip
    """The nodes of one pair, x (pairs, nodes, S), summed to one vector by the weights that `asked` gives.

    `asked` has S numbers every `step`: 0 where all pairs are asked the same. The weights are the softmax of x . asked,
    or (GATE) the sigmoid of x . asked + shift over the sum of all of them.
    """
    pair = tl.program_id(0).to(tl.int64)
    n, k = tl.arange(0, NP), tl.arange(0, S)
    live = n < nodes
    own = tl.load(x + (pair * nodes + n)[:, None] * S + k[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    met = tl.sum(own * tl.load(asked + pair * step + k).to(tl.float32)[None, :], 1)
    if GATE:
        weights = tl.where(live, tl.sigmoid(met + tl.load(shift)), 0.0)
        weights = weights / (tl.sum(weights, 0) + 1e-8)
    else:
        weights = softmax(met, live, 0)
    tl.store(out + pair * S + k, tl.sum(own * weights[:, None], 0).to(out.dtype.element_ty))
