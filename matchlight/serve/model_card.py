"""The figures of a model card: what a run measured of the model that was kept, each with a 95% interval.

A report that brings intervals of its own (`ci`) is told with those. Where it does not, a recall is a share of so many
pictures, and its interval is Wilson's (JASA 1927). Captions of a picture succeed and fail together, so for both ways
the pictures count as the number of trials: rather too wide than too narrow.
"""

from __future__ import annotations

import math
from typing import Any

WAYS = {"t2i": "pictures for words", "i2t": "captions for a picture"}
RECALLS = {"r1": "R@1", "r5": "R@5", "r10": "R@10"}
Z = 1.959964  # of 95%


def wilson(share: float, trials: int) -> tuple[float, float]:
    """The 95% interval of a share seen in so many trials."""
    middle = (share + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    reach = Z / (1 + Z * Z / trials) * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def figures(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Name, value and interval of each figure in a run's metrics.json; none where it measured nothing known."""
    report = metrics.get("val")
    if not isinstance(report, dict):
        return []
    known = report.get("ci") if isinstance(report.get("ci"), dict) else {}
    out = [*_recalls(report, known), *_means(report, known)]
    return [one for one in out if one["value"] is not None]


def _recalls(report: dict[str, Any], known: Any) -> list[dict[str, Any]]:
    out, trials = [], report.get("pictures")
    for way, told in WAYS.items():
        own = report.get(way)
        if not isinstance(own, dict):
            continue
        for name, shown in RECALLS.items():
            value, ends = _number(own.get(name)), _ends(known, way, name)
            if value is not None and ends is None and isinstance(trials, int) and trials > 0:
                ends = [100 * end for end in wilson(min(1.0, max(0.0, value / 100)), trials)]
            out.append({"name": f"{told}, {shown}", "value": value, "interval": ends, "unit": "%"})
    return out


def _means(report: dict[str, Any], known: Any) -> list[dict[str, Any]]:
    """Mean average precision by label, both ways, as a percentage."""
    own, out = report.get("map"), []
    if not isinstance(own, dict):
        return []
    for way, told in WAYS.items():
        value, ends = _number(own.get(way)), _ends(known, "map", way)
        scaled = None if value is None else 100 * value
        between = None if ends is None else [100 * end for end in ends]
        out.append({"name": f"{told}, mean average precision", "value": scaled, "interval": between, "unit": "%"})
    return out


def _ends(known: Any, *path: str) -> list[float] | None:
    for name in path:
        known = known.get(name) if isinstance(known, dict) else None
    both = [_number(end) for end in known] if isinstance(known, list) and len(known) == 2 else []
    return [end for end in both if end is not None] if len(both) == 2 and None not in both else None


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if plain else None
