"""Dual: a pretrained joint model (CLIP, SigLIP, SigLIP2), as it is or tuned: two towers, one vector a side, a cosine.

CLIP: Radford et al., ICML 2021, arXiv:2103.00020. SigLIP: Zhai et al., ICCV 2023, arXiv:2303.15343. A score is the
cosine times a learned scale, plus a bias where the model was trained with a sigmoid: `matchlight import` makes a run
that scores exactly so with no training. Tuning moves all weights, the last blocks, or small matrices beside them (LoRA,
`low_rank.py`); `keep` brings the result back towards the pretrained weights (Wortsman et al., CVPR 2022,
arXiv:2109.01903). With `sets` above 1, slots find several vectors among a tower's states, as DivE's do.

Departs from the papers: captions of the same picture are never negatives; the picture is cropped a little in training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor, nn

from matchlight.core import (
    IMAGE,
    TEXT,
    BadInput,
    Batch,
    Embedding,
    Embeddings,
    Group,
    Items,
    Matcher,
    Objective,
    Scores,
    Seed,
    Similarity,
    Sizes,
    Terms,
)
from matchlight.inputs.augmentation import crop_flip_colour
from matchlight.inputs.joint_models import JointModel, joint_model
from matchlight.inputs.joint_models.picture_strips import split
from matchlight.inputs.joint_models.towers import Pictures, Texts, Towers
from matchlight.inputs.joint_models.weight_names import Weights
from matchlight.methods.dual_files import published_weights, take
from matchlight.methods.low_rank import ADAPTER, adapt, save_adapters_alone
from matchlight.methods.set_losses import SetLoss
from matchlight.methods.slots import SetPrediction, Slots
from matchlight.parts.objectives import SoftmaxLoss, contrast, info_nce
from matchlight.parts.set_similarities import set_similarity
from matchlight.parts.similarities import Dot
from matchlight.training.arguments import Count, Fraction, NonNegative, Portion, Positive, Siblings, Training, Value
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.strategies import Plain

# ---- encoders --------------------------------------------------------------------------------------------------------


class Seen(nn.Module):
    """Pixels in 0..255, normalised as the model wants them, through its picture tower."""

    def __init__(self, tower: Pictures, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.tower = tower
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def states(self, items: Items) -> tuple[Tensor, Tensor, Tensor | None]:
        """(N, L, width) states, (N, dim) vectors, (N, L) mask."""
        pixels, sides = split(items.x) if self.tower.shape.flexible else (items.x, None)
        normalised = (pixels.to(self.mean.dtype) / 255 - self.mean) / self.std
        found: tuple[Tensor, Tensor, Tensor | None] = self.tower(normalised, sides)
        return found

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim) of unit length."""
        return as_unit(self.states(items)[1])


class Read(nn.Module):
    """Word pieces through the model's text tower."""

    def __init__(self, tower: Texts):
        super().__init__()
        self.tower = tower

    def states(self, items: Items) -> tuple[Tensor, Tensor, Tensor | None]:
        """(N, L, width) states, (N, dim) vectors, (N, L) mask."""
        mask = torch.ones_like(items.x, dtype=torch.bool) if items.mask is None else items.mask
        found: tuple[Tensor, Tensor, Tensor | None] = self.tower(items.x, mask)
        return found

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim) of unit length."""
        return as_unit(self.states(items)[1])


def as_unit(vectors: Tensor) -> Embedding:
    """(N, dim) -> sets of one vector of length one, divided as the libraries do: without an epsilon."""
    vectors = vectors.float()
    return Embedding((vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny))[:, None])


class SetOf(nn.Module):
    """A set of vectors: slots look at a tower's states, and the tower's own vector is part of each."""

    def __init__(self, encoder: Seen | Read, width: int, dim: int, slots: Slots):
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(width, dim)
        self.slots = SetPrediction(dim, dim, slots)

    @property
    def tower(self) -> nn.Module:
        """The tower that is looked through."""
        return self.encoder.tower

    def forward(self, items: Items) -> Embedding:
        """(N, K, dim) of unit length."""
        states, vector, mask = self.encoder.states(items)
        found: Embedding = self.slots(self.project(states), mask, vector)
        return found


# ---- scores and losses -----------------------------------------------------------------------------------------------


class ScaledCosine(Dot):
    """exp(scale) * cosine, plus a bias where there is one: the numbers that the model's own library gives."""

    def __init__(self, *, bias: bool):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.bias = nn.Parameter(torch.tensor(-10.0)) if bias else None

    def per_cosine(self) -> float:
        """Scores lie this many times as far apart as cosines."""
        return float(self.scale.detach().exp())

    def scaled(self, cosine: Tensor) -> Tensor:
        """Cosines -> scores."""
        out = self.scale.exp() * cosine
        return out if self.bias is None else out + self.bias

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        return self.scaled(super().forward(images, texts))

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return self.scaled(super().pairs(images, texts))


