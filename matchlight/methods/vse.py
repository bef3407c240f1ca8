"""VSE++ and VSE-infinity: one vector a picture, one a caption, and the hardest negative of the batch.

VSE++: Faghri et al., BMVC 2018, arXiv:1707.05612. A linear map of the picture's feature, the last state of a GRU.
VSE-infinity: Chen et al., CVPR 2021, arXiv:2011.04305. The pooling over regions and words is learned (GPO).

Departs from the papers: captions of the same picture are never negatives (`siblings="negatives"` counts them, as both
repositories do); BatchNorm ignores padded regions. VSE++ reads region or grid features through their mean, which the
paper does not do. Further losses (`loss=infonce | rclog | gce`), the mean of the largest values as pooling
(`pooling=top`) and the one-cycle rate belong to neither paper: with `preset=dual` they make the plain dual encoder that
robust methods build on. So do captions read by a sentence encoder other than BERT, and projections that begin with
canonical correlation (`sentences=NAME`, `projections=canonical`). In neither: `harden`, epochs from all negatives to
the hardest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from matchlight import devices
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Matcher, Sizes
from matchlight.inputs.augmentation import changed, drop_regions
from matchlight.parts.canonical_start import start_canonically
from matchlight.parts.encoders import LastState, ReadPieces, Words, gru_names, lengths
from matchlight.parts.layers import Residual, glorot, masked_mean, pooling_by, unit
from matchlight.parts.objectives import Hinge, SoftmaxLoss
from matchlight.parts.similarities import Dot, Order
from matchlight.training.arguments import (
    Count,
    Fraction,
    Hardening,
    NonNegative,
    Positive,
    Ranking,
    Share,
    Staircase,
    Training,
    TunedPictures,
    Value,
    Whole,
)
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method, renamed
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


@dataclass(frozen=True, kw_only=True)
class VSEPlusPlus(TunedPictures, Ranking, Staircase, Training):
    """VSE++ (`hardest=false` is VSE0; `measure=order absolute=true` gives order embeddings)."""

    dim: Count = 1024
    word_dim: Count = 300
    hardest: bool = True
    measure: Literal["cosine", "order"] = "cosine"
    unit_length: bool = True
    absolute: bool = False
    layers: Count = 1
    eps: NonNegative = 1e-8

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""

        def matcher() -> Matcher:
            image = OneVector(
                sizes.image_dim, self.dim, unit_length=self.unit_length, absolute=self.absolute, eps=self.eps
            )
            text = LastState(
                sizes.vocabulary,
                self.dim,
                word_dim=self.word_dim,
                layers=self.layers,
                absolute=self.absolute,
                eps=self.eps,
            )
            picture = self.behind_backbone(image)
            return Matcher({IMAGE: picture, TEXT: text}, Dot() if self.measure == "cosine" else Order())

        recipe = Recipe(
            matcher=matcher,
            objective=partial(Hinge, margin=self.margin, hardest=self.hardest, siblings=self.siblings),
            strategy=Plain(),
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
        items = self.inputs(items)
        if self.training and self.drop and items.x.shape[1] > 1:
            items = drop_regions(items, seed=devices.shared_draw(), p=self.drop)
        return Embedding(unit(self.pooled(items))[:, None])

    def inputs(self, items: Items) -> Items:
        """Regions; one vector a picture is a set of one."""
        return replace(items, x=items.x[:, None]) if items.x.dim() == 2 else items

    def pooled(self, members: Items) -> Tensor:
        """(N, dim)."""
        return self.pool(self.project(members.x, members.mask), members.mask)

    @property
    def linear(self) -> nn.Linear:
        """The projection beside the MLP."""
        return self.project.fc

    def settle(self) -> None:
        """The projection and a mean."""
        self.project.settle()
        self.pool.settle()


class PooledWords(nn.Module):
    """A caption's bi-GRU states pooled into one vector of unit length."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, pooling: str, top: int, dropout: float):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, dropout=dropout)
        self.pool = pooling_by(pooling, top=top)

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        return Embedding(unit(self.pool(self.words(items), items.mask, lengths(items)))[:, None])


