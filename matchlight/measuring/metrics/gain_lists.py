"""Every query's list written out as gains, best score first: one sort of (score, gain) packed into whole numbers.

Sorting places and fetching what lies there takes several times as long. Scores wider than 32 bits go that way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from matchlight.measuring.metrics.arrays import Array, Places

LONGEST = 1 << 24  # places that fit beside a score and a gain in 64 bits


def listed(block: Array, gains: Array, ties: str) -> Array:
    """(queries, gallery) gains in the order of each query's list."""
    small = gains.view(np.uint8) if gains.dtype == bool else gains
    if block.dtype != np.float32 or small.dtype != np.uint8 or block.shape[1] >= LONGEST:
        return np.asarray(np.take_along_axis(gains, _order(block, gains, ties), axis=1))
    keys = _sortable(block).astype(np.uint64)
    if ties == "worst":  # the poorer first among equals
        keys <<= np.uint64(8)
        keys |= np.uint8(255) - small
    else:  # the larger index first
        keys <<= np.uint64(32)
        keys |= np.arange(block.shape[1], dtype=np.uint64)[None] << np.uint64(8)
        keys |= small
    keys.sort(axis=1)
    last_byte = (keys[:, ::-1] & np.uint64(255)).astype(np.uint8)
    return np.uint8(255) - last_byte if ties == "worst" else last_byte


def _sortable(block: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Whole numbers in the order of the scores; both zeros are one number."""
    bits = (block + np.float32(0)).view(np.uint32)
    return np.asarray(bits ^ ((bits >> np.uint32(31)) * np.uint32(0x7FFFFFFF) | np.uint32(0x80000000)))


def _order(block: Array, gains: Array, ties: str) -> Places:
    if ties == "worst":
        return np.asarray(np.lexsort((gains, -block), axis=-1))
    return np.asarray(np.argsort(block, axis=1, kind="stable")[:, ::-1])
