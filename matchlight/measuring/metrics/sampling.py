"""How sure a figure is: intervals by resampling pictures, and a paired test between two sets of scores.

The unit that is drawn is a picture *with all its captions*: captions of one picture are hit or missed together, so
drawing queries one by one would make every figure look surer than it is. The gallery stays whole; what is asked is how
the figure would move with other queries, not with another gallery or another training run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics.arrays import Numbers, Places, Values, as_array

RESAMPLES, FLIPS, LEVEL, SEED = 1000, 10_000, 0.95, 0
CHUNK = 4 << 20  # numbers drawn at a time
Path = tuple[str, ...]  # where a figure stands in its report: ("i2t", "r1")
Intervals = dict[str, "list[float] | Intervals"]  # [low, high] of figures, nested as in their report


class PairedTest(TypedDict):
    """How much higher one figure is than another on the same pictures, and how sure that is."""

    difference: float
    interval: list[float]
    p: float


@dataclass(frozen=True, eq=False)
class Sample:
    """A mean over queries: a value each (NaN: not asked), and the picture that each stands and falls with."""

    values: Values
    unit: Places

    def totals(self, units: int) -> tuple[Values, Values]:
        """Of each picture: the sum of its queries' values, and how many were asked."""
        asked = ~np.isnan(self.values)
        total = np.bincount(self.unit[asked], self.values[asked], units)
        count = np.bincount(self.unit[asked], minlength=units)
        return np.asarray(total, np.float64), np.asarray(count, np.float64)


@dataclass(frozen=True, eq=False)
class Figures:
    """The figures of a report as weighted sums of means: rsum is a sum of six, a figure of folds the mean of theirs."""

    units: int
    samples: dict[str, Sample] = field(default_factory=dict)
    sums: dict[Path, dict[str, float]] = field(default_factory=dict)  # the weight of each sample in a figure

    def add(self, values: Numbers, unit: Numbers, into: dict[Path, float]) -> None:
        """A mean over queries, and its weight in each of the figures it is, or is part of."""
        name = str(len(self.samples))
        self.samples[name] = Sample(
            as_array(values).astype(np.float64, copy=False), as_array(unit).astype(np.int64, copy=False)
        )
        for path, weight in into.items():
            self.sums.setdefault(path, {})[name] = weight

    def value(self, path: Path) -> float:
        """The figure itself."""
        return float(sum(weight * np.nanmean(self.samples[name].values) for name, weight in self.sums[path].items()))

    def shares(self, path: Path) -> Values:
        """How much each picture, with its captions, adds to a figure; they sum up to it."""
        if path not in self.sums:
            raise BadInput(f"no figure {'.'.join(path)}; there are {', '.join('.'.join(p) for p in self.sums)}")
        out = np.zeros(self.units)
        for name, weight in self.sums[path].items():
            total, count = self.samples[name].totals(self.units)
            out += weight * total / max(1.0, count.sum())
        return out

    def resampled(self, *, resamples: int = RESAMPLES, seed: int = SEED) -> dict[Path, Values]:
        """Every figure under each of so many draws of pictures with replacement."""
        totals = [sample.totals(self.units) for sample in self.samples.values()]
        table = np.stack([column for both in totals for column in both], axis=1)  # (pictures, 2 x samples)
        drawn = _times_drawn(table, units=self.units, resamples=resamples, seed=seed)
        with np.errstate(invalid="ignore"):
            means = dict(zip(self.samples, (drawn[:, 0::2] / drawn[:, 1::2]).T, strict=True))
        return {path: sum(weight * means[name] for name, weight in sums.items()) for path, sums in self.sums.items()}  # type: ignore[misc]


def _times_drawn(table: Values, *, units: int, resamples: int, seed: int) -> Values:
    """(resamples, columns): the columns summed over the pictures of each draw."""
    rng, out = np.random.default_rng(seed), []
    step = max(1, CHUNK // max(1, units))
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        draw = rng.integers(0, units, (count, units)) + units * np.arange(count)[:, None]
        times = np.bincount(draw.ravel(), minlength=count * units).reshape(count, units)
        out.append(times.astype(np.float64) @ table)
    return np.concatenate(out)


def interval(draws: Numbers, *, level: float = LEVEL) -> list[float]:
    """The middle share of some draws: [low, high]."""
    low, high = np.nanquantile(as_array(draws).astype(np.float64, copy=False), [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]


def intervals(figures: Figures, *, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = SEED) -> Intervals:
    """[low, high] of every figure, nested as in its report."""
    out: Intervals = {}
    for path, draws in figures.resampled(resamples=resamples, seed=seed).items():
        place = out
        for name in path[:-1]:
            inside = place.setdefault(name, {})
            assert isinstance(inside, dict)
            place = inside
        place[path[-1]] = interval(draws, level=level)
    return out


def paired(
    mine: Numbers, other: Numbers, *, flips: int = FLIPS, resamples: int = RESAMPLES, seed: int = SEED
) -> PairedTest:
    """Is one figure better than another on the same pictures? Both are given as shares (see `Figures.shares`).

    `p` is two-sided, from swapping the two at random picture by picture (with its captions); `interval` is that of the
    difference, from drawing pictures.
    """
    ours, theirs = as_array(mine).astype(np.float64, copy=False), as_array(other).astype(np.float64, copy=False)
    if ours.shape != theirs.shape or ours.ndim != 1:
        raise BadInput(f"a paired test compares the same pictures; {len(ours)} and {len(theirs)} were given")
    apart = ours - theirs
    seen = abs(float(apart.sum()))
    slack = 1e-9 * (float(np.abs(apart).sum()) + 1e-300)  # sums of the same numbers in another order are equal
    as_far = int(sum((np.abs(part) >= seen - slack).sum() for part in _swapped(apart, flips, seed)))
    draws = _times_drawn(apart[:, None], units=len(apart), resamples=resamples, seed=seed)[:, 0]
    return {"difference": float(apart.sum()), "interval": interval(draws), "p": (1 + as_far) / (1 + flips)}


def _swapped(apart: Values, flips: int, seed: int) -> Iterator[Values]:
    """The difference with the two results of each picture swapped or not, at random, so many times."""
    rng, size = np.random.default_rng(seed), len(apart)
    step = max(1, CHUNK // max(1, size))
    for start in range(0, flips, step):
        count = min(step, flips - start)
        bits = np.unpackbits(np.frombuffer(rng.bytes((count * size + 7) // 8), np.uint8))[: count * size]
        yield 2 * (bits.reshape(count, size).astype(np.float64) @ apart) - apart.sum()


def holm(p: list[float]) -> list[float]:
    """p-values of several tests, corrected so that the chance of any false alarm stays what one test would have."""
    order, out, worst = np.argsort(p, kind="stable"), [0.0] * len(p), 0.0
    for place, number in enumerate(order.tolist()):
        worst = max(worst, min(1.0, (len(p) - place) * p[number]))
        out[number] = worst
    return out
