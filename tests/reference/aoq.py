"""AOQ step by step: one caption's ranking after the other, one quintuplet after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from matchlight.pairs import Pairs
from matchlight.training.mining import Candidates


def ranked(scores: np.ndarray, own: np.ndarray, top: int) -> list[int]:
    """Places from the highest score to the lowest, own ones left out."""
    order = np.argsort(-scores, kind="stable")
    return [int(place) for place in order if not own[place]][:top]


def mined(scores: np.ndarray, owner: np.ndarray, texts: int, images: int) -> tuple[list[list[int]], list[list[int]]]:
    """Both kinds of lists from a whole matrix (pictures x captions)."""
    first = [ranked(row, owner == i, texts) for i, row in enumerate(scores)]
    places = np.arange(len(scores))
    return first, [ranked(column, places == owner[c], images) for c, column in enumerate(scores.T)]


def every_other(pairs: Pairs, rows: np.ndarray) -> Candidates:
    """Lists that name everything but one's own, in table order."""
    owner = pairs.picture[rows]
    pictures = np.unique(owner)
    texts = np.stack([rows[owner != i] for i in pictures])
    images = np.stack([pictures[pictures != i] for i in owner])
    return Candidates(pictures, rows, texts, images)


def loss(
    score: Callable[[int, int], Tensor], quintuplets: list[dict[str, int]], settings: dict[str, float], *, kind: str
) -> Tensor:
    """The sum over items of their six hinges; `score(i, t)` is one number, items are named by place."""
    total = torch.zeros(())
    for b, item in enumerate(quintuplets):
        image, text = item["image"], item["text"]
        pos = score(image, text)
        others = [other for j, other in enumerate(quintuplets) if j != b]
        online_text = torch.stack([score(image, other["text"]) for other in others]).amax()
        online_image = torch.stack([score(other["image"], text) for other in others]).amax()
        a1, a2 = score(image, item["off_text"]), score(item["off_image"], text)
        b1, b2 = score(item["off_image"], item["off_text"]), score(item["partner_image"], item["partner_text"])
        w_text = w_image = torch.ones(())
        if kind == "adapoffquin":
            w_text = settings["beta"] - (a1 - online_text) / settings["alpha"]
            w_image = settings["beta"] - (a2 - online_image) / settings["alpha"]
        total = total + w_text * (settings["margin"] + online_text - pos).relu()
        total = total + w_image * (settings["margin"] + online_image - pos).relu()
        for offline in (a1, a2) if kind == "offtri" else (a1, a2, b1, b2):
            total = total + (settings["margin_offline"] + offline - pos).relu()
    return total
