"""Cosines with attended vectors, fused behind one matrix product (Triton).

The products of all regions with all words are one large matrix product, written to memory a block at a time. A program
then reads a tile of it that holds whole captions and whole pictures, and leaves one number a pair: clipping,
normalisation, softmax, gate, dot product, the attended vector's length from a Gram matrix, cosine, aggregate. Nothing
in between reaches memory. Two forms: words look at regions (tile: some captions of one picture), regions look at words
(tile: some pictures of one caption).

Only imported where Triton is: see `matchlight.scoring.kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _clip(x, NORM: tl.constexpr):
    if NORM == "clipped_l2norm" or NORM == "clipped":
        x = tl.maximum(x, 0.1 * x)
    return x


@triton.jit
def _gate(a, count, AXIS: tl.constexpr, GATE: tl.constexpr):
    """BFAN's hard gate along AXIS; a query that keeps nothing sees nothing."""
    if GATE == "equal":
        keep = a * count > tl.expand_dims(tl.sum(a, AXIS), AXIS)
    else:
        root = tl.sqrt(a)
        keep = a * tl.expand_dims(tl.sum(root, AXIS), AXIS) > tl.expand_dims(tl.sum(a * root, AXIS), AXIS)
    return tl.where(keep, a, 0.0)


@triton.jit
def _rates(square, temperature, NORM: tl.constexpr):
    """What clipped products are multiplied with to be exponents of two; `square` is the sum of their squares."""
    rate = temperature * 1.4426950408889634  # exp(x) is two to the power of x log2(e)
    if NORM == "clipped_l2norm" or NORM == "l2norm":
        return rate / (tl.sqrt(square) + 1e-8)
    return tl.zeros_like(square) + rate


@triton.jit
def _weights(x, real, AXIS: tl.constexpr, MASKED: tl.constexpr):
    """Two to the power of x, the largest 1 along AXIS: a softmax but for its sum, which no cosine sees."""
    x = tl.where(real, x, -1e30)
    e = tl.exp2(x - tl.expand_dims(tl.max(x, AXIS), AXIS))
    return tl.where(real, e, 0.0) if MASKED else e  # unless all is masked, what is not real is 0 already


@triton.jit
def _square_length(a, gram, AXIS: tl.constexpr, DOT: tl.constexpr):
    """a G a of each query, which is the square of the length of what it saw."""
    weights = a.to(tl.float16) if DOT == "fp16" else a
    of = gram.to(tl.float16) if DOT == "fp16" else gram
    how: tl.constexpr = "tf32" if DOT == "fp16" else DOT
    met = tl.dot(weights, of, input_precision=how) if AXIS == 1 else tl.dot(of, weights, input_precision=how)
    return tl.maximum(tl.sum(met * a, AXIS), 0.0)


@triton.jit
def _aggregate(cos, real, lse, AGGREGATE: tl.constexpr):
    """(A, B) cosines -> (A,): over the real ones of each row."""
    if AGGREGATE == "max":
        return tl.max(tl.where(real, cos, -1e30), 1)
    if AGGREGATE == "lse":
        x = tl.where(real, lse * cos, -1e30)
        top = tl.max(x, 1)
        return (top + tl.log(tl.sum(tl.exp(x - tl.expand_dims(top, 1)), 1))) / lse
    total = tl.sum(tl.where(real, cos, 0.0), 1)
    if AGGREGATE == "mean":
        total = total / tl.maximum(tl.sum(real.to(tl.float32), 1), 1.0)
    return total


@triton.jit
def _regions_real(real, picture, r, inside, R: tl.constexpr, MASKED: tl.constexpr):
    if MASKED:
        return inside & (tl.load(real + picture * R + r, mask=inside, other=0) != 0)
    return inside


