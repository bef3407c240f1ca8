"""Scores that stay on their device, and ranks counted there: no sort, and nothing but ranks travels to the host.

`metrics.ranks` is the referee and reads any relevance; this is the same count for the common case, each caption
belonging to one picture, at the speed of the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchlight.core import BadInput, Embeddings, Matcher
from matchlight.measuring.metrics import NOTHING
from matchlight.scoring.all_pairs import default_budget, plan_blocks, trim


@torch.inference_mode()
def device_scores(matcher: Matcher, images: Embeddings, texts: Embeddings, *, budget: int | None = None) -> Tensor:
    """(I, T) float32 scores on the model's device, in blocks under a byte budget, which never change the result."""
    where = _device(matcher, images)
    blocks = plan_blocks(matcher, images, texts, budget or default_budget(where))
    out = torch.empty(len(images), len(texts), device=where)
    whole = len(blocks.runs) == 1 and blocks.tall >= len(images)
    for start, stop, width in blocks.runs:
        places = torch.from_numpy(blocks.order[start:stop])
        some = (texts if whole else texts.take(places)).to(where)  # one block keeps the order it came in
        some = some if matcher.depends_on_padding or whole else trim(some, width)
        for i in range(0, len(images), blocks.tall):
            rows = slice(i, i + blocks.tall)
            block = matcher.score(images.take(rows).to(where), some).float()
            if whole:
                return block
            out[rows, places.to(where)] = block
    return out


def _device(matcher: Matcher, images: Embeddings) -> torch.device:
    """Where the model's weights are; a model without weights scores where the vectors are."""
    weight = next(matcher.parameters(), None)
    if weight is not None:
        return weight.device
    return images.members[0].vectors.device


@torch.inference_mode()
def ranks_both_ways(scores: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks (from 0) of each picture's best caption and of each caption's picture; tied wrong items come first.

    `owner` (T,) is the picture of each caption. A picture without captions has rank `NOTHING`.
    """
    pictures, captions = scores.shape
    owner = owner.to(scores.device)
    own = scores[owner, torch.arange(captions, device=scores.device)]
    by_caption = (scores >= own).sum(0) - 1  # all but itself that score as high
    best = scores.new_full((pictures,), -torch.inf).scatter_reduce_(0, owner, own, "amax")
    level = torch.zeros(pictures, dtype=torch.int64, device=scores.device)
    level.scatter_add_(0, owner, (own >= best[owner]).long())  # own captions are not wrong
    by_picture = (scores >= best[:, None]).sum(1) - level
    asked = torch.zeros(pictures, dtype=torch.bool, device=scores.device).index_fill_(0, owner, True)
    if bool(scores.isnan().any()):
        raise BadInput("scores: some are no numbers (NaN); every pair needs a score")
    return torch.where(asked, by_picture, NOTHING), by_caption
