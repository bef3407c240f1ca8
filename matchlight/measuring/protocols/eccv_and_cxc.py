"""ECCV Caption and CxC: COCO's 5,000 test pictures, measured by truths that know more than one caption a picture fits.

The truth is the data of the `eccv-caption` package (its files are read; its code is not run). Queries are those of its
files; two captions it calls positive are not in the test split, and still count in R, so mAP@R stops just short of 1.
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import numpy as np

from matchlight.measuring.metrics import Figures, Relevance, Window, maps_at_r, r_precisions, ranks
from matchlight.measuring.metrics.arrays import Array
from matchlight.measuring.metrics.blocks import Scores
from matchlight.measuring.protocols.measured import SIDES, Measured, Unfit, hits
from matchlight.measuring.protocols.reports import CocoReport
from matchlight.pairs import Pairs


def eccv(scores: Scores, pairs: Pairs, *, ties: str) -> Measured:
    """The package's own figures, fractions: R@1 on COCO 1K, COCO 5K and CxC; R@1, mAP@R and R-precision on ECCV."""
    test = CocoTest(scores, pairs, ties)
    test.add_fifths()
    for side in SIDES:
        test.add_hits(side, "original", "coco_5k_r1", at=1)
        test.add_hits(side, "cxc", "cxc_r1", at=1)
        test.add_eccv(side)
    return test.measured()


def cxc(scores: Scores, pairs: Pairs, *, ties: str) -> Measured:
    """R@1, R@5 and R@10 on CxC, fractions."""
    test = CocoTest(scores, pairs, ties)
    for side in SIDES:
        best = test.ranks(side, "cxc")
        for k in (1, 5, 10):
            test.add(side, f"cxc_r{k}", "cxc", hits(best, k))
    return test.measured()


class CocoTest:
    """The scores of the COCO test split, and the package's truths in the places of that split."""

    def __init__(self, scores: Scores, pairs: Pairs, ties: str):
        self.ties = ties
        self.folder = truth_folder()
        self.test_ids = np.load(self.folder / "coco_test_ids.npy", allow_pickle=False)
        self.owners = {int(c): i[0] for c, i in self._read("original", "t2i").items()}
        self.image_ids, self.caption_ids = coco_ids(pairs, self.test_ids, self.owners)
        _check_complete(pairs, self.image_ids, sorted(set(self.owners.values())), "pictures")
        _check_complete(pairs, self.caption_ids, self.test_ids.tolist(), "captions")
        self.scores = {"i2t": scores, "t2i": scores.T}
        self.units = {"i2t": np.arange(len(pairs.names)), "t2i": pairs.picture}
        self.figures = Figures(len(pairs.names))
        self._truths: dict[tuple[str, str], tuple[Array, Relevance, Array]] = {}

    def _read(self, truth: str, side: str) -> dict[str, list[int]]:
        direction = "image_to_caption" if side == "i2t" else "caption_to_image"
        answer: dict[str, list[int]] = json.loads((self.folder / f"{truth}_{direction}.json").read_text())
        return answer

    def truth(self, side: str, name: str) -> tuple[Array, Relevance, Array]:
        """(queries that a truth asks, what is relevant to them, how many items are relevant in all)."""
        if (side, name) not in self._truths:
            self._truths[side, name] = self._truth(side, name)
        return self._truths[side, name]

    def _truth(self, side: str, name: str) -> tuple[Array, Relevance, Array]:
        queries, gallery = (self.image_ids, self.caption_ids) if side == "i2t" else (self.caption_ids, self.image_ids)
        named = self._read(name, side)
        asked = np.flatnonzero([str(query) in named for query in queries.tolist()])
        return asked, *sparse_truth(named, queries[asked], gallery)

    def question(self, side: str, name: str) -> tuple[Window, Relevance, Array]:
        """(scores of the queries that a truth asks, what is relevant to them, how many items are relevant in all)."""
        asked, relevance, total = self.truth(side, name)
        return Window.on(self.scores[side], asked, np.arange(relevance.shape[1])), relevance, total

    def ranks(self, side: str, name: str) -> Array:
        """The best rank of each query that a truth asks."""
        scores, relevance, _ = self.question(side, name)
        return ranks(scores, relevance, ties=self.ties)

    def add(self, side: str, figure: str, name: str, values: Array) -> None:
        """A figure: the mean of a value for each query that a truth asks."""
        asked, _, _ = self.truth(side, name)
        self.figures.add(values, self.units[side][asked], {(figure, side): 1.0})

    def add_hits(self, side: str, name: str, figure: str, *, at: int) -> None:
        """R@K under a truth."""
        self.add(side, figure, name, hits(self.ranks(side, name), at))

    def add_eccv(self, side: str) -> None:
        """R@1, mAP@R and R-precision of the ECCV Caption truth."""
        scores, relevance, total = self.question(side, "eccv")
        self.add(side, "eccv_r1", "eccv", hits(ranks(scores, relevance, ties=self.ties), 1))
        self.add(side, "eccv_map_at_r", "eccv", maps_at_r(scores, relevance, total=total, ties=self.ties))
        self.add(side, "eccv_rprecision", "eccv", r_precisions(scores, relevance, total=total, ties=self.ties))

    def add_fifths(self) -> None:
        """R@1 inside each fifth of the test split, in the package's order, averaged."""
        for ids in np.split(self.test_ids, 5):
            for side, (best, unit) in self._fifth(ids).items():
                self.figures.add(hits(best, 1), unit, {("coco_1k_r1", side): 1 / 5})

    def _fifth(self, ids: Array) -> dict[str, tuple[Array, Array]]:
        columns = np.flatnonzero(np.isin(self.caption_ids, ids))
        owner = np.array([self.owners[int(c)] for c in self.caption_ids[columns]])
        rows = np.flatnonzero(np.isin(self.image_ids, owner))
        window = Window.on(self.scores["i2t"], rows, columns)
        order = np.argsort(self.image_ids[rows])
        place = order[np.searchsorted(self.image_ids[rows], owner, sorter=order)]
        own = Relevance.of_owner(place, pictures=len(rows))
        return {
            "i2t": (ranks(window, own, ties=self.ties), rows),
            "t2i": (ranks(window.T, own.T, ties=self.ties), self.units["t2i"][columns]),
        }

    def measured(self) -> Measured:
        """Everything that was added, as a report."""
        report: CocoReport = {}
        for figure, side in self.figures.sums:
            report.setdefault(figure, {})[side] = self.figures.value((figure, side))
        return Measured(report, self.figures)


