"""COCO 1K in a line: rsum and the two average recalls, as they are, and as the papers' released code prints them.

The released evaluators keep a row of figures a fold and average the columns rightly, but the line they print at the end
reads wrong columns. Numbers copied from such a line are not what they say; here is what each would have printed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from matchlight.measuring.protocols.reports import RecallReport

Line = dict[str, float]
AT: tuple[Literal["r1", "r5", "r10"], ...] = ("r1", "r5", "r10")
SIDES: tuple[Literal["i2t", "t2i"], ...] = ("i2t", "t2i")


def summaries(folds: list[RecallReport]) -> dict[str, Line]:
    """By name: "ours", and the lines that SCAN's, NCR's and VSE++'s code print for the same folds."""
    average: Line = {side: float(np.mean([[fold[side][k] for k in AT] for fold in folds])) for side in SIDES}
    rsum = float(np.mean([fold["rsum"] for fold in folds]))
    return {
        "ours": {"rsum": rsum, **average},
        # SCAN, BFAN, VSRN, IMRAM and SGRAF: the row ends in (i2t average, t2i average, rsum); the line takes the first
        # times six for rsum, the second for the first and the third for the second
        "scan": {"rsum": 6 * average["i2t"], "i2t": average["t2i"], "t2i": rsum},
        "ncr": {"rsum": 6 * average["i2t"], **average},  # the averages put right, rsum not
        "vse++": {"rsum": 6 * rsum, **average},  # the row ends in (rsum, averages): six times too much
    }
