"""Cross-validation: folds by picture, near-duplicates together, and manufactured mismatches.

Every pair is scored by a model that saw neither its picture nor its caption. To know what a wrong pair looks like, each
row also gets a *wrong caption*, drawn once from the same fold (unseen by the same model). A few rows, the *decoys*, are
trained with their wrong caption in every other fold's model, which shows what training does to a wrong pair.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from matchlight.auditing.odd_captions import says_something
from matchlight.core import BadInput
from matchlight.inputs.batches import seeded
from matchlight.pairs import Pairs

DECOYS = 0.04  # share of the rows trained with a wrong caption
FEWEST_DECOYS, MOST_DECOYS = 400, 0.1  # small sets need more of them to learn from, but never more than a tenth


@dataclass(frozen=True)
class Folds:
    """The rows under audit; all arrays have one entry a row."""

    rows: np.ndarray  # rows of the whole table
    fold: np.ndarray  # 0 .. count - 1
    wrong: np.ndarray  # the row of the whole table whose caption serves as this row's wrong one
    decoy: np.ndarray  # True: trained with the wrong caption
    group: np.ndarray  # (pictures of the whole table,) pictures of one group are near-duplicates

    @property
    def count(self) -> int:
        """How many folds there are."""
        return int(self.fold.max(initial=-1)) + 1


def near_duplicate_groups(pairs: Pairs) -> np.ndarray:
    """(N,) group of each picture; pictures known only by features are alike where their features are equal."""
    if pairs.pictures is not None:
        from matchlight.data.near_duplicates import groups_of

        return groups_of(pairs.pictures)
    if pairs.features is None:
        return np.arange(len(pairs.names))
    seen: dict[bytes, int] = {}
    group = [
        seen.setdefault(hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest(), len(seen))
        for start in range(0, len(pairs.names), 512)
        for row in pairs.features.gather(np.arange(start, min(start + 512, len(pairs.names))))
    ]
    return np.array(group, dtype=np.int64)


def divide(pairs: Pairs, rows: np.ndarray, group: np.ndarray, *, count: int = 5, seed: int = 0) -> Folds:
    """Fold, wrong caption and decoys of each row; the same seed gives the same answer."""
    owner = group[pairs.picture[rows]]
    groups, place, size = np.unique(owner, return_inverse=True, return_counts=True)
    if len(groups) < 2 * count:
        raise BadInput(
            f"{pairs.root}: {len(rows)} usable pairs of {len(groups)} different pictures; "
            f"an audit needs at least {2 * count} pictures"
        )
    rng = seeded(seed, 50)
    order = rng.permutation(len(groups))
    upto = np.cumsum(size[order]) - size[order] / 2  # equal numbers of rows, not of pictures
    fold_of = np.empty(len(groups), dtype=np.int64)
    fold_of[order] = np.minimum(count - 1, (upto * count / len(rows)).astype(np.int64))
    if len(np.unique(fold_of)) < count:  # a few huge groups: share the groups out instead
        fold_of[order] = np.arange(len(groups)) % count
    fold = fold_of[place]
    wrong, decoy = np.empty(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
    share = min(MOST_DECOYS, max(DECOYS, FEWEST_DECOYS / len(rows)))
    for k in range(count):
        inside = np.flatnonzero(fold == k)
        chosen = rng.permutation(inside)[: round(share * len(inside))]
        deranged = _derangement(owner[chosen], rng)
        if deranged is not None:  # decoys exchange captions among themselves: each appears once, in the wrong place
            decoy[chosen], wrong[chosen] = True, rows[chosen[deranged]]
        rest = inside[~decoy[inside]]
        wrong[rest] = rows[inside[_others(owner[rest], owner[inside], rng)]]
    return Folds(rows, fold, wrong, decoy, group)


def usable(pairs: Pairs, rows: np.ndarray, broken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a readable picture and at least a letter of caption, and the others."""
    said = np.array([says_something(pairs.captions[row]) for row in rows.tolist()], dtype=bool)
    fine = said & ~np.isin(pairs.picture[rows], broken)
    return rows[fine], rows[~fine]


def _derangement(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """A permutation that gives no row a caption of a near-duplicate picture; None where none was found."""
    if len(owner) < 2:
        return None
    deranged = rng.permutation(len(owner))
    for _ in range(100):
        stuck = np.flatnonzero(owner[deranged] == owner)
        if not len(stuck):
            return deranged
        swap = rng.integers(len(owner), size=len(stuck))
        for one, other in zip(stuck.tolist(), swap.tolist(), strict=True):
            deranged[[one, other]] = deranged[[other, one]]
    return None


def _others(owner: np.ndarray, among: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each owner a random place among those of other owners; a fold holds two owners at least."""
    chosen = rng.integers(len(among), size=len(owner))
    while len(stuck := np.flatnonzero(among[chosen] == owner)):
        chosen[stuck] = rng.integers(len(among), size=len(stuck))
    return chosen
