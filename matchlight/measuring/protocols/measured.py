"""What a protocol measured: its report, and the values of each query behind it, for intervals and tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matchlight.core import BadInput
from matchlight.measuring.metrics import NOTHING, Figures, intervals
from matchlight.measuring.metrics.arrays import Array
from matchlight.measuring.metrics.sampling import LEVEL, RESAMPLES, Path
from matchlight.measuring.protocols.reports import Report

SIDES = ("i2t", "t2i")
DRAWN = "pictures with all their captions; the gallery stays whole"


class Unfit(BadInput):
    """This data is not what a protocol asks for; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A report and the figures in it that are means over queries."""

    report: Report
    figures: Figures

    @property
    def main(self) -> tuple[str, Path]:
        """The one figure a report is compared by: its name, and where it stands."""
        for name, path in (("rsum", ("rsum",)), ("MAP", ("map", "mean")), ("PMRP", ("mean",))):
            if path in self.figures.sums:
                return name, path
        first = next(iter(self.figures.sums))
        return ".".join(first), first

    def with_intervals(self, *, resamples: int = RESAMPLES, seed: int = 0) -> Report:
        """The report with `ci`: 95% intervals of its figures, nested as they are."""
        settings = {"level": LEVEL, "resamples": resamples, "seed": seed, "drawn": DRAWN}
        return {**self.report, "ci": {**settings, **intervals(self.figures, resamples=resamples, seed=seed)}}


def hits(ranks: Array, at: int) -> Array:
    """Per query: 1 with a hit among the first `at`, 0 without, NaN where nothing is relevant."""
    return np.where(ranks == NOTHING, np.nan, ranks < at)
