"""What a protocol finds: its report, and the values a query behind it, from which intervals and tests are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import NOTHING, Figures, intervals
from matchlight.measuring.metrics.relevance import Array
from matchlight.measuring.metrics.sampling import LEVEL, RESAMPLES, Path

SIDES = ("i2t", "t2i")
DRAWN = "pictures with all their captions; the gallery stays whole"


class Unfit(BadInput):
    """This data is not what a protocol asks for; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A report and the figures in it that are means over queries."""

    report: dict[str, Any]
    figures: Figures

    @property
    def main(self) -> tuple[str, Path]:
        """The one figure a report is compared by: its name, and where it stands."""
        for name, path in (("rsum", ("rsum",)), ("MAP", ("map", "mean")), ("PMRP", ("mean",))):
            if path in self.figures.sums:
                return name, path
        first = next(iter(self.figures.sums))
        return ".".join(first), first

    def with_intervals(self, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Any]:
        """The report with `ci`: 95% intervals of its figures, nested as they are."""
        found = intervals(self.figures, resamples=resamples, seed=seed)
        said = {"level": LEVEL, "resamples": resamples, "seed": seed, "drawn": DRAWN}
        return {**self.report, "ci": {**said, **found}}


def hits(ranks: Array, at: int) -> Array:
    """1 a query with a hit among the first `at`, 0 without, NaN where nothing was asked."""
    return np.where(ranks == NOTHING, np.nan, ranks < at)
