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
def _gate_sums(a, count, AXIS: tl.constexpr, GATE: tl.constexpr):
    """BFAN's hard gate along AXIS keeps a weight that is above right / left; both are sums over what is looked at."""
    if GATE == "equal":
        left, right = tl.zeros_like(tl.sum(a, AXIS)) + count, tl.sum(a, AXIS)
    else:
        root = tl.sqrt(a)
        left, right = tl.sum(root, AXIS), tl.sum(a * root, AXIS)
    return left, right


@triton.jit
def _gated(a, left, right, AXIS: tl.constexpr):
    """What the gate keeps; a query that keeps nothing sees nothing."""
    return tl.where(a * tl.expand_dims(left, AXIS) > tl.expand_dims(right, AXIS), a, 0.0)


@triton.jit
def _rates(square, temperature, NORM: tl.constexpr):
    """What clipped products are multiplied with to be exponents of two; `square` is the sum of their squares."""
    rate = temperature * 1.4426950408889634  # exp(x) is two to the power of x log2(e)
    if NORM == "clipped_l2norm" or NORM == "l2norm":
        return rate / (tl.sqrt(square) + 1e-8)
    return tl.zeros_like(square) + rate


@triton.jit
def _weights(x, real, top, AXIS: tl.constexpr, PADDED: tl.constexpr):
    """Two to the power of x, 1 at the top: a softmax but for its sum, which no cosine sees."""
    e = tl.exp2(x - tl.expand_dims(top, AXIS))
    return tl.where(real, e, 0.0) if PADDED else e


