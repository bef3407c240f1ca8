"""VSRN: regions learn from each other on a graph, a GRU reads them in order, and its last state is the picture.

Li et al., ICCV 2019, arXiv:1909.02701. A decoder that writes the caption from the related regions (`captioning.py`)
keeps them telling; it trains with the rest and is then left out.

Departs from the authors' code: captions of the same picture are never negatives (`siblings="negatives"` counts them);
padded regions take no part; the model kept is the one with the best rsum at an epoch's end (the code adds up R@1 and
R@5 only, also inside epochs); the decoder's parameters are given to the optimiser once (the code lists them twice, so
that they step twice and weigh twice in the gradient clip). The two `variant`s are the code's two architectures, which
it chooses by the data set's name: `coco` normalises regions before the graph, `f30k` has a BatchNorm behind the GRU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Matcher, Objective, Sizes
from matchlight.inputs.augmentation import changed
from matchlight.methods.captioning import Captioner, Described, in_order
from matchlight.methods.vse import WORDS
from matchlight.parts.encoders import LastState
from matchlight.parts.layers import BatchNorm, glorot, unit
from matchlight.parts.objectives import Hinge
from matchlight.parts.similarities import Dot
from matchlight.training.arguments import (
    Count,
    NonNegative,
    Ranking,
    Share,
    Staircase,
    Training,
    TunedPictures,
    Value,
    Whole,
)
from matchlight.training.contract import Phase, Recipe, TrainingRun
from matchlight.training.registry import Checkpoint, Foreign, Method, Weights, renamed
from matchlight.training.schedules import groups, staircase
from matchlight.training.strategies import Plain

ONE_VECTOR = "vsrn relates a picture's regions to each other, and this data has one vector a picture; vse++ can use it"


def across_regions(x: Tensor, mask: Tensor | None) -> Tensor:
    """(N, R, D) with each channel at unit length *over the regions*, not each region over channels; padding is 0."""
    x = x if mask is None else x * mask[..., None]
    norm = x.norm(dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)  # no epsilon, as the authors; a silent channel stays 0 instead of NaN


class Related(nn.Module):
    """A residual graph convolution: each region adds what the others say, weighed by how they relate.

    The last BatchNorm starts at zero, so that a new block passes regions on unchanged.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.ask = nn.Linear(dim, 3 * dim)  # theta, phi and g in one product
        self.tell = nn.Linear(dim, dim)
        self.norm = BatchNorm(dim)
        nn.init.zeros_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, R, D) -> the same shape; padded regions neither speak nor count."""
        theta, phi, g = self.ask(x).chunk(3, -1)
        g = g if mask is None else g * mask[..., None]
        count = x.shape[1] if mask is None else mask.sum(1).clamp(min=1)[:, None, None]
        relation = torch.einsum("nrd,nsd->nrs", theta, phi) / count
        return x + self.norm(self.tell(torch.einsum("nrs,nsd->nrd", relation, g)), mask)


class Reasoned(nn.Module):
    """Regions -> related regions -> the state of a GRU that has read them in order, of unit length."""

    def __init__(self, inside: int, dim: int, *, variant: str, blocks: int, eps: float):
        super().__init__()
        self.fc = glorot(nn.Linear(inside, dim))
        self.blocks = nn.ModuleList(Related(dim) for _ in range(blocks))
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.norm = BatchNorm(dim) if variant == "f30k" else None
        self.eps = eps

    def relate(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, R, inside) -> (N, R, dim): what the GRU and the captioning branch read."""
        x = self.fc(x)
        x = across_regions(x, mask) if self.norm is None else x
        for block in self.blocks:
            x = block(x, mask)
        return across_regions(x, mask)

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim), with the related regions as "states" while a loss may ask for them."""
        if items.x.dim() != 3:
            raise BadInput(ONE_VECTOR)
        states = self.relate(items.x, items.mask)
        last = in_order(self.gru, states, items.mask)[1]
        last = last if self.norm is None else self.norm(last)
        extra = {"states": states} if items.mask is None else {"states": states, "real": items.mask}
        if torch.is_inference_mode_enabled():  # a whole table's states would fill the memory, and nobody reads them
            extra = {}
        return Embedding(unit(last, eps=self.eps)[:, None], extra=extra)


class Gently(Plain):
    """The first `epochs` rank against all negatives; the decoder is the network's own throughout."""

    def __init__(self, ranking: Objective, *, epochs: int):
        self.ranking = ranking
        self.epochs = epochs

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase, with the gentler ranking while it is early."""
        if epoch >= self.epochs:
            return super().phases(run, epoch)
        own = run.networks["A"].objective
        gentle = (
            Described(self.ranking, own.captioner, weight=own.weight) if isinstance(own, Described) else self.ranking
        )
        return [Phase(rows=run.rows, objective=gentle, name="warm-up")]


@dataclass(frozen=True, kw_only=True)
class VSRN(TunedPictures, Ranking, Staircase, Training):
    """VSRN (`caption_weight=0` leaves the captioning branch out)."""

    variant: Literal["coco", "f30k"] = "coco"
    dim: Count = 2048
    blocks: Count = 4
    word_dim: Count = 300
    layers: Count = 1
    eps: NonNegative = 1e-8
    hardest: bool = True
    warm: Whole = 0
    caption_weight: NonNegative = 1.0
    caption_hidden: Count = 512
    caption_word_dim: Count = 300
    caption_dropout: Share = 0.2
    max_len: Count = 60

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        _check(sizes, self.variant, self.max_len)

        def matcher() -> Matcher:
            image = Reasoned(sizes.image_dim, self.dim, variant=self.variant, blocks=self.blocks, eps=self.eps)
            text = LastState(
                sizes.vocabulary, self.dim, word_dim=self.word_dim, layers=self.layers, absolute=False, eps=self.eps
            )
            return Matcher({IMAGE: self.behind_backbone(image), TEXT: text}, Dot())

        hinge = partial(Hinge, margin=self.margin, siblings=self.siblings)
        decoder: dict[str, Any] = {
            "word_dim": self.caption_word_dim,
            "dropout": self.caption_dropout,
            "max_len": self.max_len,
        }
        write = partial(Captioner, self.dim, sizes.vocabulary, hidden=self.caption_hidden, **decoder)

        def objective() -> Objective:
            ranking = hinge(hardest=self.hardest)
            return Described(ranking, write(), weight=self.caption_weight) if self.caption_weight else ranking

        recipe = Recipe(
            matcher=matcher,
            objective=objective,
            strategy=Gently(hinge(hardest=False), epochs=self.warm) if self.warm else Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(groups, rate=self.rate, backbone=self.backbone_rates(), decay=0.0),
            schedule=partial(staircase, every=self.decay_every),
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
            augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if self.finetune else None,
        )
        return self.ranked(recipe)


def _check(sizes: Sizes, variant: str, max_len: int) -> None:
    if max_len < 2:
        raise BadInput(f"max_len={max_len}: a caption to write has 2 words at least")
    if sizes.image == "vector":
        raise BadInput(ONE_VECTOR)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read_vsrn(file: Checkpoint) -> Foreign:
    """`model` is [image, text], in AOQ's files [image, text, caption]; the caption branch is not part of a matcher."""
    image, text = file["model"][:2]
    options = file["opt"]
    if options.get("no_imgnorm") or options.get("use_abs") or options.get("measure", "cosine") != "cosine":
        raise BadInput("trained with no_imgnorm, use_abs or an order measure: only cosine VSRN models can be read")
    blocks = sum(key.endswith(".theta.weight") for key in image)
    f30k = "bn.weight" in image or options.get("data_name") == "f30k_precomp"
    named: dict[str, Value] = {
        "variant": "f30k" if f30k else "coco",
        "dim": image["fc.weight"].shape[0],
        "blocks": blocks,
        "word_dim": text["embed.weight"].shape[1],
        "layers": sum(key.startswith("rnn.weight_ih") for key in text),
        "margin": float(options.get("margin", 0.2)),
        "hardest": bool(options.get("max_violation", True)),
        "max_len": int(options.get("max_len", 60)),
        "caption_hidden": int(options.get("dim_hidden", 512)),
        "caption_word_dim": int(options.get("dim_word", 300)),
        "siblings": "negatives",
        "eps": 0.0,
    }
    sizes = {"image_dim": image["fc.weight"].shape[1], "vocabulary": len(text["embed.weight"])}
    return Foreign(named, sizes, picture_weights(image, blocks) | renamed(text, WORDS))


