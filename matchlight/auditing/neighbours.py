"""Neighbours of a pair: do similar captions belong to similar pictures, and do a picture's captions agree?

Three lists a pair, each with a few rows of the data and how well they support it:

    text     the rows whose captions are nearest to the pair's caption: does their picture resemble the pair's picture?
    photo    captions of the pictures nearest to the pair's picture: do they resemble the pair's caption?
    sibling  the other captions of the pair's picture: do they resemble its caption?

None of them reads how the pair itself scores. The same lists are made for each row's manufactured wrong caption. Rows
are kept beside their values, so that a row that is itself suspect can be given less weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.vector_cells import Cells
from matchlight.console import track
from matchlight.inputs.batches import seeded

NEIGHBOURS = 10
CAPTIONS = 3  # of each neighbouring picture
SIBLINGS = 8  # at most
REFERENCES = 50_000  # rows among which neighbours are looked for
FEW = 10_000  # up to so many vectors everything is compared with everything
BLOCK = 1 << 24  # numbers of a block of similarities

Signals = dict[str, np.ndarray]  # arrays by name; see signals.py
Look = Callable[[Tensor, Tensor, tuple[np.ndarray, np.ndarray], int], np.ndarray]  # what `nearest` does


@dataclass(frozen=True)
class Space:
    """Unit vectors of the pictures and the captions of some rows, in which likeness is a product."""

    images: Tensor  # (pictures, D)
    texts: Tensor  # (rows, E)


@dataclass(frozen=True)
class AuditedRows:
    """The rows under audit, numbered 0 .. n - 1, and their pictures, numbered 0 .. p - 1."""

    picture: np.ndarray  # (n,) of each row
    group: np.ndarray  # (p,) near-duplicates share a number
    wrong: np.ndarray  # (n,) row whose caption serves as the wrong one

    @property
    def owner(self) -> np.ndarray:
        """(n,) group of each row's picture."""
        return self.group[self.picture]


def neighbour_signals(
    space: Space, audited: AuditedRows, rows: np.ndarray, *, seed: int = 0, among: np.ndarray | None = None
) -> Signals:
    """For these rows: `<list>_rows` (q, m) and `<list>` (q, m) of the real caption, `<list>_wrong...` of the wrong.

    They are looked for `among` these rows, comparing everything; by default among all, or as many as is enough, and by
    cells where those are many.
    """
    signals: Signals = {}
    refs = references(len(audited.picture), seed) if among is None else among
    near = Near.of(space, audited, rows, refs, look=nearest if among is not None else nearest_of_many)
    for name, captions in (("", rows), ("_wrong", audited.wrong[rows])):
        for kind, look in (("text", _similar_captions), ("photo", _similar_pictures)):
            signals[f"{kind}{name}_rows"], signals[f"{kind}{name}"] = look(space, audited, rows, captions, near)
        signals[f"sibling{name}_rows"], signals[f"sibling{name}"] = siblings(space.texts, audited, rows, captions)
    return signals


@dataclass(frozen=True)
class Near:
    """The nearest captions of captions and pictures of pictures: looked for once, whichever pair asks."""

    refs: np.ndarray  # rows among which they were looked for
    captions: np.ndarray  # (c,) rows, ascending
    to_caption: np.ndarray  # (c, k) rows, -1 where too few
    pictures: np.ndarray  # (p,) pictures, ascending
    to_picture: np.ndarray  # (p, k * CAPTIONS) rows of captions of the nearest pictures, -1 where too few

    @staticmethod
    def of(space: Space, audited: AuditedRows, rows: np.ndarray, refs: np.ndarray, *, look: Look) -> Near:
        """Of the real and the wrong captions of these rows, and of their pictures."""
        captions = np.unique(np.concatenate([rows, audited.wrong[rows]]))
        groups = audited.owner[captions], audited.owner[refs]
        near = look(space.texts[captions], space.texts[refs], groups, NEIGHBOURS)
        pictures, known = np.unique(audited.picture[rows]), np.unique(audited.picture[refs])
        groups = audited.group[pictures], audited.group[known]
        places = look(space.images[pictures], space.images[known], groups, NEIGHBOURS)
        theirs = _captions_of(audited.picture, known, refs)[places]  # (pictures, k, CAPTIONS)
        theirs[places < 0] = -1
        return Near(refs, captions, np.where(near >= 0, refs[near], -1), pictures, theirs.reshape(len(pictures), -1))


def references(count: int, seed: int) -> np.ndarray:
    """The rows among which neighbours are looked for."""
    if count <= REFERENCES:
        return np.arange(count)
    return np.sort(seeded(seed, 52).choice(count, REFERENCES, replace=False))


def nearest_of_many(queries: Tensor, among: Tensor, groups: tuple[np.ndarray, np.ndarray], k: int) -> np.ndarray:
    """`nearest`, by cells where there are many."""
    if len(among) <= FEW:
        return nearest(queries, among, groups, k)
    return Cells(among, groups[1]).nearest(queries, groups[0], k)


