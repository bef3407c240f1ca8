"""Vectors that propose, learned from the model's own scores: two small maps, one a side, trained in about a minute.

A cross-attention model has no vector whose inner products come near its scores. Here a picture's set is pooled (mean
and largest value of its vectors, and its vector of the whole where it has one) and mapped to one vector, a caption's
likewise, by a linear layer and one hidden layer beside it. The two maps learn to order candidates as the model does:
the model scores blocks of pictures and captions, most of them random, some of them such as the maps themselves confuse;
scores become ranks, ranks normal deviates, these a distribution over each row and column, and the maps are trained
towards it (KL divergence). Ranks, because some models' scores are squeezed into a corner and others' are not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import devices
from matchlight.console import track
from matchlight.core import IMAGE, TEXT, Embedding, Embeddings
from matchlight.indexing.candidate_vectors import BLOCK
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import as_embeddings
from matchlight.indexing.searcher import Searcher
from matchlight.parts.layers import masked_mean
from matchlight.training import checkpoints

DIM, HIDDEN = 256, 512
SIDE = 192  # pictures and captions of a block
BLOCKS = (6, 160)  # at least, at most: as many as show every pair twice
HARD = 1 / 8  # of the blocks are around what the maps confuse
SECONDS = 120.0  # of all cores together, for the model's scores of all blocks
STEPS, RATE, SHARP = 1500, 2e-3, 1.5

Block = tuple[Tensor, Tensor, Tensor]  # places of pictures, of captions, and the model's scores of all pairs


def pooled(embedding: Embeddings) -> Tensor:
    """(N, D) what is known of each item in one row: mean and maximum of its set, and the vector of the whole."""
    return torch.cat([_pooled(part) for part in embedding.members], 1)


def _pooled(part: Embedding) -> Tensor:
    x = part.vectors.float()
    mean = masked_mean(x, part.mask)
    if x.shape[1] == 1:
        return torch.cat([mean, *_whole(part)], 1)
    far = torch.finfo(x.dtype).min
    most = (x if part.mask is None else x.masked_fill(~part.mask[..., None], far)).amax(1)
    return torch.cat([mean, most, *_whole(part)], 1)


def _whole(part: Embedding) -> list[Tensor]:
    return [part.extra["global"].float().flatten(1)] if "global" in part.extra else []


class Map(nn.Module):
    """Pooled values, each scaled to mean 0 and deviation 1, -> a unit vector."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inside: int, dim: int, hidden: int = HIDDEN):
        super().__init__()
        self.linear = nn.Linear(inside, dim)
        self.first, self.second = nn.Linear(inside, hidden), nn.Linear(hidden, dim)
        nn.init.orthogonal_(self.linear.weight)
        nn.init.zeros_(self.second.weight)
        self.register_buffer("mean", torch.zeros(inside))
        self.register_buffer("scale", torch.ones(inside))

    def settle(self, sample: Tensor) -> None:
        """Take mean and deviation from a sample."""
        self.mean.copy_(sample.mean(0))
        self.scale.copy_(1 / sample.std(0).clamp(min=1e-4))

    def forward(self, x: Tensor) -> Tensor:
        """(N, dim)."""
        x = (x - self.mean) * self.scale
        return F.normalize(self.linear(x) + self.second(F.gelu(self.first(x))), dim=-1)


class Distilled:
    """Two maps as what proposes."""

    name = "distilled"

    def __init__(self, maps: nn.ModuleDict):
        self.maps = maps.eval().requires_grad_(False)

    @torch.inference_mode()
    def rows(self, sets: ItemSets, side: str) -> np.ndarray:
        """(N, 1, d)."""
        mapped: Tensor = self.maps[side](pooled(as_embeddings(sets)))
        return mapped[:, None].numpy()

    def save(self, path: Path) -> None:
        """Keep the maps in the index."""
        checkpoints.save_weights(path, self.maps.state_dict())

    @staticmethod
    def load(path: Path) -> Distilled:
        """The maps of an index."""
        state = checkpoints.load_weights(path)
        maps = nn.ModuleDict()
        for side in (IMAGE, TEXT):
            dim, inside = state[f"{side}.linear.weight"].shape
            maps[side] = Map(inside, dim, len(state[f"{side}.first.weight"]))
        maps.load_state_dict(state)
        return Distilled(maps)


@torch.inference_mode()
def all_pooled(searcher: Searcher, side: str) -> Tensor:
    """(N, D) float16 pooled values of every item."""
    return torch.cat([pooled(as_embeddings(part)).half() for _, part in searcher.sides[side].sets.blocks(BLOCK)])