def picture_weights(image: Weights, blocks: int) -> dict[str, Tensor]:
    """The picture encoder under our names: three convolutions of width 1 in one matrix, the fourth as a matrix."""
    names = {
        "fc.": "encoders.image.fc.",
        "img_rnn.": "encoders.image.gru.",
        "bn.": "encoders.image.norm.",
    }
    rest, made = dict(image), {}
    for k in range(blocks):
        old, new = f"Rs_GCN_{k + 1}.", f"encoders.image.blocks.{k}."
        for kind in ("weight", "bias"):
            parts = [rest.pop(f"{old}{part}.{kind}") for part in ("theta", "phi", "g")]
            made[f"{new}ask.{kind}"] = torch.cat([part.flatten(1) if kind == "weight" else part for part in parts])
        rest[f"{old}W.0.weight"] = rest[f"{old}W.0.weight"].flatten(1)
        names |= {f"{old}W.0.": f"{new}tell.", f"{old}W.1.": f"{new}norm."}
    return made | renamed(rest, names)


SMALL: dict[str, Value] = {
    "dim": 256,
    "word_dim": 128,
    "caption_hidden": 128,
    "caption_word_dim": 64,
    "max_len": 30,
    "epochs": 16,
    "rate": 1e-3,
    "warm": 3,  # with a few thousand pairs the hardest negatives alone never leave the start
}

METHODS = [
    Method(
        "vsrn",
        VSRN,
        paper="Visual Semantic Reasoning for Image-Text Matching (ICCV 2019)",
        needs=("pairs", "regions"),
        small=SMALL,
        robust={"loss": "rclog", "warm": 0},
        presets={"coco": {}, "f30k": {"variant": "f30k", "decay_every": 10}},
        reader=read_vsrn,
    )
]
