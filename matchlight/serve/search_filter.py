"""Searching a part of the collection: by the data's own metadata, by what the audit flagged, by a patch of the map.

All of them become one filter of the index, by name and value, before anything is searched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from starlette.exceptions import HTTPException

from matchlight.console import BadInput
from matchlight.serve.live_index import LoadedIndex
from matchlight.serve.site import Site, suspect_pictures

YES = {"yes": True, "no": False}
FILTERS = ("split", "label", "folder", "camera", "from", "to", "caption", "suspect")


@dataclass(frozen=True)
class SearchFilter:
    """Which part to search."""

    where: tuple[tuple[str, str], ...] = ()
    suspect: bool | None = None
    inside: tuple[tuple[float, float], ...] = ()

    @staticmethod
    def of(where: list[str] | None, inside: str | None) -> SearchFilter:
        """From the parameters of a request."""
        named = [_named(one) for one in where or []]
        asked = [value for name, value in named if name == "suspect"]
        if any(value not in YES for value in asked):
            raise HTTPException(422, "suspect is yes or no")
        rest = tuple(pair for pair in named if pair[0] != "suspect")
        return SearchFilter(rest, YES[asked[-1]] if asked else None, _polygon(inside) if inside else ())

    def where_of_index(self, site: Site, loaded: LoadedIndex) -> dict[str, list[str] | np.ndarray] | None:
        """As the index takes it; None = everything. Values of one name add up, names narrow."""
        values: dict[str, list[str]] = {}
        for name, value in self.where:
            values.setdefault(name, []).append(value)
        allowed = self._allowed(site, loaded)
        return {**values, **({} if allowed is None else {"id": allowed})} or None

    def _allowed(self, site: Site, loaded: LoadedIndex) -> np.ndarray | None:
        """Ids that the audit and the map leave; None if neither is asked for."""
        every = loaded.index.ids
        keep = np.ones(len(every), dtype=bool)
        if self.suspect is not None:
            keep &= np.isin(every, _suspect_pictures(site, loaded)) == self.suspect
        if self.inside:
            if loaded.index.map is None:
                raise HTTPException(422, "inside needs a map, and this index was built without one")
            keep &= contains(np.asarray(self.inside), np.asarray(loaded.index.map))
        return every[keep] if self.suspect is not None or self.inside else None


def _suspect_pictures(site: Site, loaded: LoadedIndex) -> np.ndarray:
    if site.queue is None:
        raise HTTPException(422, "suspect needs an audit; start the server with --audit DIR")
    return np.array(sorted(suspect_pictures(loaded, site.queue)), dtype=np.int64)


def _named(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if name not in FILTERS or not value or len(text) > 300:
        raise HTTPException(422, f"where is name=value, such as split=test; names are {', '.join(FILTERS)}")
    return name, value


def _polygon(text: str) -> tuple[tuple[float, float], ...]:
    try:
        corners = tuple((float(x), float(y)) for x, y in (one.split(",") for one in text.split(";") if one))
    except ValueError:
        raise HTTPException(422, "inside is x,y;x,y;x,y: the corners of a patch of the map") from None
    if not 3 <= len(corners) <= 200 or not all(math.isfinite(value) for corner in corners for value in corner):
        raise HTTPException(422, "inside needs 3 to 200 corners that are plain numbers")
    return corners


def members(site: Site, loaded: LoadedIndex, narrow: SearchFilter) -> np.ndarray:
    """Ids of all pictures inside; a split or a label that the index does not know has none."""
    try:
        return loaded.index.matching(narrow.where_of_index(site, loaded))
    except BadInput:
        return np.zeros(0, dtype=np.int64)


def contains(polygon: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(N,) True for the points inside the polygon: a ray from each crosses its edges an odd number of times."""
    x, y = points[:, 0].astype(np.float64), points[:, 1].astype(np.float64)
    inside = np.zeros(len(points), dtype=bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * ((y - y0) / (y1 - y0)) + x0)
    return inside
