"""What the exhibits of MRL share: the methods it is compared with, and training labels that are wrong on purpose."""

from __future__ import annotations

from matchlight.data.noise import flip_labels
from matchlight.pairs import Pairs
from matchlight.reproduce.exhibits import MethodSetup, Work

PAPER = "Learning Cross-Modal Retrieval with Noisy Labels (CVPR 2021)"
QUICK = {"epochs": 10}
CROSS_ENTROPY = MethodSetup("cross-entropy", "mrl", {"loss": "ce", "beta": 1.0}, QUICK)  # the paper's deep-SM
MRL = MethodSetup("MRL", "mrl", quick=QUICK)
METHODS = (
    MRL,
    CROSS_ENTROPY,
    MethodSetup("DSCMR", "dscmr", quick=QUICK),
    MethodSetup("SDML", "sdml", quick=QUICK),
    MethodSetup("FGCrossNet", "fgcrossnet", quick=QUICK),
    MethodSetup("DCCAE", "dccae", quick=QUICK),
    MethodSetup("DCCA", "dccae", {"rebuild": 0.0}, QUICK),
)
MAPPED = METHODS[:-1]  # what the paper's maps show


def methods(work: Work, every: tuple[MethodSetup, ...] = METHODS) -> tuple[MethodSetup, ...]:
    """All of them; in a hurry, MRL and two that noise harms."""
    return every[:3] if work.quick else every


def noisy(pairs: Pairs, ratio: float, *, seed: int) -> Pairs:
    """Training labels flipped as the paper draws them; where items have several labels, exactly so many by our draw."""
    single = pairs.labels is not None and pairs.labels.single
    return flip_labels(pairs, ratio=ratio, seed=seed, like="mrl" if single else None)[0]