@triton.jit
def _met(a, gram, AXIS: tl.constexpr, DOT: tl.constexpr):
    """Weights times a Gram matrix, which is symmetric."""
    weights = a.to(tl.float16) if DOT == "fp16" else a
    of = gram.to(tl.float16) if DOT == "fp16" else gram
    how: tl.constexpr = "tf32" if DOT == "fp16" else DOT
    return tl.dot(weights, of, input_precision=how) if AXIS == 1 else tl.dot(of, weights, input_precision=how)


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
def _powers(
    seen, region_real, temperature,
    C: tl.constexpr, L: tl.constexpr, W: tl.constexpr, NORM: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """(C captions x L words, W regions) products -> exponents of two."""
    x = tl.reshape(_clip(seen, NORM), (C, L, W))
    rate = _rates(tl.sum(x * x, 1), temperature, NORM)  # over the words of each caption
    x = tl.reshape(x * tl.expand_dims(rate, 1), (C * L, W))
    return tl.where(region_real[None, :], x, -1e30) if PADDED else x


@triton.jit
def word_attention(
    seen, region_real, rest, rest_real, temperature,
    C: tl.constexpr, L: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, R: tl.constexpr,
    NORM: tl.constexpr, GATE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Products with the first HEAD regions, and with the rest in TAIL places -> weights of both, the largest 1.

    Regions come in two tiles, since 36 of them fill one of 32 and a small one, but only half of one of 64.
    """
    x = _powers(seen, region_real, temperature, C, L, HEAD, NORM, MASKED or HEAD > R)
    top = tl.max(x, 1)
    if TAIL:
        y = _powers(rest, rest_real, temperature, C, L, TAIL, NORM, True)
        top = tl.maximum(top, tl.max(y, 1))
    a = _weights(x, region_real[None, :], top, 1, MASKED)
    b = _weights(y, rest_real[None, :], top, 1, MASKED) if TAIL else rest
    if GATE != "none":
        left, right = _gate_sums(a, tl.sum(region_real.to(tl.float32), 0), 1, GATE)
        if TAIL:
            more_left, more_right = _gate_sums(b, tl.sum(rest_real.to(tl.float32), 0), 1, GATE)
            left, right = left + more_left, right + more_right
            b = _gated(b, left, right, 1)
        a = _gated(a, left, right, 1)
    return a, b


@triton.jit
def word_grams(gram, picture, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """The three parts of one picture's (HEAD + TAIL) square Gram matrix: head, twice head with tail, tail."""
    wide: tl.constexpr = HEAD + TAIL
    r = tl.arange(0, HEAD)
    here = gram + picture.to(tl.int64) * wide * wide
    whole = tl.load(here + r[:, None] * wide + r[None, :])
    mixed, last = whole, whole
    if TAIL:
        t = HEAD + tl.arange(0, TAIL)
        mixed = 2 * tl.load(here + r[:, None] * wide + t[None, :])
        last = tl.load(here + t[:, None] * wide + t[None, :])
    return whole, mixed, last


@triton.jit
def word_lengths(a, b, whole, mixed, last, TAIL: tl.constexpr, DOT: tl.constexpr):
    """The length of what each word saw: the root of w G w for its weights w, of which a and b are two parts."""
    square = tl.sum(_met(a, whole, 1, DOT) * a, 1)
    if TAIL:
        square += tl.sum((_met(a, mixed, 1, DOT) + _met(b, last, 1, DOT)) * b, 1)
    return tl.sqrt(tl.maximum(square, 0.0))


@triton.jit
def words_seen(
    s, real, word, word_real, picture, wide,
    FIRST: tl.constexpr, W: tl.constexpr, R: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Products of these words with regions FIRST to FIRST + W of a picture, and which of those are real."""
    r = FIRST + tl.arange(0, W)
    region_real = _regions_real(real, picture, r, r < R, R, MASKED)
    place = s + word.to(tl.int64)[:, None] * wide + (picture * R + r)[None, :]
    return tl.load(place, mask=word_real[:, None] & region_real[None, :], other=0.0).to(tl.float32), region_real


# Numbers that change from block to block are not worth a compilation each.
@triton.jit(do_not_specialize=["inside", "columns"], do_not_specialize_on_alignment=["size", "out"])
def words_look(
    s, gram, real, size, captions, starts, counts, out,
    inside, wide, columns, temperature, lse,
    R: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, L: tl.constexpr, C: tl.constexpr, TURNS: tl.constexpr,
    NORM: tl.constexpr, AGGREGATE: tl.constexpr, GATE: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One picture, TURNS times C captions of at most L words.

    s (words, pictures * R), gram (pictures, HEAD + TAIL squared) with zeros where it is padded, out (pictures, T).
    """
    picture = tl.program_id(0)
    whole, mixed, last = word_grams(gram, picture, HEAD, TAIL)
    row = tl.arange(0, C * L)
    for turn in range(0, TURNS):
        first = (tl.program_id(1) * TURNS + turn) * C
        slot = first + row // L
        caption = tl.load(captions + slot, mask=slot < inside, other=0)
        word = tl.load(starts + caption) + row % L
        word_real = (slot < inside) & (row % L < tl.load(counts + caption))
        seen, seen_real = words_seen(s, real, word, word_real, picture, wide, 0, HEAD, R, MASKED)
        rest, rest_real = seen, seen_real
        if TAIL:
            rest, rest_real = words_seen(s, real, word, word_real, picture, wide, HEAD, TAIL, R, MASKED)
        a, b = word_attention(seen, seen_real, rest, rest_real, temperature, C, L, HEAD, TAIL, R, NORM, GATE, MASKED)
        dot = tl.sum(a * seen, 1)
        if TAIL:
            dot += tl.sum(b * rest, 1)
        length = word_lengths(a, b, whole, mixed, last, TAIL, DOT)
        own = tl.load(size + word, mask=word_real, other=1.0)
        cos = dot / tl.maximum(length * own, 1e-8)
        score = _aggregate(tl.reshape(cos, (C, L)), tl.reshape(word_real, (C, L)), lse, AGGREGATE)
        slot = first + tl.arange(0, C)
        column = tl.load(captions + slot, mask=slot < inside, other=0)
        tl.store(out + picture.to(tl.int64) * columns + column, score, mask=slot < inside)


@triton.jit
def _pictures_seen(
    s, real, size, first, pictures, lines, word_real,
    FIRST: tl.constexpr, W: tl.constexpr, P: tl.constexpr, R: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A caption's products with regions FIRST to FIRST + W of P pictures, which are real, how long they are."""
    col = tl.arange(0, P * W)
    picture, r = first + col // W, FIRST + col % W
    region_real = _regions_real(real, picture, r, (r < R) & (picture < pictures), R, MASKED)
    place = lines + (picture * R + r)[None, :]
    seen = tl.load(place, mask=word_real[:, None] & region_real[None, :], other=0.0).to(tl.float32)
    return seen, region_real, tl.load(size + picture * R + r, mask=region_real, other=1.0)


@triton.jit
def _squares(seen, L: tl.constexpr, P: tl.constexpr, W: tl.constexpr, NORM: tl.constexpr):
    """(L, P) sums of squared products over the regions of each picture."""
    x = tl.reshape(_clip(seen, NORM), (L, P, W))
    return tl.sum(x * x, 2)


@triton.jit
def _region_cosines(
    seen, own, rate, word_real, count, g,
    L: tl.constexpr, P: tl.constexpr, W: tl.constexpr, NORM: tl.constexpr, GATE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """(P, W) cosines of regions with what they saw of a caption."""
    x = tl.reshape(tl.reshape(_clip(seen, NORM), (L, P, W)) * tl.expand_dims(rate, 2), (L, P * W))
    x = tl.where(word_real[:, None], x, -1e30)
    a = _weights(x, word_real[:, None], tl.max(x, 0), 0, False)
    if GATE != "none":
        left, right = _gate_sums(a, count.to(tl.float32), 0, GATE)
        a = _gated(a, left, right, 0)
    length = tl.sqrt(tl.maximum(tl.sum(_met(a, g, 0, DOT) * a, 0), 0.0))
    return tl.reshape(tl.sum(a * seen, 0) / tl.maximum(length * own, 1e-8), (P, W))


@triton.jit
def _aggregate_two(cos, real, more, more_real, lse, AGGREGATE: tl.constexpr):
    """What `_aggregate` gives for the columns of both."""
    if AGGREGATE == "mean":
        total = _aggregate(cos, real, lse, "sum") + _aggregate(more, more_real, lse, "sum")
        count = tl.sum(real.to(tl.float32), 1) + tl.sum(more_real.to(tl.float32), 1)
        return total / tl.maximum(count, 1.0)
    one, other = _aggregate(cos, real, lse, AGGREGATE), _aggregate(more, more_real, lse, AGGREGATE)
    if AGGREGATE == "max":
        return tl.maximum(one, other)
    if AGGREGATE == "lse":
        top = tl.maximum(one, other)
        return top + tl.log(tl.exp(lse * (one - top)) + tl.exp(lse * (other - top))) / lse
    return one + other


@triton.jit(do_not_specialize=["pictures", "columns"], do_not_specialize_on_alignment=["size", "out"])
def regions_look(
    s, gram, real, size, captions, starts, counts, out,
    pictures, wide, columns, temperature, lse,
    R: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, L: tl.constexpr, P: tl.constexpr, TURNS: tl.constexpr,
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
    for turn in range(0, TURNS):
        first = (tl.program_id(0) * TURNS + turn) * P
        seen, seen_real, own = _pictures_seen(s, real, size, first, pictures, lines, word_real, 0, HEAD, P, R, MASKED)
        square = _squares(seen, L, P, HEAD, NORM)
        if TAIL:
            rest, rest_real, rest_own = _pictures_seen(
                s, real, size, first, pictures, lines, word_real, HEAD, TAIL, P, R, MASKED
            )
            square += _squares(rest, L, P, TAIL, NORM)
        rate = _rates(square, temperature, NORM)  # over the regions of each picture
        cos = _region_cosines(seen, own, rate, word_real, count, g, L, P, HEAD, NORM, GATE, DOT)
        seen_real = tl.reshape(seen_real, (P, HEAD))
        if TAIL:
            more = _region_cosines(rest, rest_own, rate, word_real, count, g, L, P, TAIL, NORM, GATE, DOT)
            score = _aggregate_two(cos, seen_real, more, tl.reshape(rest_real, (P, TAIL)), lse, AGGREGATE)
        else:
            score = _aggregate(cos, seen_real, lse, AGGREGATE)
        row = first + tl.arange(0, P)
        tl.store(out + row.to(tl.int64) * columns + caption, score, mask=row < pictures)