def truth_folder() -> Path:
    """Where the installed package keeps its data; found without running its code."""
    spec = find_spec("eccv_caption")
    if spec is None or not spec.submodule_search_locations:
        raise Unfit("protocols eccv and cxc need the eccv-caption package: pip install 'matchlight[eccv]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def sparse_truth(truth: dict[str, list[int]], queries: Array, gallery: Array) -> tuple[Relevance, Array]:
    """A table of ids (query -> relevant items) as (relevance, how many items each query's table names)."""
    from scipy.sparse import csr_matrix

    place = {int(item): column for column, item in enumerate(gallery)}
    named = [set(truth.get(str(int(query)), ())) for query in queries]
    cells = [(row, place[item]) for row, items in enumerate(named) for item in items if item in place]
    rows, columns = np.array(cells, np.int64).reshape(-1, 2).T
    matrix = csr_matrix((np.ones(len(cells), bool), (rows, columns)), shape=(len(queries), len(gallery)))
    return Relevance.of_sparse(matrix), np.array([len(items) for items in named])


def coco_ids(pairs: Pairs, test_ids: Array, owners: dict[int, int]) -> tuple[Array, Array]:
    """COCO's ids of the pictures and captions: from `notes`, else from names and the order of a picture's captions."""
    images = _noted(pairs, "image_ids", "pictures", len(pairs.names))
    if images is None:
        images = np.array([_id_in(name, pairs) for name in pairs.names], np.int64)
    captions = _noted(pairs, "caption_ids", "rows", len(pairs))
    if captions is None:
        captions = _ids_by_order(pairs, images, test_ids, owners)
    return images, captions


def _noted(pairs: Pairs, key: str, places: str, count: int) -> Array | None:
    """Ids a reader left in `notes`; those of the whole data are cut to the subset at hand."""
    if key not in pairs.notes:
        return None
    ids = np.asarray(pairs.notes[key], np.int64)
    if len(ids) == count:
        return ids
    return np.asarray(ids[pairs.notes[places]]) if places in pairs.notes else None


def _id_in(name: str, pairs: Pairs) -> int:
    digits = re.search(r"(\d+)$", PurePosixPath(name).stem)
    if digits is None:
        raise Unfit(f"{pairs.root}: picture {name!r} has no COCO id in its name (like COCO_val2014_000000391895.jpg)")
    return int(digits.group(1))


def _ids_by_order(pairs: Pairs, images: Array, test_ids: Array, owners: dict[int, int]) -> Array:
    """The k-th caption of a picture is the k-th the test split lists for it."""
    known: dict[int, list[int]] = {}
    for caption in test_ids.tolist():
        known.setdefault(owners[caption], []).append(caption)
    seen: dict[int, int] = {}
    ids = []
    for row, image in enumerate(images[pairs.picture].tolist()):
        number = seen[image] = seen.get(image, -1) + 1
        if number >= len(known.get(image, [])):
            raise Unfit(f"{pairs.root}: row {row} is no caption of the COCO test split (picture id {image})")
        ids.append(known[image][number])
    return np.array(ids, np.int64)


def _check_complete(pairs: Pairs, have: Array, wanted: list[int], what: str) -> None:
    missing = len(set(wanted) - set(have.tolist()))
    if missing or len(have) != len(wanted):
        raise Unfit(
            f"{pairs.root}: ECCV Caption and CxC ask all {len(wanted)} COCO test {what}; "
            f"this data has {len(have)}, and {missing} of those asked are not among them"
        )
