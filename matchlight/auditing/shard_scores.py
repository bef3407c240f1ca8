"""What workers do for an audit: sums over their vectors, and signals of their rows.

A worker brings the vectors of the few rows it needs into memory, gives them numbers of their own, and calls what one
process calls for all rows (neighbours.py, gallery.py). Candidates for better partners pass by a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matchlight import files
from matchlight.auditing.better_partners import best_in_blocks
from matchlight.auditing.canonical_signals import LIKELY, likelihoods
from matchlight.auditing.cca_inputs import vectors_of_kind
from matchlight.auditing.gallery import GalleryQuery, real_and_wrong
from matchlight.auditing.item_vectors import sentence_vectors, unit
from matchlight.auditing.neighbours import AuditedRows, Signals, Space, neighbour_signals
from matchlight.auditing.shard_vectors import Kind, Side, products, squares
from matchlight.cluster.data_parts import Part
from matchlight.data.formats.sources import NpyFeatures
from matchlight.inputs.prepare import View, prepare
from matchlight.parts.canonical_correlation import CanonicalMaps, Moments

MOMENTS = ("weight", "x", "y", "xx", "yy", "xy")
CANDIDATES = 4096  # at once, where everything is compared with everything


@dataclass(frozen=True)
class Looks:
    """How pictures are turned into vectors."""

    view: View
    kinds: list[str]
    device: str


def write_pictures(looks: Looks, part: Part, draft: Path) -> None:
    """Vectors of a part's pictures, an array a kind; which pictures cannot be read is written last."""
    device = torch.device(looks.device)
    inputs = prepare(part.pairs, looks.view, device=device)
    every = np.arange(len(part.places))
    for number, kind in enumerate(looks.kinds):
        vectors = vectors_of_kind(inputs.table, every, kind, device)
        files.write_array(array_file(draft.parent, part.name, number), vectors.numpy())
    broken = part.places[np.asarray(inputs.table.broken, dtype=np.int64)]
    write_arrays(draft, {"places": part.places, "broken": broken})


def array_file(folder: Path, name: str, number: int) -> Path:
    """Where the vectors of a kind of a part's pictures are."""
    return folder / f"{name}-{number}.npy"


