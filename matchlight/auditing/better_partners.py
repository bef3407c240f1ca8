"""Better partners: for each pair the other picture its caption fits best, and the other caption its picture fits best.

The model that proposes them never saw the pair, so it cannot have memorised the wrong pairing. Each proposal comes
with its share of the probability among all pictures (or captions) of the set, own partner included.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from matchlight.auditing.neighbours import BLOCK, AuditedRows, of_own_group

TEMPERATURE = 0.05
KEPT = 3  # proposals a pair, so that several models can agree on one


@torch.inference_mode()
def better_partners(images: Tensor, texts: Tensor, audited: AuditedRows, rows: np.ndarray) -> dict[str, np.ndarray]:
    """`other_picture`, `other_caption` (q, KEPT) with `..._share` (q, KEPT), and `own_share` both ways (q,)."""
    place = torch.from_numpy(rows).to(texts.device)
    mine = audited.picture[rows]
    owner = audited.owner[rows]
    by_caption = _best(texts[place], images, mine, owner, audited.group)
    queries, back = np.unique(mine, return_inverse=True)
    by_picture = _best(
        images[torch.from_numpy(queries).to(images.device)], texts, None, audited.group[queries], audited.owner
    )
    return {
        "other_picture": by_caption[0],
        "other_picture_share": by_caption[1],
        "other_caption": by_picture[0][back],
        "other_caption_share": by_picture[1][back],
        "own_share": by_caption[2],
    }


@torch.inference_mode()
def best_in_blocks(
    queries: Tensor,
    blocks: Iterable[tuple[int, Tensor]],
    own: np.ndarray | None,
    own_group: np.ndarray,
    groups: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_best` of candidates that come a block at a time, each with the place where it begins."""
    mine, theirs = torch.from_numpy(np.asarray(own_group)), torch.from_numpy(np.asarray(groups))
    total = torch.full((len(queries),), float("-inf"))
    value, place = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    mate = torch.full((len(queries),), float("-inf"))
    for start, among in blocks:
        score = queries @ among.T / TEMPERATURE
        total = torch.logaddexp(total, score.logsumexp(1))
        if own is not None:
            here = np.flatnonzero((own >= start) & (own < start + len(among)))
            mate[here] = score[here, own[here] - start]
        score.masked_fill_(mine[:, None] == theirs[None, start : start + len(among)], float("-inf"))
        best, where = score.topk(min(KEPT, len(among)), dim=1)
        value, place = torch.cat([value, best], 1), torch.cat([place, where + start], 1)
        value, kept = value.topk(min(KEPT, value.shape[1]), dim=1)
        place = place.gather(1, kept)
    places = place.masked_fill(value == float("-inf"), -1).numpy().astype(np.int32)
    return places, (value - total[:, None]).exp().numpy(), (mate - total).exp().numpy()


def _best(
    queries: Tensor, among: Tensor, own: np.ndarray | None, own_group: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places and probability shares of the best that are of other groups, and the share of the own partner."""
    step, order = max(1, BLOCK // len(among)), np.argsort(groups, kind="stable")
    places, shares, kept = [], [], []
    for start in range(0, len(queries), step):
        some = slice(start, start + step)
        scores = (queries[some] / TEMPERATURE) @ among.T
        all_of_it = scores.logsumexp(1, keepdim=True)
        if own is not None:
            mine = scores.gather(1, torch.from_numpy(own[some]).to(scores.device)[:, None])
            kept.append((mine - all_of_it).exp()[:, 0].cpu())
        query, place = of_own_group(own_group[some], groups, order)
        scores[torch.from_numpy(query).to(scores.device), torch.from_numpy(place).to(scores.device)] = -torch.inf
        value, best = scores.topk(min(KEPT, len(among)), dim=1)
        places.append(best.masked_fill(value == -torch.inf, -1).cpu())
        shares.append((value - all_of_it).exp().cpu())
    own_share = torch.cat(kept).numpy() if kept else np.zeros(0, dtype=np.float32)
    return torch.cat(places).numpy().astype(np.int32), torch.cat(shares).numpy(), own_share
