"""Why this picture: for every word of a question, how much each region of the picture answered it.

- Cross-attention models say it themselves: the attention of words to regions (or of regions to words), each word
  weighted by how well it agrees with what it saw.
- Sets of slots: which regions a picture's slots took, which words a caption's slots took, and how near the slots are.
- All others score the pair without a word, without a tile of the picture, and without both: what the two add together
  is s(both) - s(without the word) - s(without the tile) + s(without either).
"""

from __future__ import annotations

import io
import math
from typing import TypedDict

import numpy as np
from PIL import Image

from matchlight.indexing.item_sets import EXTRA, ItemSets
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.scorers import as_float32
from matchlight.pairs import IMAGE, TEXT

Box = tuple[float, float, float, float]
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
TILES = 4  # a side, where a picture has to be looked at without parts of it
WORDS = 40  # left out one by one, at most


class NearCaption(TypedDict):
    """The caption nearest to one slot of a picture."""

    row: int
    caption: str
    score: float


class Explanation(TypedDict):
    """Why a picture was found."""

    words: list[str]
    regions: list[list[float]]  # boxes in parts of the picture
    weights: list[list[float]]  # words x regions, 0 to 1
    score: float
    kind: str  # attention, slots, or occlusion: how the weights were worked out
    slots: list[list[float]]  # what each slot of the picture took of the regions
    nearest: list[NearCaption]
    unknown: list[str]  # words that the model does not know


def explain(index: OpenIndex, place: int, words: str) -> Explanation:
    """Words, regions (boxes in parts of the picture), weights (words x regions, 0..1) and the score of the pair."""
    ids, names, unknown = index.encoder.tokens(words)
    named = [k for k, name in enumerate(names) if name]
    query = index.encoder.texts([ids])
    stored = index.searcher.sides[IMAGE].sets.take(np.array([place]))
    score = float(index.searcher.scorer.scores(stored, query)[0, 0])
    if (inside := index.model.inside(stored, query)) is not None:
        kind, weights = inside
        regions = boxes_of(index, stored, weights.shape[1])
    else:
        kind, (weights, regions) = "occlusion", occluded(index, stored, place, ids, named)
    shown = named[: len(weights)]
    shares = stored.members[0].get(f"{EXTRA}shares")
    return {
        "words": [names[k] for k in shown],
        "regions": [list(box) for box in regions],
        "weights": scaled(weights[shown]).tolist(),
        "score": score,
        "kind": kind,
        "slots": [] if shares is None else scaled(as_float32(shares[0].T)).tolist(),
        "nearest": [] if shares is None else nearest(index, stored),
        "unknown": unknown,
    }


def scaled(weights: np.ndarray) -> np.ndarray:
    """Between 0 and 1, the largest 1."""
    positive = np.maximum(weights, 0)
    return np.asarray(positive / max(float(positive.max(initial=0)), 1e-12))


def nearest(index: OpenIndex, image: ItemSets) -> list[NearCaption]:
    """For each slot of a picture the caption with the slot nearest to it; none where the index has no row a slot."""
    side = index.searcher.sides.get(TEXT)
    rows = index.searcher.proposer.rows(image, IMAGE)[0]
    if side is None or side.engine is None or side.engine.each < 2 or len(rows) != image.vectors.shape[1]:
        return []
    scores, ids = side.engine.search(as_float32(rows), 1)
    out: list[NearCaption] = []
    for score, near in zip(scores, (side.places(one) for one in ids), strict=True):
        place = int(near[0]) if len(near) else -1
        row, caption = (int(side.numbers[place]), index.catalogue.caption(place)) if len(near) else (-1, "")
        out.append({"row": row, "caption": caption, "score": float(score[0])})
    return out


def boxes_of(index: OpenIndex, image: ItemSets, count: int) -> list[Box]:
    """Where a picture's regions are: its own boxes, cells of the backbone's grid, or the whole where nobody knows."""
    known = image.members[0].get(f"{EXTRA}box")
    if known is not None and known.shape[1] == count:
        return [tuple(float(v) for v in box[:4]) for box in known[0]]  # type: ignore[misc]
    view = index.model.info["view"]
    if view["kind"] == "given":
        return [WHOLE] * count
    size = view["size"]
    height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    return grid(count, height / width)


def grid(count: int, shape: float) -> list[Box]:
    """Cells row after row; as many rows as make them nearly square in a picture of this height / width."""
    rows = min((r for r in range(1, count + 1) if count % r == 0), key=lambda r: abs(math.log(r * r / count / shape)))
    columns = count // rows
    return [(c / columns, r / rows, (c + 1) / columns, (r + 1) / rows) for r in range(rows) for c in range(columns)]


# ---- asking without ------------------------------------------------------------------------------------------------


def occluded(
    index: OpenIndex, stored: ItemSets, place: int, ids: list[int], named: list[int]
) -> tuple[np.ndarray, list[Box]]:
    """(W, R) what a word and a tile are worth together; one region, the whole, where there is no picture to hide."""
    scorer, encoder = index.searcher.scorer, index.encoder
    hidden = (named or list(range(len(ids))))[:WORDS]
    texts = encoder.texts([ids, *(_without(ids, k) for k in hidden)])
    thumb = index.thumbs[place] if index.thumbs is not None and encoder.sees else b""
    if not thumb:
        scores, weights = scorer.scores(stored, texts)[0], np.zeros((len(ids), 1), np.float32)
        weights[hidden, 0] = scores[0] - scores[1:]
        return weights, [WHOLE]
    regions = grid(TILES * TILES, 1.0)
    picture = Image.open(io.BytesIO(thumb)).convert("RGB")
    scores = scorer.scores(encoder.pictures([picture, *(_hide(picture, box) for box in regions)]), texts)
    weights = np.zeros((len(ids), len(regions)), np.float32)
    weights[hidden] = (scores[:1, :1] - scores[:1, 1:] - scores[1:, :1] + scores[1:, 1:]).T
    return weights, regions


def _without(ids: list[int], place: int) -> list[int]:
    return ids[:place] + ids[place + 1 :] if len(ids) > 1 else ids


def _hide(picture: Image.Image, box: Box) -> Image.Image:
    """The picture with one tile in its mean colour."""
    width, height = picture.size
    out = picture.copy()
    mean = tuple(int(value) for value in np.asarray(picture).reshape(-1, 3).mean(0))
    corners = (round(box[0] * width), round(box[1] * height), round(box[2] * width), round(box[3] * height))
    out.paste(mean, corners)
    return out
