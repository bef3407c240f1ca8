"""Exact all-pairs scores at the speed of the hardware: fused kernels where they can be trusted, PyTorch elsewhere.

`attended_scores` is SCAN's and BFAN's scoring, `sgr_scores` and `saf_scores` are SGRAF's. Each takes whole sides (all
pictures, all captions without their padding), works in blocks under a byte budget and gives the same numbers for any
budget. They score only: whatever needs a gradient is not for them. In reading order: `packed` (captions without
padding), `plain` (what is computed, in PyTorch), `products` (the one nothing spares), `attended` (Triton, behind
it), `fused` (its launches), `compiled` (numba: the same on a CPU), `lanes` (its tiles), `vectors` (Triton: similarity
vectors, graph steps), `reasoning` (its launches), `heads`, `trust` (may a kernel be used here?), `scores` (the three
functions).
"""

from __future__ import annotations

from matchlight.scoring.kernels.packed import Packed, pack
from matchlight.scoring.kernels.plain import NORMS
from matchlight.scoring.kernels.reasoning import Captions, Pictures
from matchlight.scoring.kernels.scores import attended_scores, attended_sets, saf_scores, sgr_scores
from matchlight.scoring.kernels.trust import usable, usable_on_cpu

__all__ = [
    "NORMS",
    "Captions",
    "Packed",
    "Pictures",
    "attended_scores",
    "attended_sets",
    "pack",
    "saf_scores",
    "sgr_scores",
    "usable",
    "usable_on_cpu",
]
