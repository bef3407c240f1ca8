"""The figures of a model card: what a run measured of the model that was kept, each with a 95% interval.

A report that brings intervals of its own (`ci`) is shown with those. Where it does not, a recall is a share of so many
pictures, and its interval is Wilson's (JASA 1927). Captions of a picture succeed and fail together, so for both ways
the pictures count as the number of trials: rather too wide than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

WAYS = {"t2i": "pictures for words", "i2t": "captions for a picture"}
RECALLS = {"r1": "R@1", "r5": "R@5", "r10": "R@10"}
Z = 1.959964  # of 95%


@dataclass(frozen=True)
class Figure:
    """A measured figure and, where known, its 95% interval."""

    name: str
    value: float
    interval: list[float] | None
    unit: str


def wilson(share: float, trials: int) -> tuple[float, float]:
    """The 95% interval of a share seen in so many trials."""
    middle = (share + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    reach = Z / (1 + Z * Z / trials) * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def figures(metrics: Mapping[str, object]) -> list[Figure]:
    """Name, value and interval of each figure in a run's metrics.json; none where it measured nothing known."""
    report = metrics.get("val")
    if not isinstance(report, dict):
        return []
    return [*_recalls(report), *_means(report)]


def _recalls(report: Mapping[str, object]) -> list[Figure]:
    """Recalls of both ways; without an interval of its own, one gets Wilson's."""
    figures, trials = [], report.get("pictures")
    for way, name in WAYS.items():
        for key, shown in RECALLS.items():
            value, ends = _number(_at(report, way, key)), _interval(report, way, key)
            if value is None:
                continue
            if ends is None and isinstance(trials, int) and trials > 0:
                ends = [100 * end for end in wilson(min(1.0, max(0.0, value / 100)), trials)]
            figures.append(Figure(name=f"{name}, {shown}", value=value, interval=ends, unit="%"))
    return figures


def _means(report: Mapping[str, object]) -> list[Figure]:
    """Mean average precision by class label, both ways, as a percentage."""
    figures = []
    for way, name in WAYS.items():
        value, ends = _number(_at(report, "map", way)), _interval(report, "map", way)
        if value is not None:
            between = None if ends is None else [100 * end for end in ends]
            shown = f"{name}, mean average precision"
            figures.append(Figure(name=shown, value=100 * value, interval=between, unit="%"))
    return figures


def _interval(report: Mapping[str, object], *path: str) -> list[float] | None:
    """The two ends that the report gives for a figure; None where it gives none."""
    known = _at(report, "ci", *path)
    ends = [_number(end) for end in known] if isinstance(known, list) and len(known) == 2 else []
    numbers = [end for end in ends if end is not None]
    return numbers if len(numbers) == 2 else None


def _at(value: object, *path: str) -> object:
    """What stands there in nested dicts; None where nothing does."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
