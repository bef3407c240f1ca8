"""VSE++ and VSE-infinity: one vector a picture, one a caption, and the hardest negative of the batch.

VSE++: Faghri et al., BMVC 2018, arXiv:1707.05612. A linear map of the picture's feature, the last state of a GRU.
VSE-infinity: Chen et al., CVPR 2021, arXiv:2011.04305. The pooling over regions and words is learned (GPO).

Departs from the papers: captions of the same picture are never negatives (`siblings="negatives"` counts them, as both
repositories do); BatchNorm ignores padded regions. VSE++ reads region or grid features through their mean, which the
paper does not do. Further losses (`loss=infonce | rclog | gce`), the mean of the largest values as pooling
(`pooling=top`) and the one-cycle rate belong to neither paper: with `preset=dual` they make the plain dual encoder that
robust methods build on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Matcher, Recipe, Sizes
from matchlight.inputs.augmentation import changed, drop_regions
from matchlight.parts.encoders import LastState, Words, from_pixels, gru_names, lengths
from matchlight.parts.layers import Residual, glorot, masked_mean, pooling_by, unit
from matchlight.parts.objectives import Hinge, Probable
from matchlight.parts.similarities import Dot, Order
from matchlight.training.recipes import Foreign, Method, check_choices, renamed
from matchlight.training.schedules import groups, one_cycle, released, staircase, step_down
from matchlight.training.strategies import Plain, WarmUp

# ---- VSE++ -----------------------------------------------------------------------------------------------------------


class OneVector(nn.Module):
    """A picture's feature (the mean of its regions), projected, of unit length."""

    def __init__(self, inside: int, dim: int, *, unit_length: bool, absolute: bool, eps: float):
        super().__init__()
        self.fc = glorot(nn.Linear(inside, dim))
        self.eps = eps
        self.unit_length = unit_length
        self.absolute = absolute

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        x = items.x if items.x.dim() == 2 else masked_mean(items.x, items.mask)
        out = self.fc(x)
        out = unit(out, eps=self.eps) if self.unit_length else out
        return Embedding((out.abs() if self.absolute else out)[:, None])


def plus_plus(
    sizes: Sizes,
    *,
    dim: int = 1024,
    word_dim: int = 300,
    margin: float = 0.2,
    hardest: bool = True,
    measure: str = "cosine",
    unit_length: bool = True,
    absolute: bool = False,
    layers: int = 1,
    eps: float = 1e-8,
    siblings: str = "masked",
    finetune: bool = False,
    backbone: str = "lite0",
    pixels: int | None = None,
    backbone_rate: float = 0.1,
    epochs: int = 30,
    batch: int = 128,
    rate: float = 2e-4,
    decay_every: int = 15,
    clip: float = 2.0,
    select: str = "best",
) -> Recipe:
    """VSE++ (`hardest=false` is VSE0; `measure=order absolute=true` gives order embeddings)."""
    check_choices(measure=(measure, ("cosine", "order")))

    def matcher() -> Matcher:
        image = OneVector(sizes.image_dim, dim, unit_length=unit_length, absolute=absolute, eps=eps)
        text = LastState(sizes.vocabulary, dim, word_dim=word_dim, layers=layers, absolute=absolute, eps=eps)
        picture = from_pixels(image, backbone) if finetune else image
        return Matcher({IMAGE: picture, TEXT: text}, Dot() if measure == "cosine" else Order())

    return Recipe(
        matcher=matcher,
        objective=partial(Hinge, margin=margin, hardest=hardest, siblings=siblings),
        strategy=Plain(),
        epochs=epochs,
        batch=batch,
        groups=partial(groups, rate=rate, backbone=backbone_rate, decay=0.0),
        schedule=partial(staircase, every=decay_every),
        clip=clip,
        select=select,
        siblings=siblings,
        augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if finetune else None,
    )


# ---- VSE-infinity ----------------------------------------------------------------------------------------------------


