"""Items laid out in the plane: which of a split are shown, the vectors they have, and t-SNE of those.

t-SNE keeps near vectors near; distances between far groups mean nothing. Items that have several of the classes shown,
or none, are left out: a point has one colour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from matchlight.core import IMAGE, TEXT, Embedding
from matchlight.inputs.batches import seeded
from matchlight.measuring.protocols.measured import Unfit
from matchlight.pairs import Pairs
from matchlight.parts.labelwise import Vector, width
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode_both

MOST_CLASSES = 10  # colours that can be distinguished
MOST_ITEMS = 1000  # of a side: more are a blot on paper, and slow
SIDES = {IMAGE: "picture", TEXT: "text"}


@dataclass(frozen=True)
class Shown:
    """Items of a split that a map shows: places in the whole table, and the class of each (a number in `names`)."""

    names: list[str]
    place: dict[str, np.ndarray]
    label: dict[str, np.ndarray]


def chosen_items(pairs: Pairs, classes: np.ndarray, *, split: str = "test", seed: int = 0) -> Shown:
    """Items of the split with exactly one of these classes; of very many, a sample."""
    assert pairs.labels is not None
    sides = {IMAGE: (pairs.labels.image, pairs.pictures_of(split)), TEXT: (pairs.labels.text, pairs.rows(split))}
    place, label = {}, {}
    for side, (table, places) in sides.items():
        hot = table[places][:, classes]
        places, hot = places[hot.sum(1) == 1], hot[hot.sum(1) == 1]
        keep = np.sort(seeded(seed, len(places)).permutation(len(places))[:MOST_ITEMS])
        place[side], label[side] = places[keep], hot[keep].argmax(1)
    if min(map(len, place.values())) < 3:
        raise Unfit(f"{pairs.root}: too few items of {split} have exactly one of the classes shown for a map")
    return Shown([pairs.labels.names[k] for k in classes], place, label)


def frequent(pairs: Pairs, *, most: int = MOST_CLASSES, split: str = "test") -> np.ndarray:
    """The classes of most pictures of a split, in the data's order."""
    assert pairs.labels is not None
    counts = pairs.labels.image[pairs.pictures_of(split)].sum(0)
    return np.sort(np.argsort(-counts, kind="stable")[:most])


def laid_out(vectors: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """(N, 2) places in the plane."""
    from sklearn.manifold import TSNE

    near = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=near, init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(np.asarray(vectors, np.float64)))


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows at length 1: distances then follow cosines, which is what the methods compare by."""
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def vectors_of(run: Run, pairs: Pairs, items: Shown) -> np.ndarray:
    """(pictures + texts, D) unit vectors of the items shown."""
    sides = encode_both(run.matcher, run.inputs(pairs).table, items.place[IMAGE], items.place[TEXT])
    vectors = [side.single.float().cpu().numpy() for side in sides if isinstance(side, Embedding)]
    return unit_rows(np.concatenate(vectors))


@torch.inference_mode()
def raw_vectors(run: Run, pairs: Pairs, items: Shown) -> dict[str, np.ndarray]:
    """What the methods are given, by side: features, the mean of regions, or counts of words."""
    inputs = run.inputs(pairs)
    made = {}
    for side, places in items.place.items():
        reader = Vector(width(inputs.sizes, side), inputs="raw")
        made[side] = reader(inputs.table.items(side, places)).float().cpu().numpy()
    return made