@torch.inference_mode()
def nearest(queries: Tensor, among: Tensor, groups: tuple[np.ndarray, np.ndarray], k: int) -> np.ndarray:
    """(q, k) places of the nearest of `among`; those of the query's own group do not count; -1 where too few."""
    k, step = min(k, len(among)), max(1, BLOCK // max(1, len(among)))
    mine, theirs = (np.asarray(numbers) for numbers in groups)
    order = np.argsort(theirs, kind="stable")
    out = []
    for start in track(range(0, len(queries), step), "looking for neighbours"):
        likeness = queries[start : start + step] @ among.T
        query, place = of_own_group(mine[start : start + step], theirs, order)
        likeness[torch.from_numpy(query).to(among.device), torch.from_numpy(place).to(among.device)] = -2.0
        value, found = likeness.topk(k, dim=1)
        out.append(found.masked_fill(value <= -2.0, -1).cpu())
    return torch.cat(out).numpy() if out else np.zeros((0, k), dtype=np.int64)


def of_own_group(mine: np.ndarray, theirs: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(query, place) of everything that has the group of a query; `order` sorts `theirs`."""
    start, stop = (np.searchsorted(theirs, mine, side=side, sorter=order) for side in ("left", "right"))
    count = stop - start
    query = np.repeat(np.arange(len(mine)), count)
    within = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    return query, order[np.repeat(start, count) + within]


def _similar_captions(
    space: Space, audited: AuditedRows, rows: np.ndarray, captions: np.ndarray, near: Near
) -> tuple[np.ndarray, np.ndarray]:
    found = near.to_caption[np.searchsorted(near.captions, captions)]
    found[audited.owner[found] == audited.owner[rows][:, None]] = -1  # a pair's own picture is no evidence about itself
    resemblance = _likeness(space.images, audited.picture[rows], audited.picture[found])
    usual = _usual(space.images, audited.picture[rows], audited.picture[near.refs])
    return found, _where(found, resemblance - usual[:, None])


def _similar_pictures(
    space: Space, audited: AuditedRows, rows: np.ndarray, captions: np.ndarray, near: Near
) -> tuple[np.ndarray, np.ndarray]:
    found = near.to_picture[np.searchsorted(near.pictures, audited.picture[rows])]
    found[audited.owner[found] == audited.owner[captions][:, None]] = -1  # where a wrong caption was taken from
    resemblance = _likeness(space.texts, captions, found)
    usual = _usual(space.texts, captions, near.refs)
    return found, _where(found, resemblance - usual[:, None])


def siblings(
    texts: Tensor, audited: AuditedRows, rows: np.ndarray, captions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The other captions of each row's picture and how much they resemble the caption; nan where there is none."""
    all_rows = np.arange(len(audited.picture))
    table = _captions_of(audited.picture, np.arange(len(audited.group)), all_rows, most=SIBLINGS + 1)
    others = table[audited.picture[rows]]
    others[others == rows[:, None]] = -1
    order = np.argsort(others < 0, axis=1, kind="stable")[:, :SIBLINGS]
    others = np.take_along_axis(others, order, 1)
    return others, _where(others, _likeness(texts, captions, others))


def _captions_of(picture: np.ndarray, pictures: np.ndarray, rows: np.ndarray, most: int = CAPTIONS) -> np.ndarray:
    """(pictures, most) rows of each picture, -1 where it has fewer."""
    order = rows[np.argsort(picture[rows], kind="stable")]
    start = np.searchsorted(picture[order], pictures)
    stop = np.searchsorted(picture[order], pictures, side="right")
    place = start[:, None] + np.arange(most)
    return np.where(place < stop[:, None], order[np.minimum(place, len(order) - 1)], -1)


@torch.inference_mode()
def _likeness(vectors: Tensor, one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(q, m) products of each one's vector with its others', in blocks."""
    width = max(1, others.shape[1])
    step = max(1, BLOCK // (width * vectors.shape[1]))
    out = [np.zeros((0, others.shape[1]), dtype=np.float32)]
    for start in range(0, len(one), step):
        part = torch.from_numpy(others[start : start + step]).to(vectors.device).clamp(min=0)
        mine = vectors[torch.from_numpy(one[start : start + step]).to(vectors.device)]
        out.append(torch.einsum("qd,qmd->qm", mine, vectors[part]).float().cpu().numpy())
    return np.concatenate(out)


@torch.inference_mode()
def _usual(vectors: Tensor, one: np.ndarray, refs: np.ndarray) -> np.ndarray:
    """(q,) how much each one resembles the average of all: likeness beyond that means something."""
    mean = vectors[torch.from_numpy(refs).to(vectors.device)].mean(0)
    return (vectors @ mean).float().cpu().numpy()[one]


def _where(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.where(rows >= 0, values, np.nan).astype(np.float16)
