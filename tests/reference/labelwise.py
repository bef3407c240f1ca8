"""Losses and metrics of label methods as plain loops, written from their definitions and nothing else."""

from __future__ import annotations

import itertools
import math

import numpy as np


def robust_clustering(z: np.ndarray, centres: np.ndarray, labels: list[int], temperature: float = 1.0) -> list[float]:
    """log(1 - p) of each item's own class, p a softmax over products with the centres (columns)."""
    out = []
    for row, label in zip(z, labels, strict=True):
        odds = [math.exp(float(row @ centres[:, k]) / temperature) for k in range(centres.shape[1])]
        out.append(math.log(1 - odds[label] / sum(odds)))
    return out


def contrastive(sides: list[np.ndarray], temperature: float = 1.0) -> float:
    """(1/N) sum over sides and samples of -log(own partners / everything but itself)."""
    count, total = len(sides[0]), 0.0
    for i, one in enumerate(sides):
        for j in range(count):
            mine, every = 0.0, 0.0
            for k, other in enumerate(sides):
                for n in range(count):
                    if (i, j) == (k, n):
                        continue
                    value = math.exp(float(one[j] @ other[n]) / temperature)
                    every += value
                    mine += value if n == j else 0.0
            total -= math.log(mine / every)
    return total / count


def dscmr(
    vectors: tuple[np.ndarray, np.ndarray],
    guesses: tuple[np.ndarray, np.ndarray],
    labels: np.ndarray,
    a: float,
    b: float,
) -> float:
    """J1 + a J2 + b J3, every mean a loop."""
    u, v = vectors
    n = len(u)
    first = sum(float(np.linalg.norm(guess[i] - labels[i])) for guess in guesses for i in range(n)) / n
    second = 0.0
    for x, y in ((u, u), (u, v), (v, v)):
        for i in range(n):
            for j in range(n):
                g = 0.5 * float(x[i] @ y[j]) / max(float(np.linalg.norm(x[i]) * np.linalg.norm(y[j])), 1e-6)
                second += (math.log(1 + math.exp(g)) - float(labels[i] @ labels[j]) * g) / n**2
    third = sum(float(np.linalg.norm(u[i] - v[i])) for i in range(n)) / n
    return first + a * second + b * third


def quadruplets(x: np.ndarray, labels: list[int], near: float = 1.0, far: float = 0.5) -> float:
    """The mean of the positive hinges over every (anchor, positive, negative, second negative)."""

    def apart(i: int, j: int) -> float:
        return float(np.linalg.norm(x[i] - x[j]))

    values = []
    for a, p, n, m in itertools.product(range(len(x)), repeat=4):
        if a != p and labels[a] == labels[p] and len({labels[a], labels[n], labels[m]}) == 3:
            value = (apart(a, p) - apart(a, n) + near) + (apart(a, p) - apart(n, m) + far)
            if value > 0:
                values.append(value)
    return sum(values) / max(1, len(values))


def correlation(x: np.ndarray, y: np.ndarray, ridge: float, smooth: float) -> float:
    """Total correlation by symmetric inverse roots and the eigenvalues of T'T + smooth."""

    def inverse_root(s: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(s)
        return vectors @ np.diag(values**-0.5) @ vectors.T

    x, y = x - x.mean(0), y - y.mean(0)
    sxx, syy = (a.T @ a / (len(a) - 1) + ridge * np.eye(a.shape[1]) for a in (x, y))
    t = inverse_root(sxx) @ (x.T @ y / (len(x) - 1)) @ inverse_root(syy)
    return float(np.sqrt(np.linalg.eigvalsh(t.T @ t + smooth * np.eye(t.shape[1]))).sum())


def mean_average_precision(distance: np.ndarray, queries: list[int], gallery: list[int]) -> float:
    """The double loop of published label-retrieval code: one query after the other, one rank after the other."""
    values = []
    for row, label in zip(distance, queries, strict=True):
        order, hits, total = np.argsort(row, kind="stable"), 0, 0.0
        for rank, place in enumerate(order, 1):
            if gallery[place] == label:
                hits += 1
                total += hits / rank
        values.append(total / hits if hits else 0.0)
    return float(np.mean(values))