def write_arrays(draft: Path, arrays: Signals) -> None:
    """Named arrays into a draft that is there."""
    with open(draft, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_captions(chosen: tuple[str, str], captions: list[str], draft: Path) -> None:
    """Vectors of captions by the sentence encoders that were named."""
    vectors = sentence_vectors(captions, chosen[0], device=torch.device(chosen[1]))
    assert vectors is not None
    with open(draft, "wb") as file:
        np.save(file, vectors.numpy())


def write_squares(kind: Kind, places: np.ndarray, draft: Path) -> None:
    """Sums of one kind."""
    write_arrays(draft, squares(kind.scaled(places)))


def write_kind_products(kind: Kind, places: np.ndarray, draft: Path) -> None:
    """Sums of products within one kind."""
    write_arrays(draft, products(kind.scaled(places)))


def write_products(side: Side, places: np.ndarray, draft: Path) -> None:
    """Sums of products of all kinds of a side."""
    write_arrays(draft, products(side.reduced(places)))


@dataclass(frozen=True)
class Nearby:
    """What neighbours are looked for with."""

    images: Side
    texts: NpyFeatures
    audited: AuditedRows
    references: np.ndarray


def write_neighbours(near: Nearby, rows: np.ndarray, draft: Path) -> None:
    """Neighbours of some rows: among the references, and all captions of the rows' pictures."""
    audited = near.audited
    siblings = np.flatnonzero(np.isin(audited.picture, audited.picture[rows]))
    local = _Local(audited, np.concatenate([rows, audited.wrong[rows], near.references, siblings]))
    space = Space(unit(near.images.joined(local.pictures)), unit(torch.from_numpy(near.texts.gather(local.rows))))
    among = local.row(near.references)
    signals = neighbour_signals(space, local.audited, local.row(rows), among=among)
    for name, value in signals.items():
        if name.endswith("_rows"):
            signals[name] = np.where(value >= 0, local.rows[value], -1)
    write_arrays(draft, signals)


class _Local:
    """A few rows and their pictures, numbered by themselves in the same order."""

    def __init__(self, audited: AuditedRows, rows: np.ndarray):
        self.rows = np.unique(rows)
        self.pictures, picture = np.unique(audited.picture[self.rows], return_inverse=True)
        wrong = np.searchsorted(self.rows, audited.wrong[self.rows])  # of rows that are asked about it is among them
        self.audited = AuditedRows(picture, audited.group[self.pictures], np.minimum(wrong, len(self.rows) - 1))

    def row(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.rows, rows)


@dataclass(frozen=True)
class Fitted:
    """Everything that scores of the rows of one turn need."""

    images: Side
    texts: Side
    audited: AuditedRows
    weight: np.ndarray  # (n,) of the turn
    fits: dict[int, CanonicalMaps] = field(default_factory=dict)  # by fold
    galleries: dict[int, np.ndarray] = field(default_factory=dict)
    last: bool = False  # better partners are wanted as well

    def of_pictures(self, fold: int, places: np.ndarray) -> Tensor:
        """(n, directions) unit vectors."""
        return self.fits[fold].vectors(0, self.images.components(places).float())

    def of_captions(self, fold: int, rows: np.ndarray) -> Tensor:
        """(n, directions) unit vectors."""
        return self.fits[fold].vectors(1, self.texts.components(rows).float())

    def likelihoods(self, fold: int, places: np.ndarray, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n, directions + 2) of pictures and of captions."""
        parts = self.images.components(places).float(), self.texts.components(rows).float()
        return likelihoods(self.fits[fold], 0, parts[0]), likelihoods(self.fits[fold], 1, parts[1])


def write_moments(fitted: Fitted, item: tuple[int, np.ndarray], draft: Path) -> None:
    """Weighted sums of the pairs of a block."""
    _, rows = item
    pictures, place = np.unique(fitted.audited.picture[rows], return_inverse=True)
    sides = fitted.images.components(pictures), fitted.texts.components(rows)
    sums = Moments.of(*sides, torch.from_numpy(place), torch.from_numpy(fitted.weight[rows]))
    values = (sums.weight, *sums.sums, *sums.own, sums.across)
    write_arrays(draft, {name: value.numpy() for name, value in zip(MOMENTS, values, strict=True)})


def read_moments(sums: Signals) -> Moments:
    """What `write_moments` wrote."""
    weight, x, y, xx, yy, xy = (torch.from_numpy(sums[name]) for name in MOMENTS)
    return Moments(weight, (x, y), (xx, yy), xy)


def write_scores(fitted: Fitted, item: tuple[int, np.ndarray], draft: Path) -> None:
    """Gallery scores of the rows of a block and of their manufactured pairs, and better partners."""
    fold, rows = item
    audited, gallery = fitted.audited, fitted.galleries[fold]
    local = _Local(audited, np.concatenate([rows, audited.wrong[rows], gallery]))
    sides = fitted.of_pictures(fold, local.pictures), fitted.of_captions(fold, local.rows)
    captions = local.row(np.concatenate([rows, audited.wrong[rows]]))
    picture = local.audited.picture
    query = GalleryQuery(np.tile(picture[local.row(rows)], 2), captions, local.row(gallery), local.audited.group)
    signals = real_and_wrong(sides, picture, query, whole=fitted.last)
    if fitted.last:
        likely = fitted.likelihoods(fold, local.pictures, local.rows)
        signals |= real_and_wrong(likely, picture, query, whole=False, name=LIKELY)
        signals["tells"] = fitted.fits[fold].tells(fitted.texts.components(rows).float()).numpy()
        signals |= _partners(fitted, fold, rows)
    write_arrays(draft, signals)


def _partners(fitted: Fitted, fold: int, rows: np.ndarray) -> Signals:
    """As `better_partners` finds them."""
    audited = fitted.audited
    mine = audited.picture[rows]
    queries, back = np.unique(mine, return_inverse=True)

    def blocks(count: int, of: str) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, count, CANDIDATES):
            places = np.arange(start, min(start + CANDIDATES, count))
            yield start, fitted.of_pictures(fold, places) if of == "image" else fitted.of_captions(fold, places)

    pictures = blocks(len(audited.group), "image")
    captions = blocks(len(audited.picture), "text")
    by_caption = best_in_blocks(fitted.of_captions(fold, rows), pictures, mine, audited.owner[rows], audited.group)
    by_picture = best_in_blocks(
        fitted.of_pictures(fold, queries), captions, None, audited.group[queries], audited.owner
    )
    return {
        "other_picture": by_caption[0],
        "other_picture_share": by_caption[1],
        "other_caption": by_picture[0][back],
        "other_caption_share": by_picture[1][back],
        "own_share": by_caption[2],
    }