def distilled(
    searcher: Searcher, *, seed: int, seconds: float | None = None, unseen: dict[str, np.ndarray] | None = None
) -> Distilled:
    """Learn the two maps from the model's scores; `unseen` are places of each side that are kept from them."""
    before = torch.random.get_rng_state()
    devices.seed(seed)
    try:
        values = {side: all_pooled(searcher, side) for side in (IMAGE, TEXT)}
        dim = min(DIM, *(value.shape[1] for value in values.values()))
        maps = nn.ModuleDict({side: Map(value.shape[1], dim) for side, value in values.items()})
        for side, value in values.items():
            one = maps[side]
            assert isinstance(one, Map)
            one.settle(value[:: max(1, len(value) // 4096)].float())
        known = {side: _seen(len(value), (unseen or {}).get(side)) for side, value in values.items()}
        limit = SECONDS if seconds is None else seconds
        scored = ScoredBlocks(searcher, maps, values, known, np.random.default_rng(seed), limit)
        blocks = scored.blocks(hard=False)
        _learn(maps, values, blocks, steps=STEPS // 4)
        _learn(maps, values, [*blocks, *scored.blocks(hard=True)], steps=STEPS)
    finally:
        torch.random.set_rng_state(before)
    return Distilled(maps)


def _seen(count: int, unseen: np.ndarray | None) -> np.ndarray:
    """Places that may be learned from; where half of them were kept away, too little would be left to learn from."""
    places = np.arange(count)
    left = places if unseen is None else np.setdiff1d(places, unseen)
    return left if 2 * len(left) >= count else places


@dataclass
class ScoredBlocks:
    """Blocks of pictures and captions with the model's scores of them."""

    searcher: Searcher
    maps: nn.ModuleDict
    values: dict[str, Tensor]
    known: dict[str, np.ndarray]  # places that may be scored
    rng: np.random.Generator
    seconds: float

    def blocks(self, *, hard: bool) -> list[Block]:
        """As many as are worth it, for as long as there is time."""
        share = HARD if hard else 1 - HARD
        every = len(self.values[IMAGE]) * len(self.values[TEXT])
        count = max(1, round(share * min(max(2 * every // SIDE**2, BLOCKS[0]), BLOCKS[1])))
        began, out = time.process_time(), []
        for number in track(range(count), "asking the model"):
            if number >= share * BLOCKS[0] and time.process_time() - began > share * self.seconds:
                break
            out.append(self._scored(*(self._near() if hard else self._random())))
        return out

    def _scored(self, images: np.ndarray, texts: np.ndarray) -> Block:
        images, texts = np.sort(images), np.sort(texts)
        sides = self.searcher.sides
        scores = self.searcher.scorer.scores(sides[IMAGE].sets.take(images), sides[TEXT].sets.take(texts))
        return torch.from_numpy(images), torch.from_numpy(texts), torch.from_numpy(scores)

    def _random(self) -> list[np.ndarray]:
        return [self._some(side, SIDE) for side in (IMAGE, TEXT)]

    def _some(self, side: str, count: int) -> np.ndarray:
        known = self.known[side]
        return self.rng.choice(known, min(count, len(known)), replace=False)

    @torch.inference_mode()
    def _near(self) -> list[np.ndarray]:
        """Pictures and captions around a few captions drawn at random: what the maps, as they are, find alike."""
        values = self.values
        queries, nearest = self.maps[TEXT](values[TEXT][self._some(TEXT, 4)].float()), []
        for side in (IMAGE, TEXT):
            parts = torch.split(torch.from_numpy(self.known[side]), 8192)
            score = torch.cat([self.maps[side](values[side][part].float()) @ queries.T for part in parts]).amax(1)
            nearest.append(self.known[side][score.topk(min(SIDE, len(score))).indices.numpy()])
        return nearest


def _learn(maps: nn.ModuleDict, values: dict[str, Tensor], blocks: list[Block], *, steps: int) -> None:
    """Some hundred steps over the blocks, the rate falling to nothing."""
    heat = nn.Parameter(torch.tensor(3.0))  # log of what inner products are multiplied with
    optimiser = torch.optim.AdamW([*maps.parameters(), heat], lr=RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    wanted = [(deviates(scores), deviates(scores.T)) for _, _, scores in blocks]
    order = torch.randint(len(blocks), (steps,), generator=torch.Generator().manual_seed(0)).tolist()
    for number in track(order, "distilling"):
        images, texts, _ = blocks[number]
        product = maps[IMAGE](values[IMAGE][images].float()) @ maps[TEXT](values[TEXT][texts].float()).T
        product = product * heat.exp()
        loss = _divergence(product, wanted[number][0]) + _divergence(product.T, wanted[number][1])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def deviates(scores: Tensor) -> Tensor:
    """Each row's ranks as normal deviates: the median 0, the best of 192 about 2.8."""
    rank = scores.argsort(1).argsort(1).float()
    out: Tensor = torch.special.ndtri((rank + 0.5) / scores.shape[1])
    return out


def _divergence(products: Tensor, wanted: Tensor) -> Tensor:
    """KL divergence of rows: sharpened deviates against the maps' products."""
    return F.kl_div(products.log_softmax(1), (SHARP * wanted).log_softmax(1), reduction="batchmean", log_target=True)