class PooledPieces(ReadPieces):
    """A caption's word pieces as a sentence encoder reads them, projected and pooled into one vector of unit length."""

    def __init__(self, name: str, dim: int, *, pooling: str, top: int, drop: float, frozen: bool):
        super().__init__(name, dim, drop=drop, frozen=frozen)
        self.pool = pooling_by(pooling, top=top)

    def forward(self, items: Items) -> Embedding:
        """(N, 1, dim)."""
        return Embedding(unit(self.pooled(self.read(items)))[:, None])

    def inputs(self, items: Items) -> Items:
        """The encoder's states."""
        return self.read(items)

    def pooled(self, members: Items) -> Tensor:
        """(N, dim)."""
        return self.pool(self.project(members.x), members.mask, members.extra.get("length"))

    @property
    def linear(self) -> nn.Linear:
        """The projection."""
        return self.project

    def settle(self) -> None:
        """The projection and a mean."""
        self.pool.settle()


@dataclass(frozen=True, kw_only=True)
class VSEInfinity(TunedPictures, Hardening, Training):
    """VSE-infinity; with `loss=infonce | rclog | gce` a plain dual encoder that trains on probabilities.

    With `sentences=NAME` a pretrained sentence encoder reads the captions. It learns at the share `sentences_rate` of
    the rate (0: it is frozen), and both projections begin with canonical correlation unless `projections=random`.
    """

    dim: Count = 1024
    hidden: Count = 512
    word_dim: Count = 300
    sentences: str | None = None
    sentences_rate: NonNegative = 0.1
    projections: Literal["canonical", "random"] | None = None
    pooling: Literal["gpo", "top"] = "gpo"
    top_regions: Count = 10
    top_words: Count = 3
    drop_regions: Share = 0.2
    norm: bool = True
    dropout: Share = 0.0
    drop_words: Share = 0.2
    words: Literal["mixed", "zero"] = "mixed"
    loss: Literal["hinge", "infonce", "rclog", "gce"] = "hinge"
    temperature: Positive = 0.05
    pull: NonNegative = 0.1
    q: Fraction = 0.5
    warm: Whole = 1
    freeze_epochs: Whole = 1
    epochs: Count = 25
    rate: Positive = 5e-4
    decay: NonNegative = 1e-4
    schedule: Literal["drop", "cycle"] = "drop"
    drop_epoch: Whole = 15
    ema: Share = 0.0
    validate_every: Count = 1

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        self.check_hardening()
        hinge = partial(Hinge, margin=self.margin, siblings=self.siblings)
        rates = (
            partial(one_cycle, epochs=self.epochs)
            if self.schedule == "cycle"
            else partial(step_down, at=self.drop_epoch)
        )
        frozen = self.freeze_epochs if self.finetune else 0
        words = 0.0 if self.sentences else self.drop_words  # pieces are dropped by their encoder, which knows words
        ramp = frozen if frozen and self.warm else None
        gentle = WarmUp(hinge(hardest=False), epochs=self.warm, ramp=ramp, harden=self.harden)
        return Recipe(
            matcher=partial(self.network, sizes),
            objective=hinge if self.loss == "hinge" else self.softmax_loss,
            strategy=gentle if (self.warm or self.harden) and self.loss == "hinge" else Plain(),
            begin=start_canonically if self.starts_canonically() else None,
            groups=partial(
                groups, rate=self.rate, backbone=self.backbone_rates(), reader=self.sentences_rate, decay=self.decay
            ),
            optimiser="adamw",
            schedule=partial(released, rates=rates, frozen=frozen),
            epochs=self.epochs,
            batch=self.batch,
            clip=self.clip,
            ema=self.ema,
            select=self.select,
            siblings=self.siblings,
            validate_every=self.validate_every,
            augment=partial(changed, p=words, mode=self.words, vocabulary=sizes.vocabulary, pixels=self.finetune),
        )

    def reads_pretrained(self) -> bool:
        """With a sentence encoder, but not from pixels."""
        return bool(self.sentences) and not self.finetune

    def starts_canonically(self) -> bool:
        """Whether projections begin with canonical correlation: as asked, else wherever captions come pretrained."""
        if self.projections == "canonical" and not self.sentences:
            raise BadInput("projections=canonical: needs captions read by a sentence encoder, such as sentences=minilm")
        return bool(self.sentences) and self.projections != "random"

    def softmax_loss(self) -> SoftmaxLoss:
        """The loss of probabilities that was asked for."""
        settings = {"temperature": self.temperature, "pull": self.pull, "q": self.q}
        return SoftmaxLoss(self.loss, **settings, siblings=self.siblings)

    def network(self, sizes: Sizes) -> Matcher:
        """Pooled regions (behind the backbone where it is trained) and pooled words, compared by their cosine."""
        regions = PooledRegions(
            sizes.image_dim,
            self.dim,
            hidden=self.hidden,
            pooling=self.pooling,
            top=self.top_regions,
            drop=self.drop_regions,
            norm=self.norm,
        )
        return Matcher({IMAGE: self.behind_backbone(regions), TEXT: self.captions(sizes)}, Dot())

    def captions(self, sizes: Sizes) -> nn.Module:
        """Captions read by a sentence encoder where one is named, else word by word."""
        pooling: dict[str, Any] = {"pooling": self.pooling, "top": self.top_words}
        if self.sentences:
            frozen = not self.sentences_rate
            return PooledPieces(self.sentences, self.dim, drop=self.drop_words, frozen=frozen, **pooling)
        rows = sizes.vocabulary + 1  # one more than there are words: the <mask> that words are replaced by
        return PooledWords(rows, self.dim, word_dim=self.word_dim, dropout=self.dropout, **pooling)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read_plus_plus(file: Checkpoint) -> Foreign:
    """VSE++ on precomputed features: `model` is [image, text]; vectors are divided by their norm without epsilon."""
    image, text = file["model"][:2]
    options = file["opt"]
    weights = renamed(image, {"fc.": "encoders.image.fc."}) | renamed(text, WORDS)
    named: dict[str, Value] = {
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


def read_infinity(file: Checkpoint) -> Foreign:
    """VSE-infinity, bi-GRU on regions. The second BatchNorm of the released files is never applied and is dropped."""
    image, text = ({key.removeprefix("module."): value for key, value in part.items()} for part in file["model"][:2])
    if "mlp.layers.0.weight" not in image or "embed.weight" not in text:
        raise BadInput("only the region + bi-GRU models of VSE-infinity can be read; this file holds another kind")
    weights = renamed({k: v for k, v in image.items() if not k.startswith("mlp.bns.1.")}, REGIONS)
    weights |= renamed(text, WORDS | {"gpool.": "encoders.text.pool."})
    named: dict[str, Value] = {
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

SMALL: dict[str, Value] = {"dim": 256, "word_dim": 128, "batch": 128, "epochs": 16, "rate": 1e-3}
ROBUST: dict[str, Value] = {"loss": "rclog"}
DUAL: dict[str, Value] = {
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
        VSEPlusPlus,
        paper="VSE++: Improving Visual-Semantic Embeddings with Hard Negatives (BMVC 2018)",
        needs=("pairs",),
        small={**SMALL, "rate": 2e-3},
        robust=ROBUST,
        reader=read_plus_plus,
    ),
    Method(
        "vse_infty",
        VSEInfinity,
        paper="Learning the Best Pooling Strategy for Visual Semantic Embedding (CVPR 2021)",
        needs=("pairs", "regions"),
        small={**SMALL, "hidden": 256, "drop_words": 0.1},
        robust=ROBUST,
        presets={"dual": DUAL},
        reader=read_infinity,
    ),
]
