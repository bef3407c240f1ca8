"""Which differences between methods of a comparison are sure: each against the best of its column, picture by picture.

Two methods at one share of noise are compared by what each test picture, with its captions, adds to the measure (the
`shares` that a cell keeps), averaged over the seeds both have. The p-values of a column are corrected by Holm's rule.
They speak of other test pictures; how far another training run would differ is what the spread over seeds shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from matchlight.measuring.metrics import PairedTest, holm, paired

SHARES = "shares.npy"
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
NOTE = (
    "Stars: below the best of its column on these test pictures (paired permutation test over pictures with their "
    "captions, Holm's correction): * p < 0.05, ** p < 0.01, *** p < 0.001."
)


class Cell(TypedDict):
    """What is read of a finished cell: a method at one share of noise with one seed, and what was measured."""

    method: str
    noise: float | str
    seed: int
    measure: str
    value: float
    folder: NotRequired[str]


class Test(PairedTest):
    """A method against the best of its column."""

    measure: str
    noise: float | str
    method: str
    best: str
    seeds: int
    p_corrected: float
    mark: str


Shares = Callable[[Cell], np.ndarray | None]


def stars(p: float) -> str:
    """The mark of a p-value."""
    return next((mark for limit, mark in STARS if p < limit), "")


def shares_in(folder: Path) -> Shares:
    """The shares that a cell of this comparison has kept; None where it kept none."""

    def read(cell: Cell) -> np.ndarray | None:
        try:
            kept = np.load(folder / cell.get("folder", "") / SHARES, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return kept if kept.ndim == 1 and np.isfinite(kept).all() else None

    return read


def tests(cells: Sequence[Cell], noise: Sequence[float | str], shares: Shares) -> list[Test]:
    """Every method against the best of its measure and share of noise."""
    out = []
    for measure in dict.fromkeys(cell["measure"] for cell in cells):
        for share in noise:
            out += _column([c for c in cells if c["measure"] == measure and c["noise"] == share], shares)
    return out


def _column(cells: list[Cell], shares: Shares) -> list[Test]:
    by_method: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell["method"], {})[cell["seed"]] = cell
    if len(by_method) < 2:
        return []
    best = max(by_method, key=lambda name: float(np.mean([cell["value"] for cell in by_method[name].values()])))
    against = {name: _test(own, by_method[best], shares) for name, own in by_method.items() if name != best}
    done = {name: test for name, test in against.items() if test is not None}
    corrected = holm([test["p"] for _, test in done.values()])
    return [
        {
            "measure": cells[0]["measure"],
            "noise": cells[0]["noise"],
            "method": name,
            "best": best,
            "seeds": seeds,
            **test,
            "p_corrected": p,
            "mark": stars(p) if test["difference"] < 0 else "",
        }
        for (name, (seeds, test)), p in zip(done.items(), corrected, strict=True)
    ]


def _test(mine: dict[int, Cell], best: dict[int, Cell], shares: Shares) -> tuple[int, PairedTest] | None:
    """(seeds that both have, a paired test over them); None where shares are missing or of other pictures."""
    both = [(shares(mine[seed]), shares(best[seed])) for seed in sorted(mine.keys() & best.keys())]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    if not known or len({part.shape for pair in known for part in pair}) != 1:
        return None
    ours, theirs = (np.mean([pair[side] for pair in known], axis=0) for side in (0, 1))
    return len(known), paired(ours, theirs)
