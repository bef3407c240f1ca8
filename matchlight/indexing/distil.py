"""Vectors that propose, learned from the model's own scores: two small maps, one a side, trained in under a minute.

A cross-attention model has no vector whose inner products come near its scores. Here a picture's set is pooled (mean
and largest value of its vectors, and its vector of the whole where it has one) and mapped to one vector, a caption's
likewise, and the two maps learn to order candidates as the model does: the model's scores of blocks of pictures and
captions, random ones and such as the maps themselves confuse, become distributions over each row and column, and the
maps are trained towards them (KL divergence).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchlight import checkpoints
from matchlight.console import track
from matchlight.core import IMAGE, TEXT, Embedding, Embeddings
from matchlight.evaluation import products_in
from matchlight.indexing.coarse import BLOCK
from matchlight.indexing.searching import Searcher
from matchlight.indexing.vectors import Sets
from matchlight.layers import masked_mean
from matchlight.similarity import parts_of, score_all

DIM = 256
SIDE = 384  # pictures and captions of a block
SECONDS = 25.0  # for the model's scores of all blocks, and about as much for training
BLOCKS = (6, 48)  # at least, at most
STEPS, RATE, SHARP = 500, 2e-3, 4.0


def pooled(embedding: Embeddings) -> Tensor:
    """(N, D) what is known of each item in one row: mean and maximum of its set, and the vector of the whole."""
    return torch.cat([_pooled(part) for part in parts_of(embedding)], 1)


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

    def __init__(self, inside: int, dim: int):
        super().__init__()
        self.linear = nn.Linear(inside, dim)
        nn.init.orthogonal_(self.linear.weight)
        self.register_buffer("mean", torch.zeros(inside))
        self.register_buffer("scale", torch.ones(inside))

    def settle(self, sample: Tensor) -> None:
        """Take mean and deviation from a sample."""
        self.mean.copy_(sample.mean(0))
        self.scale.copy_(1 / sample.std(0).clamp(min=1e-4))

    def forward(self, x: Tensor) -> Tensor:
        """(N, dim)."""
        return F.normalize(self.linear((x - self.mean) * self.scale), dim=-1)


class Distilled:
    """Two maps as what proposes."""

    name = "distilled"

    def __init__(self, maps: nn.ModuleDict):
        self.maps = maps.eval().requires_grad_(False)

    @torch.inference_mode()
    def rows(self, embedding: Embeddings, side: str) -> Tensor:
        """(N, 1, d)."""
        mapped: Tensor = self.maps[side](pooled(embedding).cpu())
        return mapped[:, None]

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
            maps[side] = Map(inside, dim)
        maps.load_state_dict(state)
        return Distilled(maps)


@torch.inference_mode()
def all_pooled(searcher: Searcher, side: str) -> Tensor:
    """(N, D) float16 pooled values of every item."""
    return torch.cat([pooled(part).half() for _, part in searcher.sides[side].sets.blocks(BLOCK)])


def distilled(searcher: Searcher, *, seed: int, seconds: float = SECONDS) -> Distilled:
    """Learn the two maps from the model's scores."""
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        values = {side: all_pooled(searcher, side) for side in (IMAGE, TEXT)}
        dim = min(DIM, *(value.shape[1] for value in values.values()))
        maps = nn.ModuleDict({side: Map(value.shape[1], dim) for side, value in values.items()})
        for side, value in values.items():
            one = maps[side]
            assert isinstance(one, Map)
            one.settle(value[:: max(1, len(value) // 4096)].float())
        rng = np.random.default_rng(seed)
        blocks: list[tuple[Tensor, Tensor, Tensor]] = []
        for share in (0.5, 1.0):  # half of the blocks at random; the other half as the maps confuse them by then
            _learn(
                maps, values, blocks := [*blocks, *_blocks(searcher, maps, values, rng, seconds / 2, hard=share > 0.5)]
            )
    finally:
        torch.random.set_rng_state(torch_state)
    return Distilled(maps)


def _blocks(
    searcher: Searcher,
    maps: nn.ModuleDict,
    values: dict[str, Tensor],
    rng: np.random.Generator,
    seconds: float,
    *,
    hard: bool,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(pictures, captions, their scores) for as long as there is time, within limits."""
    began = time.monotonic()
    sets = {side: own.sets for side, own in searcher.sides.items()}
    most = BLOCKS[1] // 2
    for number in track(range(most), "asking the model"):
        if number >= BLOCKS[0] // 2 and time.monotonic() - began > seconds:
            break
        places = _near(maps, values, rng) if hard else _random(sets, rng)
        images, texts = (sets[side].take(np.sort(place)) for side, place in zip((IMAGE, TEXT), places, strict=True))
        with products_in("fp32", searcher.device):
            scores = score_all(searcher.matcher, images, texts, device=searcher.device)
        yield torch.from_numpy(np.sort(places[0])), torch.from_numpy(np.sort(places[1])), torch.from_numpy(scores)


def _random(sets: dict[str, Sets], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    counts = [len(sets[side]) for side in (IMAGE, TEXT)]
    images, texts = (rng.choice(count, min(SIDE, count), replace=False) for count in counts)
    return images, texts


@torch.inference_mode()
def _near(maps: nn.ModuleDict, values: dict[str, Tensor], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and captions around a few captions drawn at random: what the maps, as they are, find alike."""
    seeds = rng.choice(len(values[TEXT]), min(4, len(values[TEXT])), replace=False)
    asked = maps[TEXT](values[TEXT][seeds].float())
    found = []
    for side in (IMAGE, TEXT):
        value = values[side]
        score = torch.cat([maps[side](part.float()) @ asked.T for part in torch.split(value, 8192)]).amax(1)
        found.append(score.topk(min(SIDE, len(value))).indices.numpy())
    return found[0], found[1]


def _learn(maps: nn.ModuleDict, values: dict[str, Tensor], blocks: list[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Some hundred steps over the blocks, the rate falling to nothing."""
    heat = nn.Parameter(torch.tensor(3.0))  # log of what inner products are multiplied with
    optimiser = torch.optim.AdamW([*maps.parameters(), heat], lr=RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    maps.train()
    order = torch.randint(len(blocks), (STEPS,), generator=torch.Generator().manual_seed(0)).tolist()
    for number in track(order, "distilling"):
        images, texts, scores = blocks[number]
        product = maps[IMAGE](values[IMAGE][images].float()) @ maps[TEXT](values[TEXT][texts].float()).T
        loss = _apart(product * heat.exp(), scores) + _apart(product.T * heat.exp(), scores.T)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def _apart(found: Tensor, wanted: Tensor) -> Tensor:
    """KL divergence of rows: scores at mean 0 and deviation 1, sharpened, against the maps' products."""
    standard = (wanted - wanted.mean(1, keepdim=True)) / wanted.std(1, keepdim=True).clamp(min=1e-6)
    return F.kl_div(found.log_softmax(1), (SHARP * standard).log_softmax(1), reduction="batchmean", log_target=True)
