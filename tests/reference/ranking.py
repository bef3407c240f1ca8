"""Retrieval figures the slow and obvious way: sort one query's list, walk down it, count."""

from __future__ import annotations

import math


def order(line, relevant, ties):
    """Places of one query's gallery, best first: wrong or poorer items first among equals, or larger index first."""
    if ties == "worst":
        return sorted(range(len(line)), key=lambda j: (-line[j], relevant[j]))
    return sorted(range(len(line)), key=lambda j: (-line[j], -j))


def listed(scores, relevance, ties):
    """Each query's relevance down its list."""
    rows = zip(scores.tolist(), relevance.tolist(), strict=True)
    return [[relevant[j] for j in order(line, relevant, ties)] for line, relevant in rows]


def ranks(scores, relevance, ties):
    """The rank from 0 of the first relevant item, -1 where there is none."""
    return [row.index(True) if True in row else -1 for row in listed(scores, relevance, ties)]


def mean_average_precision(scores, relevance, ties, at, empty):
    """mAP@at with the hits inside the list as divisor."""
    values = []
    for row in listed(scores, relevance, ties):
        hits, total = 0, 0.0
        for position, relevant in enumerate(row[:at], start=1):
            if relevant:
                hits += 1
                total += hits / position
        if hits:
            values.append(total / hits)
        elif empty == "zero":
            values.append(0.0)
    return sum(values) / len(values) if values else None


def at_r(scores, relevance, ties):
    """(mAP@R, R-precision), means over queries with anything relevant."""
    values, precisions = [], []
    for row in listed(scores, relevance, ties):
        r = sum(row)
        if r:
            values.append(sum(sum(row[: k + 1]) / (k + 1) for k in range(r) if row[k]) / r)
            precisions.append(sum(row[:r]) / r)
    return sum(values) / len(values), sum(precisions) / len(precisions)


def ndcg(scores, gains, ties, at):
    """NDCG@at with linear gain; zero where nothing can be gained."""
    values = []
    for line, gain in zip(scores.tolist(), gains.tolist(), strict=True):
        got = sum(gain[j] / math.log2(place + 2) for place, j in enumerate(order(line, gain, ties)[:at]))
        best = sum(value / math.log2(place + 2) for place, value in enumerate(sorted(gain, reverse=True)[:at]))
        values.append(got / best if best else 0.0)
    return sum(values) / len(values)


def pmrp(scores, rows, columns, ties):
    """Mean R-precision over Hamming distances 0, 1 and 2."""
    values = []
    for within in (0, 1, 2):
        near = [[sum(a != b for a, b in zip(x, y, strict=True)) <= within for y in columns] for x in rows]
        for line, relevant in zip(scores.tolist(), near, strict=True):
            r = sum(relevant)
            if r:
                values.append(sum(relevant[j] for j in order(line, relevant, ties)[:r]) / r)
    return sum(values) / len(values)


def cross_ranks(scores, owner, ties):
    """The worse of a pair's two ranks, picture ranks stretched to the range of caption ranks."""
    pictures, captions = scores.shape
    answers = []
    for c, i in enumerate(owner):
        own = scores[i, c]
        ahead = (lambda s, own=own: s > own) if ties == "official" else (lambda s, own=own: s >= own)
        r_i = 1 + sum(ahead(scores[k, c]) for k in range(pictures) if k != i)
        r_t = 1 + sum(ahead(scores[i, k]) for k in range(captions) if owner[k] != i)
        foreign = sum(other != i for other in owner)
        answers.append(max(1 + (r_i - 1) * foreign / max(1, pictures - 1), r_t))
    return answers