class Contrastive(Objective):
    """CLIP's loss: a softmax over a batch's scores, both ways."""

    reduction = "mean"

    def __init__(self, *, siblings: str = "masked"):
        super().__init__()
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: Mapping[str, Embeddings], batch: Batch) -> Terms:
        """One term a direction, (P,) each."""
        assert scores.matrix is not None
        return info_nce(contrast(scores.matrix, batch, siblings=self.siblings), temperature=1.0)


class Sigmoid(Contrastive):
    """SigLIP's loss: every picture and caption of a batch are asked by themselves whether they belong together."""

    def forward(self, scores: Scores, embeddings: Mapping[str, Embeddings], batch: Batch) -> Terms:
        """What a pair costs, and what its picture costs with the captions that are not its own, (P,) each."""
        assert scores.matrix is not None
        c = contrast(scores.matrix, batch, siblings=self.siblings)
        apart = nn.functional.softplus(c.texts).masked_fill(~c.text_ok, 0.0).sum(1)
        return {"own": nn.functional.softplus(-c.own), "others": apart}


# ---- what is tuned ---------------------------------------------------------------------------------------------------

Tune = Literal["all", "last", "lora", "none"]


def towers_of(matcher: Matcher) -> list[Pictures | Texts]:
    """The two towers."""
    found = [encoder.tower for encoder in matcher.encoders.values()]
    return [tower for tower in found if isinstance(tower, Pictures | Texts)]


def freeze(matcher: Matcher, tune: Tune, last: int) -> None:
    """Leave to training what is to be tuned of the towers."""
    for tower in towers_of(matcher):
        if tune in ("last", "none"):
            tower.requires_grad_(False)
        if tune == "last":
            ends = [tower.norm, tower.project, getattr(tower, "pool", None), *tower.blocks[-last:]]
            for part in ends:
                if part is not None:
                    part.requires_grad_(True)


def free_groups(matcher: Matcher, objective: Objective, *, rate: float, lora: float, decay: float) -> list[Group]:
    """What is tuned: matrices decay, all else does not; adapters have a rate of their own."""
    named = [(name, p) for name, p in matcher.named_parameters() if p.requires_grad]
    adapters = [p for name, p in named if ADAPTER in name]
    matrices = [p for name, p in named if ADAPTER not in name and p.dim() > 1]
    rest = [p for name, p in named if ADAPTER not in name and p.dim() < 2] + list(objective.parameters())
    kinds = [("matrices", matrices, rate, decay), ("adapters", adapters, rate * lora, 0.0), ("rest", rest, rate, 0.0)]
    return [Group(name=name, params=params, lr=lr, weight_decay=wd) for name, params, lr, wd in kinds if params]


def warmed_cosine(epoch: int, step: int, steps: int, *, epochs: int, warm: float) -> float:
    """Up in a straight line during the first part of training, then down to nothing along half a cosine."""
    step, total = epoch * steps + step, max(1, epochs * steps)
    rise = min(round(warm * total), total - 1)
    if step < rise:
        return (step + 1) / (rise + 1)
    return (1 + math.cos(math.pi * min(1.0, (step - rise) / (total - rise)))) / 2


@torch.no_grad()
def brought_back(matcher: Matcher, start: Weights, keep: float) -> Matcher:
    """A copy whose weights are `keep` of the pretrained ones and the rest of what training made of them."""
    out = copy.deepcopy(matcher)
    for name, p in out.named_parameters():
        published = name.replace(".encoder.tower.", ".tower.")
        if "lora_B" in name:
            p.mul_(1 - keep)
        elif published in start:
            p.lerp_(start[published].to(p.device), keep)
    return out


def cropped(side: str, items: Items, seed: Seed, *, smallest: float) -> Items:
    """Training only: windows of at least this share of a picture's area."""
    if side != IMAGE:
        return items
    return crop_flip_colour(items, seed=seed, by="area", scale=(smallest, 1.0), flip=0.0, brightness=0.0)


