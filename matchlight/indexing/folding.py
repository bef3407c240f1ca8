"""Near-duplicates among the hits, folded: the best of them is shown, the others are counted with it.

Copies that were resized or saved again have thumbnails that hardly differ. Only the hits of one question are compared,
so that nothing has to be stored, and an index that grows needs no comparing anew.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image

from matchlight.data.near_duplicates import SIDE, same_picture

SPARE = 24  # hits more than were asked for, to take the places of folded ones
KEPT = 20_000  # thumbnails made small that are kept: 15 MB


class Folding:
    """Thumbnails of an index, made very small when they are first compared."""

    def __init__(self, thumbs: Sequence[bytes]):
        self.look = lru_cache(KEPT)(lambda place: _look(thumbs[place]))

    def groups(self, places: np.ndarray) -> list[list[int]]:
        """Positions of hits that show one picture, best first; each group by its best."""
        found: list[list[int]] = []
        for position, place in enumerate(places.tolist()):
            mine = self.look(place)
            for group in found:
                if self._same(mine, self.look(int(places[group[0]]))):
                    group.append(position)
                    break
            else:
                found.append([position])
        return found

    @staticmethod
    def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
        return one is not None and other is not None and same_picture(one, other)


def _look(small: bytes) -> np.ndarray | None:
    """(SIDE, SIDE, 3) of a thumbnail; None where there is none."""
    if not small:
        return None
    image = Image.open(io.BytesIO(small), formats=("JPEG",))
    image.draft("RGB", (2 * SIDE, 2 * SIDE))
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.uint8)
