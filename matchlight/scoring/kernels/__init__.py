"""Exact all-pairs scores at the speed of the hardware: kernels where they pass their self-check, PyTorch elsewhere.

`attended_scores` is SCAN's and BFAN's scoring, `sgr_scores` and `saf_scores` are SGRAF's. Each takes whole sides (all
pictures, all captions without their padding), works in blocks under a byte budget and gives the same numbers for any
budget. They score only: whatever needs a gradient is not for them.

In reading order:

    packed.py            captions without their padding
    reference.py         what is computed, in plain PyTorch; `AttentionSettings`
    products.py          the matrix product of all words with all regions
    triton_attention.py  what follows the product, on a GPU (Triton)
    gpu_attention.py     its launches
    numba_attention.py   the same on a CPU (numba)
    cpu_attention.py     its tiles and threads
    triton_vectors.py    similarity vectors and graph steps of SGR and SAF (Triton)
    vector_scores.py     their launches, and the same in plain PyTorch
    heads.py             from similarity vectors to a score
    self_check.py        may a kernel be used here?
    scores.py            the three functions
"""

from __future__ import annotations

from matchlight.scoring.kernels.packed import Packed, pack
from matchlight.scoring.kernels.reference import NORMS, AttentionSettings
from matchlight.scoring.kernels.scores import attended_scores, attended_sets, saf_scores, sgr_scores
from matchlight.scoring.kernels.self_check import usable, usable_on_cpu
from matchlight.scoring.kernels.vector_scores import Captions, Pictures, VectorLayers

__all__ = [
    "NORMS",
    "AttentionSettings",
    "Captions",
    "Packed",
    "Pictures",
    "VectorLayers",
    "attended_scores",
    "attended_sets",
    "pack",
    "saf_scores",
    "sgr_scores",
    "usable",
    "usable_on_cpu",
]
