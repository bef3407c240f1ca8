"""Which methods of a comparison can be told apart: each against the best of its column, picture by picture.

Two methods at one share of noise are compared by what each test picture, with its captions, adds to the measure (the
`shares` that a cell keeps), averaged over the seeds both have. The p-values of a column are corrected by Holm's rule.
They speak of other test pictures; how far another training run would differ is what the spread over seeds shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from matchlight.measuring.metrics import holm, paired

SHARES = "shares.npy"
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
NOTE = (
    "Stars: below the best of its column on these test pictures (paired permutation test over pictures with their "
    "captions, Holm's correction): * p < 0.05, ** p < 0.01, *** p < 0.001."
)
Line = dict[str, Any]
Shares = Callable[[Line], np.ndarray | None]


def stars(p: float) -> str:
    """The mark of a p-value."""
    return next((mark for limit, mark in STARS if p < limit), "")


def shares_in(folder: Path) -> Shares:
    """The shares that a cell of this comparison has kept; None where it kept none."""

    def read(cell: Line) -> np.ndarray | None:
        try:
            found = np.load(folder / str(cell.get("folder", "")) / SHARES, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return found if found.ndim == 1 and np.isfinite(found).all() else None

    return read


def tests(results: Line, shares: Shares) -> list[Line]:
    """Every method against the best of its measure and share of noise."""
    out = []
    for measure in dict.fromkeys(cell["measure"] for cell in results["cells"]):
        for noise in results["noise"]:
            cells = [c for c in results["cells"] if c["measure"] == measure and c["noise"] == noise]
            out += _column(cells, shares)
    return out


def _column(cells: list[Line], shares: Shares) -> list[Line]:
    by_method: dict[str, dict[int, Line]] = {}
    for cell in cells:
        by_method.setdefault(cell["method"], {})[cell["seed"]] = cell
    if len(by_method) < 2:
        return []
    best = max(by_method, key=lambda name: float(np.mean([cell["value"] for cell in by_method[name].values()])))
    found = []
    for name, own in by_method.items():
        test = None if name == best else _test(own, by_method[best], shares)
        if test is not None:
            first = cells[0]
            found.append({"measure": first["measure"], "noise": first["noise"], "method": name, "best": best, **test})
    for one, corrected in zip(found, holm([one["p"] for one in found]), strict=True):
        one["p_corrected"] = corrected
        one["mark"] = stars(corrected) if one["difference"] < 0 else ""
    return found


def _test(mine: dict[int, Line], best: dict[int, Line], shares: Shares) -> Line | None:
    """A paired test over the seeds that both have; None where shares are missing or of other pictures."""
    both = [(shares(mine[seed]), shares(best[seed])) for seed in sorted(mine.keys() & best.keys())]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    if not known or len({part.shape for pair in known for part in pair}) != 1:
        return None
    ours, theirs = (np.mean([pair[side] for pair in known], axis=0) for side in (0, 1))
    return {"seeds": len(known), **paired(ours, theirs)}
