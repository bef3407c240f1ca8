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
from functools import partial
from typing import TypedDict

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from matchlight.core import IMAGE, TEXT, Embedding, Embeddings, Matcher
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.shards import slot_shares
from matchlight.methods.similarity_vectors import SimilarityVectors
from matchlight.parts.attention import CrossAttention, attention, cosines, own
from matchlight.parts.set_similarities import SetSimilarity
from matchlight.runs.evaluation import products_in

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


@torch.inference_mode()
def explain(index: OpenIndex, place: int, words: str) -> Explanation:
    """Words, regions (boxes in parts of the picture), weights (words x regions, 0..1) and the score of the pair."""
    ids, names, unknown = index.encoder.tokens(words)
    named = [k for k, name in enumerate(names) if name]
    query = index.encoder.embed(TEXT, index.encoder.text_items([ids]))
    stored = index.searcher.sides[IMAGE].sets.take(np.array([place])).to(index.run.device)
    members = index.run.matcher.each()
    pairs = list(zip(members, stored.members, query.members, strict=True))
    with products_in("fp32", index.run.device):
        score = float(index.run.matcher.score(stored, query).float().item())
        by_member = [member_weights(*pair) for pair in pairs]
        if all(one is not None for one in by_member):
            weights = torch.stack([one for one in by_member if one is not None]).mean(0).float().cpu()
            kind, regions = _kind(members[0]), boxes_of(index, stored.members[0], weights.shape[1])
        else:
            kind, (weights, regions) = "occlusion", occluded(index, place, ids, named)
    shown = named[: len(weights)]
    shares = stored.members[0].extra.get("shares")
    return {
        "words": [names[k] for k in shown],
        "regions": [list(box) for box in regions],
        "weights": scaled(weights[shown]).tolist(),
        "score": score,
        "kind": kind,
        "slots": [] if shares is None else scaled(shares[0].T.float().cpu()).tolist(),
        "nearest": [] if shares is None else nearest(index, stored),
        "unknown": unknown,
    }


def scaled(weights: Tensor) -> Tensor:
    """Between 0 and 1, the largest 1."""
    positive = weights.clamp(min=0)
    return positive / positive.max().clamp(min=1e-12) if positive.numel() else positive


def _kind(member: Matcher) -> str:
    return "slots" if isinstance(member.similarity, SetSimilarity) else "attention"


# ---- what models say themselves --------------------------------------------------------------------------------------


def member_weights(member: Matcher, image: Embedding, text: Embedding) -> Tensor | None:
    """(W, R) from the inside of one model; None where it has no inside to look at."""
    similarity = member.similarity
    if isinstance(similarity, SimilarityVectors):
        return _agreeing(similarity.attention(image, text, paired=True)[0], image, text)
    if isinstance(similarity, CrossAttention):
        return _attended(similarity, image, text)
    if isinstance(similarity, SetSimilarity) and "shares" in image.extra and slot_shares(text) is not None:
        return _through_slots(image, text)
    return None


def _agreeing(weights: Tensor, image: Embedding, text: Embedding) -> Tensor:
    """Attention (W, R), each word weighted by the cosine between it and what it saw."""
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-12)
    saw = weights @ image.vectors[0]
    agree = torch.cosine_similarity(saw, text.vectors[0], dim=-1).clamp(min=0)
    return weights * agree[:, None]


def _attended(similarity: CrossAttention, image: Embedding, text: Embedding) -> Tensor:
    both = []
    attend = partial(attention, temperature=getattr(similarity, "temperature", 9.0))
    if isinstance(norm := getattr(similarity, "norm", None), str):
        attend = partial(attend, norm=norm)
    for way in similarity.directions:
        meeting = own(text, image) if way == "t2i" else own(image, text)
        weights = attend(meeting)
        agree = cosines(meeting, weights).clamp(min=0)[0, 0]  # of each word, or of each region
        weights = weights[0, :, 0] * agree[None]
        both.append(weights.T if way == "t2i" else weights)
    return torch.stack(both).mean(0)


def _through_slots(image: Embedding, text: Embedding) -> Tensor:
    """Word -> the slots that took it -> the picture's slots near those -> the regions they took."""
    words, regions = slot_shares(text), image.extra["shares"]
    assert words is not None
    near = (16 * (text.vectors[0] @ image.vectors[0].T)).flatten().softmax(0).view(text.vectors.shape[1], -1)
    weights = words[0].float() @ near @ regions[0].float().T
    if weights.shape[1] == 1:
        return weights
    return weights - weights.amin(1, keepdim=True)  # slots share evenly what they ignore


def nearest(index: OpenIndex, image: Embeddings) -> list[NearCaption]:
    """For each slot of a picture the caption with the slot nearest to it; none where the index has no row a slot."""
    side = index.searcher.sides.get(TEXT)
    rows = index.searcher.proposer.rows(image, IMAGE)[0]
    if side is None or side.engine is None or side.engine.each < 2 or len(rows) != image.members[0].vectors.shape[1]:
        return []
    scores, ids = side.engine.search(rows.numpy(), 1)
    out: list[NearCaption] = []
    for score, near in zip(scores, (side.places(one) for one in ids), strict=True):
        place = int(near[0]) if len(near) else -1
        row, caption = (int(side.numbers[place]), index.catalogue.caption(place)) if len(near) else (-1, "")
        out.append({"row": row, "caption": caption, "score": float(score[0])})
    return out


def boxes_of(index: OpenIndex, image: Embedding, count: int) -> list[Box]:
    """Where a picture's regions are: its own boxes, cells of the backbone's grid, or the whole where nobody knows."""
    if "box" in image.extra and image.extra["box"].shape[1] == count:
        return [tuple(float(v) for v in box[:4]) for box in image.extra["box"][0].cpu()]  # type: ignore[misc]
    view = index.run.info["view"]
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


def occluded(index: OpenIndex, place: int, ids: list[int], named: list[int]) -> tuple[Tensor, list[Box]]:
    """(W, R) what a word and a tile are worth together; one region, the whole, where there is no picture to hide."""
    matcher, encoder = index.run.matcher, index.encoder
    hidden = (named or list(range(len(ids))))[:WORDS]
    texts = encoder.embed(TEXT, encoder.text_items([ids, *(_without(ids, k) for k in hidden)]))
    thumb = index.thumbs[place] if index.thumbs is not None and encoder.sees else b""
    weights = torch.zeros(len(ids), 1)
    if not thumb:
        image = index.searcher.sides[IMAGE].sets.take(np.array([place])).to(index.run.device)
        scores = matcher.score(image, texts).float().cpu()[0]
        weights[hidden, 0] = scores[0] - scores[1:]
        return weights, [WHOLE]
    regions = grid(TILES * TILES, 1.0)
    picture = Image.open(io.BytesIO(thumb)).convert("RGB")
    images = encoder.embed(IMAGE, encoder.image_items([picture, *(_hide(picture, box) for box in regions)]))
    scores = matcher.score(images, texts).float().cpu()
    worth = scores[:1, :1] - scores[:1, 1:] - scores[1:, :1] + scores[1:, 1:]
    weights = torch.zeros(len(ids), len(regions))
    weights[hidden] = worth.T
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
