"""The pass behind the product on a CPU, compiled by numba: products of one group of queries in, one score a pair out.

Queries stand side by side: column q * queries + k of the products is member q of query k, `queries` being how many
there are. Whatever is summed, over a query's members, over a context's members or with the Gram matrix, is then summed
down columns, so every inner loop runs over neighbours and fills a vector register, and what belongs to one context
stays in the nearest caches.
All is float32; sums may be reordered, but numbers are not taken to be finite.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit

F = np.float32
LOG2E, HALF, EPS = F(1.4426950408889634), F(0.5), F(1e-8)
LOWEST = F(-126)  # the least exponent of a normal number
FAR = F(-10000)  # below every cosine
MEAN, SUM, MAX, LSE = range(4)
NONE, EQUAL, PROB = range(3)
STEP = 4  # rows of a Gram matrix are gone through in fours, with zeros behind the last
fast = partial(njit, nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})


@fast(inline="always")
def power_of_two(x):
    """2^x to 1e-7: the whole part goes into the exponent's bits, a polynomial does the rest."""
    x = x if x > LOWEST else LOWEST
    whole = np.floor(x + HALF)
    f = x - whole
    p = F(1.5353362e-4) * f + F(1.3398874e-3)
    p = p * f + F(9.6184374e-3)
    p = p * f + F(5.5503325e-2)
    p = p * f + F(2.4022648e-1)
    p = p * f + F(6.9314720e-1)
    p = p * f + F(1.0)
    return p * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@fast()
def scale(s, queries, temperature, slope, unit, out):
    """out (members, queries): what makes an exponent of 2 of a clipped product, by the norm over a query's members."""
    for m in range(len(s)):
        norm = out[m]
        norm[:] = 0
        for q in range(s.shape[1] // queries):
            row = s[m, q * queries : (q + 1) * queries]
            for k in range(queries):
                x = row[k] if row[k] > 0 else slope * row[k]
                norm[k] += x * x
        for k in range(queries):
            norm[k] = temperature * LOG2E / (np.sqrt(norm[k]) + EPS if unit else F(1))


@fast()
def weigh(s, queries, slope, scales, bounded, top, out):
    """out (members, columns): attention, in any positive scale; top: each column's largest exponent, unless bounded."""
    top[:] = 0 if bounded else -np.inf
    for turn in range(int(bounded), 2):  # first the largest exponents, then the powers
        for m in range(len(s)):
            factor = scales[m]
            for q in range(s.shape[1] // queries):
                part = slice(q * queries, (q + 1) * queries)
                row, weight, high = s[m, part], out[m, part], top[part]
                for k in range(queries):
                    x = (row[k] if row[k] > 0 else slope * row[k]) * factor[k]
                    if turn == 0:
                        high[k] = x if x > high[k] else high[k]
                    else:
                        weight[k] = power_of_two(x - high[k])


@fast()
def focus(weights, gate, total, mean):
    """BFAN's gate: a weight no larger than the mean of its column (PROB: the mean weighted by roots) becomes 0."""
    total[:] = 0
    mean[:] = 0
    for m in range(len(weights)):
        a = weights[m]
        for c in range(len(a)):
            root = np.sqrt(a[c]) if gate == PROB else F(1)
            total[c] += root
            mean[c] += root * a[c]
    for m in range(len(weights)):
        a = weights[m]
        for c in range(len(a)):
            a[c] = a[c] if total[c] * a[c] > mean[c] else F(0)


@fast()
def agree(s, weights, gram, seen, dot, square):
    """dot = sum a s and square = a G a of every column; `gram` as `cpu_attention.folded`, `seen` one row of space."""
    dot[:] = 0
    square[:] = 0
    for m in range(len(s)):
        seen[:] = 0
        for p in range(0, m + 1, STEP):
            g0, g1, g2, g3 = gram[m, p], gram[m, p + 1], gram[m, p + 2], gram[m, p + 3]
            w0, w1, w2, w3 = weights[p], weights[p + 1], weights[p + 2], weights[p + 3]
            for c in range(len(seen)):
                seen[c] += g0 * w0[c] + g1 * w1[c] + g2 * w2[c] + g3 * w3[c]
        a, row = weights[m], s[m]
        for c in range(len(seen)):
            square[c] += a[c] * seen[c]
        for c in range(len(seen)):
            dot[c] += a[c] * row[c]


@fast()
def join(dot, square, size, real, aggregate, sharp, out):
    """out (queries,): one number from the cosines of each query's real members."""
    queries = len(out)
    count = np.zeros(queries, np.float32)
    out[:] = FAR if aggregate == MAX else F(0)
    for q in range(len(dot) // queries):
        for k in range(queries):
            c = q * queries + k
            norm = np.sqrt(F(0) if square[c] < 0 else square[c]) * size[c]
            x = F(0) if norm <= EPS else dot[c] / norm  # what is no number stays none
            if aggregate == MAX:
                out[k] = x if real[c] > 0 and x > out[k] else out[k]
            else:
                out[k] += real[c] * (power_of_two(sharp * LOG2E * (x - F(1))) if aggregate == LSE else x)
            count[k] += real[c]
    for k in range(queries):
        if aggregate == MEAN:
            out[k] /= max(count[k], F(1))
        elif aggregate == LSE:
            out[k] = np.log(out[k]) / sharp + F(1) if count[k] > 0 else FAR


@fast()
def score(s, offsets, grams, size, real, temperature, slope, unit, bounded, gate, aggregate, sharp, out):
    """out (contexts, queries) from the products s of one group with members, rows offsets[n] to offsets[n + 1]."""
    queries, columns, most = out.shape[1], s.shape[1], grams.shape[1]
    scales, weights = np.empty((most, queries), np.float32), np.zeros((most, columns), np.float32)
    dot, square, seen = np.empty(columns, np.float32), np.empty(columns, np.float32), np.empty(columns, np.float32)
    for n in range(len(out)):
        tile = s[offsets[n] : offsets[n + 1]]
        scale(tile, queries, temperature, slope, unit, scales)
        weigh(tile, queries, slope, scales, bounded, seen, weights)
        if gate != NONE:
            focus(weights[: len(tile)], gate, dot, square)
        weights[len(tile) :] = 0
        agree(tile, weights, grams[n], seen, dot, square)
        join(dot, square, size, real, aggregate, sharp, out[n])