class PooledRegions(nn.Module):
    """Regions, each projected with a residual MLP, pooled into one vector of unit length."""

    def __init__(self, inside: int, dim: int, *, hidden: int, pooling: str, top: int, drop: float, norm: bool = True):
        super().__init__()
        self.project = Residual(inside, dim, hidden=hidden, norm=norm)
        self.pool = pooling_by(pooling, top=top)
        self.drop = drop  # share of the regions left out in training: sets of many sizes teach the pooling

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        items = replace(items, x=items.x[:, None]) if items.x.dim() == 2 else items
        if self.training and self.drop and items.x.shape[1] > 1:
            items = drop_regions(items, seed=int(torch.randint(1 << 31, (1,))), p=self.drop)
        return Embedding(unit(self.pool(self.project(items.x, items.mask), items.mask))[:, None])


class PooledWords(nn.Module):
    """A caption's bi-GRU states pooled into one vector of unit length."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, pooling: str, top: int, dropout: float):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, dropout=dropout)
        self.pool = pooling_by(pooling, top=top)

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        return Embedding(unit(self.pool(self.words(items), items.mask, lengths(items)))[:, None])


def pooled(sizes: Sizes, dim: int, *, image: dict[str, Any], text: dict[str, Any], backbone: str | None) -> Matcher:
    """Pooled regions (behind a backbone where one is named) and pooled words, compared by their cosine."""
    regions = PooledRegions(sizes.image_dim, dim, **image)
    words = PooledWords(sizes.vocabulary + 1, dim, **text)  # one row more: the <mask> that words are replaced by
    return Matcher({IMAGE: from_pixels(regions, backbone) if backbone else regions, TEXT: words}, Dot())


def infinity(
    sizes: Sizes,
    *,
    dim: int = 1024,
    hidden: int = 512,
    word_dim: int = 300,
    pooling: str = "gpo",
    top_regions: int = 10,
    top_words: int = 3,
    drop_regions: float = 0.2,
    norm: bool = True,
    dropout: float = 0.0,
    drop_words: float = 0.2,
    words: str = "mixed",
    loss: str = "hinge",
    margin: float = 0.2,
    temperature: float = 0.05,
    pull: float = 0.1,
    q: float = 0.5,
    warm: int = 1,
    siblings: str = "masked",
    finetune: bool = False,
    backbone: str = "lite0",
    pixels: int | None = None,
    backbone_rate: float = 0.1,
    freeze_epochs: int = 1,
    epochs: int = 25,
    batch: int = 128,
    rate: float = 5e-4,
    decay: float = 1e-4,
    schedule: str = "drop",
    drop_epoch: int = 15,
    clip: float = 2.0,
    ema: float = 0.0,
    select: str = "best",
    validate_every: int = 1,
) -> Recipe:
    """VSE-infinity; with `loss=infonce | rclog | gce` a plain dual encoder that trains on probabilities."""
    check_choices(loss=(loss, ("hinge", *Probable.kinds)), pooling=(pooling, ("gpo", "top")))
    check_choices(schedule=(schedule, ("drop", "cycle")), words=(words, ("mixed", "zero")))
    image = {"hidden": hidden, "pooling": pooling, "top": top_regions, "drop": drop_regions, "norm": norm}
    text = {"word_dim": word_dim, "pooling": pooling, "top": top_words, "dropout": dropout}
    hinge = partial(Hinge, margin=margin, siblings=siblings)
    probable = partial(Probable, loss, temperature=temperature, pull=pull, q=q, siblings=siblings)
    rates = {"drop": partial(step_down, at=drop_epoch), "cycle": partial(one_cycle, epochs=epochs)}[schedule]
    frozen, seen = (freeze_epochs, backbone) if finetune else (0, None)
    gentle = WarmUp(hinge(hardest=False), epochs=warm, ramp=frozen or None)
    kept: dict[str, Any] = {"epochs": epochs, "batch": batch, "clip": clip, "ema": ema, "select": select}
    return Recipe(
        matcher=partial(pooled, sizes, dim, image=image, text=text, backbone=seen),
        objective=hinge if loss == "hinge" else probable,
        strategy=gentle if warm and loss == "hinge" else Plain(),
        groups=partial(groups, rate=rate, backbone=backbone_rate, decay=decay),
        optimiser="adamw",
        schedule=partial(released, rates=rates, frozen=frozen),
        siblings=siblings,
        validate_every=validate_every,
        **kept,
        augment=partial(changed, p=drop_words, mode=words, vocabulary=sizes.vocabulary, pixels=finetune),
    )


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read_plus_plus(file: dict[str, Any]) -> Foreign:
    """VSE++ on precomputed features: `model` is [image, text]; vectors are divided by their norm without epsilon."""
    image, text = file["model"][:2]
    options = file["opt"]
    weights = renamed(image, {"fc.": "encoders.image.fc."}) | renamed(text, WORDS)
    named = {
        "dim": image["fc.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "layers": sum(key.startswith("rnn.weight_ih") for key in text),
        "measure": options.get("measure", "cosine"),
        "absolute": bool(options.get("use_abs", False)),
        "unit_length": not options.get("no_imgnorm", False),
        "hardest": bool(options.get("max_violation", True)),
        "margin": float(options.get("margin", 0.2)),
        "siblings": "negatives",
        "eps": 0.0,
    }
    sizes = {"image_dim": image["fc.weight"].shape[1], "vocabulary": len(text["embed.weight"])}
    return Foreign(named, sizes, weights, kind="vector")


def read_infinity(file: dict[str, Any]) -> Foreign:
    """VSE-infinity, bi-GRU on regions. The second BatchNorm of the released files is never applied and is dropped."""
    image, text = ({key.removeprefix("module."): value for key, value in part.items()} for part in file["model"][:2])
    if "mlp.layers.0.weight" not in image or "embed.weight" not in text:
        raise BadInput("only the region + bi-GRU models of VSE-infinity can be read; this file holds another kind")
    weights = renamed({k: v for k, v in image.items() if not k.startswith("mlp.bns.1.")}, REGIONS)
    weights |= renamed(text, WORDS | {"gpool.": "encoders.text.pool."})
    named = {
        "dim": image["fc.weight"].shape[0],
        "hidden": image["mlp.layers.0.weight"].shape[0],
        "word_dim": text["embed.weight"].shape[1],
        "margin": float(file["opt"].get("margin", 0.2)),
        "siblings": "negatives",
    }
    vocabulary = len(text["embed.weight"]) - 1  # the table has one row more than the vocabulary: <mask>
    return Foreign(named, {"image_dim": image["fc.weight"].shape[1], "vocabulary": vocabulary}, weights)


WORDS = {"embed.": "encoders.text.words.embed."} | gru_names("rnn.", "encoders.text.words.")
REGIONS = {
    "fc.": "encoders.image.project.fc.",
    "mlp.layers.0.": "encoders.image.project.first.",
    "mlp.bns.0.": "encoders.image.project.norm.",
    "mlp.layers.1.": "encoders.image.project.second.",
    "gpool.": "encoders.image.pool.",
}

SMALL = {"dim": 256, "word_dim": 128, "batch": 128, "epochs": 16, "rate": 1e-3}
DUAL = {
    "pooling": "top",
    "loss": "rclog",
    "norm": False,
    "dropout": 0.2,
    "drop_words": 0.15,
    "words": "zero",
    "schedule": "cycle",
    "rate": 1e-3,
    "batch": 256,
    "epochs": 12,
    "validate_every": 2,
}

METHODS = [
    Method(
        "vse++",
        plus_plus,
        paper="VSE++: Improving Visual-Semantic Embeddings with Hard Negatives (BMVC 2018)",
        needs=("pairs",),
        small={**SMALL, "rate": 2e-3},
        reader=read_plus_plus,
    ),
    Method(
        "vse_infty",
        infinity,
        paper="Learning the Best Pooling Strategy for Visual Semantic Embedding (CVPR 2021)",
        needs=("pairs", "regions"),
        small={**SMALL, "hidden": 256, "drop_words": 0.1},
        presets={"dual": DUAL},
        reader=read_infinity,
    ),
]