# ---- the recipe ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Dual(Training):
    """A joint model; `model` names it. `score=cosine` leaves scale and bias out, for losses that expect cosines."""

    model: str | None = None
    tune: Tune = "all"
    last: Count = 4
    rank: Count = 8
    lora_rate: Positive = 10.0
    loss: Literal["auto", "contrastive", "sigmoid"] = "auto"
    score: Literal["logits", "cosine"] = "logits"
    temperature: Positive = 0.05
    keep: Portion = 0.0
    crop: Fraction = 0.9
    sets: Count = 1
    depth: Count = 2
    heads: Count = 4
    head_dim: Count = 64
    mmd: NonNegative = 0.01
    diversity: NonNegative = 0.01
    siblings: Siblings = "masked"
    epochs: Count = 10
    batch: Count = 128
    rate: Positive = 1e-5
    warmup: Portion = 0.1
    decay: NonNegative = 0.1
    clip: NonNegative = 1.0
    ema: Portion = 0.0
    validate_every: Count = 1

    @cached_property
    def opened(self) -> JointModel:
        """The model's files."""
        if self.model is None:
            raise BadInput("dual needs a joint model: model=hf:NAME, a name on the hub, or model=hf:FOLDER")
        return joint_model(self.model)

    def pretrained(self) -> Weights:
        """The pretrained weights; none where a run's own are all there is."""
        return published_weights(self.opened) if self.opened.source.weights else {}

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        still = self.crop == 1 or self.opened.shape.picture.flexible
        return Recipe(
            matcher=self.network,
            objective=self.objective,
            strategy=Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(free_groups, rate=self.rate, lora=self.lora_rate, decay=self.decay),
            optimiser="adamw",
            betas=(0.9, 0.98),
            schedule=partial(warmed_cosine, epochs=self.epochs, warm=self.warmup),
            clip=self.clip,
            ema=self.ema,
            select=self.select,
            siblings=self.siblings,
            validate_every=self.validate_every,
            augment=None if still else partial(cropped, smallest=self.crop),
            handed_over=self.returned if self.keep else None,
        )

    def returned(self, matcher: Matcher) -> Matcher:
        """What is evaluated and kept of a network in training: brought back towards the pretrained weights."""
        if not (start := self.pretrained()):
            raise BadInput(f"keep={self.keep:g}: the pretrained weights are not there; name them by model=hf:NAME")
        return brought_back(matcher, start, self.keep)

    def objective(self) -> Objective:
        """The loss; one that expects cosines where scores are cosines."""
        sigmoid = self.loss == "sigmoid" or (self.loss == "auto" and self.opened.shape.has_bias)
        if self.score == "cosine" or self.sets > 1:
            if self.loss == "sigmoid":
                raise BadInput("loss=sigmoid: it needs the model's scale and bias, score=logits and sets=1")
            ranking: Objective = SoftmaxLoss("infonce", temperature=self.temperature, siblings=self.siblings)
            return ranking if self.sets == 1 else SetLoss(ranking, mmd=self.mmd, diversity=self.diversity)
        return (Sigmoid if sigmoid else Contrastive)(siblings=self.siblings)

    def network(self) -> Matcher:
        """Both towers with their pretrained weights, and what scores them."""
        model, towers = self.opened, Towers(self.opened.shape)
        made = model.preprocessing
        seen, read = Seen(towers.pictures, made.mean, made.std), Read(towers.texts)
        matcher = Matcher({IMAGE: seen, TEXT: read}, self.similarity())
        if start := self.pretrained():
            take(matcher, start, model.source.name)
        freeze(matcher, self.tune, self.last)
        if self.tune == "lora":
            for tower in towers_of(matcher):
                adapt(tower, rank=self.rank)
            save_adapters_alone(matcher)
        if self.sets > 1:
            widths = towers.shape.picture.blocks.width, towers.shape.text.blocks.width
            matcher.encoders[IMAGE] = SetOf(seen, widths[0], model.shape.dim, self.slots())
            matcher.encoders[TEXT] = SetOf(read, widths[1], model.shape.dim, self.slots())
        return matcher

    def similarity(self) -> Similarity:
        """What compares: the model's own scores, plain cosines, or sets."""
        if self.sets > 1:
            return set_similarity("smooth_chamfer", alpha=16.0, learned=False)
        return Dot() if self.score == "cosine" else ScaledCosine(bias=self.opened.shape.has_bias)

    def slots(self) -> Slots:
        """The slots of either side."""
        return Slots(self.sets, self.depth, self.heads, self.head_dim, dropout=0.0)


LORA: dict[str, Value] = {"tune": "lora"}

METHODS = [
    Method(
        "dual",
        Dual,
        paper="CLIP (ICML 2021), SigLIP (ICCV 2023) and SigLIP2 (2025), zero-shot or tuned",
        needs=("pairs", "pictures"),
        small={"epochs": 6, "batch": 64},
        presets={"lora": LORA, "last": {"tune": "last"}},
    )
]