@triton.jit
def word_attention(
    seen, region_real, temperature,
    C: tl.constexpr, L: tl.constexpr, RP: tl.constexpr, NORM: tl.constexpr, GATE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """(C captions x L words, RP regions) products -> weights of the regions for each word, the largest 1."""
    x = tl.reshape(_clip(seen, NORM), (C, L, RP))
    rate = _rates(tl.sum(x * x, 1), temperature, NORM)  # over the words of each caption
    a = _weights(tl.reshape(x * tl.expand_dims(rate, 1), (C * L, RP)), region_real[None, :], 1, MASKED)
    if GATE != "none":
        a = _gate(a, tl.sum(region_real.to(tl.float32), 0), 1, GATE)
    return a


# Numbers that change from block to block are not worth a compilation each.
@triton.jit(do_not_specialize=["inside", "columns"], do_not_specialize_on_alignment=["size", "out"])
def words_look(
    s, gram, real, size, captions, starts, counts, out,
    inside, wide, columns, temperature, lse,
    R: tl.constexpr, RP: tl.constexpr, L: tl.constexpr, C: tl.constexpr, TURNS: tl.constexpr,
    NORM: tl.constexpr, AGGREGATE: tl.constexpr, GATE: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One picture, TURNS times C captions of at most L words.

    s (words, pictures * R), gram (pictures, RP, RP) with zeros where it is padded, out (pictures, T).
    """
    picture = tl.program_id(0)
    r = tl.arange(0, RP)
    region_real = _regions_real(real, picture, r, r < R, R, MASKED)
    g = tl.load(gram + picture.to(tl.int64) * RP * RP + r[:, None] * RP + r[None, :])
    row = tl.arange(0, C * L)
    for turn in range(0, TURNS):
        first = (tl.program_id(1) * TURNS + turn) * C
        slot = first + row // L
        caption = tl.load(captions + slot, mask=slot < inside, other=0)
        word = tl.load(starts + caption) + row % L
        word_real = (slot < inside) & (row % L < tl.load(counts + caption))
        place = s + word.to(tl.int64)[:, None] * wide + (picture * R + r)[None, :]
        seen = tl.load(place, mask=word_real[:, None] & region_real[None, :], other=0.0).to(tl.float32)
        a = word_attention(seen, region_real, temperature, C, L, RP, NORM, GATE, MASKED)
        length = tl.sqrt(_square_length(a, g, 1, DOT))
        own = tl.load(size + word, mask=word_real, other=1.0)
        cos = tl.sum(a * seen, 1) / tl.maximum(length * own, 1e-8)
        score = _aggregate(tl.reshape(cos, (C, L)), tl.reshape(word_real, (C, L)), lse, AGGREGATE)
        slot = first + tl.arange(0, C)
        column = tl.load(captions + slot, mask=slot < inside, other=0)
        tl.store(out + picture.to(tl.int64) * columns + column, score, mask=slot < inside)


@triton.jit(do_not_specialize=["pictures", "columns"], do_not_specialize_on_alignment=["size", "out"])
def regions_look(
    s, gram, real, size, captions, starts, counts, out,
    pictures, wide, columns, temperature, lse,
    R: tl.constexpr, RP: tl.constexpr, L: tl.constexpr, P: tl.constexpr, TURNS: tl.constexpr,
    NORM: tl.constexpr, AGGREGATE: tl.constexpr, GATE: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One caption of at most L words, TURNS times P pictures. gram (captions here, L, L); size of the regions."""
    slot = tl.program_id(1)
    caption = tl.load(captions + slot)
    count = tl.load(counts + caption)
    line = tl.arange(0, L)
    word_real = line < count
    lines = s + (tl.load(starts + caption) + line).to(tl.int64)[:, None] * wide
    g = tl.load(gram + slot.to(tl.int64) * L * L + line[:, None] * L + line[None, :])
    col = tl.arange(0, P * RP)
    r = col % RP
    for turn in range(0, TURNS):
        first = (tl.program_id(0) * TURNS + turn) * P
        picture = first + col // RP
        region_real = _regions_real(real, picture, r, (r < R) & (picture < pictures), R, MASKED)
        place = lines + (picture * R + r)[None, :]
        seen = tl.load(place, mask=word_real[:, None] & region_real[None, :], other=0.0).to(tl.float32)
        x = tl.reshape(_clip(seen, NORM), (L, P, RP))
        rate = _rates(tl.sum(x * x, 2), temperature, NORM)  # over the regions of each picture
        a = _weights(tl.reshape(x * tl.expand_dims(rate, 2), (L, P * RP)), word_real[:, None], 0, False)
        if GATE != "none":
            a = _gate(a, count.to(tl.float32), 0, GATE)
        length = tl.sqrt(_square_length(a, g, 0, DOT))
        own = tl.load(size + picture * R + r, mask=region_real, other=1.0)
        cos = tl.sum(a * seen, 0) / tl.maximum(length * own, 1e-8)
        score = _aggregate(tl.reshape(cos, (P, RP)), tl.reshape(region_real, (P, RP)), lse, AGGREGATE)
        row = first + tl.arange(0, P)
        tl.store(out + row.to(tl.int64) * columns + caption, score, mask=row < pictures)
