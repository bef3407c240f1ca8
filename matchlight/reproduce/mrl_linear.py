"""The linear baselines of MRL's table on a data set: read, project, choose the dimension on val, score a split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch

from matchlight.core import IMAGE, TEXT
from matchlight.devices import pick_device
from matchlight.inputs.prepare import Inputs, prepare, view_of
from matchlight.measuring.protocols import evaluate_scores, figure
from matchlight.pairs import Pairs
from matchlight.parts.labelwise import Vector, width
from matchlight.reproduce.linear import LINEAR, Maps, Views
from matchlight.reproduce.linear.views import WIDE

DIMENSIONS = (2, 4, 8, 16, 32, 64, 128)
BLOCK = 4096  # items that are read at a time


@dataclass(frozen=True, eq=False)
class Plain:
    """A data set as one vector an item: principal components of the training items, by side and split."""

    pairs: Pairs
    vectors: dict[tuple[str, str], np.ndarray]

    @staticmethod
    def of(pairs: Pairs, *splits: str, device: str = "auto") -> Plain:
        """Features, the mean of regions, or counts of words: what the methods of the table are given."""
        where = pick_device(device)
        inputs = prepare(pairs, view_of({}, pooled=True, pairs=pairs), device=where)
        vectors: dict[tuple[str, str], np.ndarray] = {}
        for side in (IMAGE, TEXT):
            raw = {split: _raw(inputs, side, split) for split in ("train", *splits)}
            mean = raw["train"].mean(0)
            turn = _components(raw["train"] - mean)
            vectors |= {(side, split): (x - mean) @ turn for split, x in raw.items()}
        return Plain(pairs, vectors)

    def views(self, labelled: Pairs) -> Views:
        """The training items with the labels that they are said to have in `labelled`."""
        assert labelled.labels is not None
        pictures, rows = labelled.pictures_of("train"), labelled.rows("train")
        pairs = np.stack([np.searchsorted(pictures, labelled.picture[rows]), np.arange(len(rows))], 1)
        labels = {IMAGE: labelled.labels.image[pictures], TEXT: labelled.labels.text[rows]}
        return Views({side: self.vectors[side, "train"] for side in (IMAGE, TEXT)}, pairs, labels)

    def scores(self, maps: Maps, split: str, *, dim: int) -> np.ndarray:
        """(pictures, texts) cosines of a split."""
        return maps.cosines(self.vectors[IMAGE, split], self.vectors[TEXT, split], dim=dim)

    def fitted(self, name: str, labelled: Pairs, split: str) -> tuple[np.ndarray, int]:
        """Scores of a split by the baseline of that name, and how many directions they have: the best on val."""
        maps = LINEAR[name](self.views(labelled))
        known = [dim for dim in DIMENSIONS if dim < maps.most] + [maps.most]
        if (IMAGE, "val") not in self.vectors:
            return self.scores(maps, split, dim=maps.most), maps.most
        val = self.pairs.subset("val")
        maps_on_val = {dim: self._map(self.scores(maps, "val", dim=dim), val) for dim in known}
        best = max(known, key=lambda dim: maps_on_val[dim])
        return self.scores(maps, split, dim=best), best

    @staticmethod
    def _map(scores: np.ndarray, part: Pairs) -> float:
        return figure(evaluate_scores(scores, part, protocol="labels"), "map", "mean")


@torch.inference_mode()
def _raw(inputs: Inputs, side: str, split: str) -> np.ndarray:
    """(N, D) float64: the items of a side and split, as they are."""
    pairs = inputs.table.pairs
    places = pairs.pictures_of(split) if side == IMAGE else pairs.rows(split)
    reader = Vector(width(inputs.sizes, side), inputs="raw")
    parts = [places[start : start + BLOCK] for start in range(0, len(places), BLOCK)]
    return np.concatenate([reader(inputs.table.items(side, part)).double().cpu().numpy() for part in parts])


def _components(x: np.ndarray) -> np.ndarray:
    """(D, d) the principal directions, scaled so that the items' mean variance is 1."""
    wide = x.shape[1] > len(x)  # then x x' is the smaller of the two, and has the same ones
    kept = min(WIDE, *x.shape)
    square = x @ x.T if wide else x.T @ x
    _, vectors = scipy.linalg.eigh(square, subset_by_index=[len(square) - kept, len(square) - 1])
    turn = x.T @ vectors if wide else vectors
    turn /= np.maximum(np.linalg.norm(turn, axis=0), 1e-12)
    return turn[:, ::-1] / max(float((x @ turn).std()), 1e-12)
