"""DivE: a picture is a small set of vectors, a caption too, and the sets are compared softly, element by element.

Kim, Kim, Kwak: Improving Cross-Modal Retrieval with Set of Diverse Embeddings, CVPR 2023, arXiv:2211.16761. Slots that
compete for regions or words find the elements (`slots.py`), smooth-Chamfer similarity compares sets
(`parts/set_similarities.py`), and a triplet loss trains on pictures that come with all their captions.

Departs from the authors' code: padding takes no part (`padding="official"` lets it, as their attention does), places of
words are relative to the caption's own length, BatchNorm ignores padded regions, and word vectors start from small
random numbers (theirs from GloVe). `loss=infonce | rclog | gce`, `pooling=gpo | top` and `padding="masked"` belong to
Matchlight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from matchlight.core import IMAGE, TEXT, BadInput, Group, Items, Matcher, Objective, Schedule, Seed, Sizes
from matchlight.inputs.augmentation import crop_flip_colour, drop_words
from matchlight.methods.dive_files import read_dive
from matchlight.methods.set_encoders import PieceSets, RegionSets, WordSets
from matchlight.methods.set_losses import SetLoss, Triplet
from matchlight.methods.slots import SetPrediction, Slots
from matchlight.parts.canonical_start import start_canonically
from matchlight.parts.objectives import SoftmaxLoss
from matchlight.parts.set_similarities import set_similarity
from matchlight.training.arguments import (
    BatchSize,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Share,
    Staircase,
    Training,
    TunedPictures,
    Value,
    Whole,
)
from matchlight.training.contract import Recipe
from matchlight.training.registry import Method
from matchlight.training.schedules import BackboneRates, backbone_groups, half_cosine, staircase
from matchlight.training.strategies import Together, WarmUp

OFFICIAL_BATCH = 256  # what the authors' evaluation reads at once: with their padding, embeddings depend on it
AROUND = (1, 2)  # <start> and <end>: never changed


def own_rates(
    matcher: Matcher,
    objective: Objective,
    *,
    rate: float,
    slots: float,
    reader: float,
    backbone: BackboneRates,
    decay: float,
) -> list[Group]:
    """What was pretrained; all else of the pictures and the captions' set module, slowly; all else of the captions."""
    parts: dict[str, list[nn.Parameter]] = {"heads": list(objective.parameters()), "slots": [], "reader": []}
    for name, p in matcher.named_parameters():
        if ".backbone." not in name and p.requires_grad:  # a frozen reader is left as it is
            parts[_part(name)].append(p)
    shares = {"heads": 1.0, "slots": slots, "reader": reader}
    own = {
        name: [Group(name=name, params=params, lr=rate * shares[name], weight_decay=decay)] if params else []
        for name, params in parts.items()
    }
    pictures = backbone_groups(matcher, rate, backbone, decay=decay)
    return [*own["heads"], *own["slots"], *pictures, *own["reader"]]


def _part(name: str) -> str:
    if ".reader." in name:
        return "reader"
    return "slots" if name.startswith("encoders.image.") or ".slots." in name else "heads"


def own_factors(epoch: int, step: int, steps: int, *, rates: Schedule, frozen: int) -> dict[str, float]:
    """One factor for all; the backbone waits `frozen` epochs."""
    factor = rates(epoch, step, steps)
    assert isinstance(factor, float)
    return {"heads": factor, "slots": factor, "reader": factor, "backbone": 0.0 if epoch < frozen else factor}


def changed(side: str, items: Items, seed: Seed, *, p: float, vocabulary: int, crop: float | None) -> Items:
    """Training only: pixels cropped and mirrored (where `crop` is given), words masked, replaced or left out."""
    if side == IMAGE:
        return crop_and_mirror(items, seed, crop) if crop is not None else items
    if not p:
        return items
    return drop_words(items, seed=seed, p=p, mode="mixed", word=vocabulary, vocabulary=vocabulary, special=AROUND)


def crop_and_mirror(items: Items, seed: Seed, smallest: float) -> Items:
    """Windows from the share `smallest` of a picture's area up to all of it."""
    return crop_flip_colour(items, seed=seed, by="area", scale=(smallest, 1.0), ratio=(3 / 4, 4 / 3), brightness=0.0)


@dataclass(frozen=True, kw_only=True)
class DivE(TunedPictures, Staircase, Training):
    """DivE on regions or grid cells with a bi-GRU; `sentences=hf:NAME` reads captions with a transformer instead."""

    dim: Count = 1024
    hidden: Count = 512
    word_dim: Count = 300
    slots: Count = 4
    depth: Count = 4
    heads: Count = 4
    head_dim: Count = 512
    begin: Literal["learned", "sampled"] = "learned"
    update: Literal["sum", "gru"] = "sum"
    whole: bool = True
    pooling: Literal["paper", "gpo", "top"] = "paper"
    similarity: Literal["smooth_chamfer", "chamfer", "mil", "mp"] = "smooth_chamfer"
    alpha: Positive = 16.0
    match_learned: bool = False
    padding: Literal["masked", "official"] = "masked"
    sentences: str | None = None
    projections: Literal["canonical", "random"] | None = "random"  # None: canonical wherever that can be
    dropout: Share = 0.1
    drop_regions: Share = 0.2
    drop_words: Share = 0.2
    loss: Literal["triplet", "infonce", "rclog", "gce"] = "triplet"
    negatives: Literal["hardest", "all", "semihard"] = "hardest"
    margin: NonNegative = 0.2
    temperature: Positive = 0.05
    pull: NonNegative = 0.1
    q: Fraction = 0.5
    mmd: NonNegative = 0.01
    diversity: NonNegative = 0.01
    warm: Whole = 0
    together: bool = True
    crop: Fraction = 0.36
    backbone_rate: NonNegative = 1.0
    sentences_rate: NonNegative = 1.0
    freeze_epochs: Whole = 1
    epochs: Count = 80
    batch: BatchSize = 1000
    rate: Positive = 1e-3
    slot_rate: NonNegative = 0.1
    decay: NonNegative = 1e-4
    schedule: Literal["cosine", "staircase"] = "cosine"
    decay_every: Count = 10
    clip: NonNegative = 1.0
    ema: Share = 0.0
    validate_every: Count = 1

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        of_sets = {"mmd": self.mmd, "diversity": self.diversity}
        gentle = SetLoss(Triplet(margin=self.margin, negatives="all"), **of_sets)
        spent = Together if self.together else WarmUp
        falls = half_cosine if self.schedule == "cosine" else staircase
        length = {"epochs": self.epochs} if self.schedule == "cosine" else {"every": self.decay_every}
        rates = partial(own_rates, slots=self.slot_rate, reader=self.sentences_rate, backbone=self.backbone_rates())
        words = 0.0 if self.sentences else self.drop_words  # pieces are dropped by their encoder, which knows words
        crop = self.crop if self.finetune else None
        return Recipe(
            matcher=partial(self.network, sizes),
            objective=partial(SetLoss, self.ranking(), **of_sets),
            strategy=spent(gentle, epochs=self.warm if self.loss == "triplet" else 0),
            begin=start_canonically if self.starts_canonically() else None,
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(rates, rate=self.rate, decay=self.decay),
            optimiser="adamw",
            schedule=partial(
                own_factors, rates=partial(falls, **length), frozen=self.freeze_epochs if self.finetune else 0
            ),
            clip=self.clip,
            ema=self.ema,
            select=self.select,
            validate_every=self.validate_every,
            augment=partial(changed, p=words, vocabulary=sizes.vocabulary, crop=crop),
        )

    def reads_pretrained(self) -> bool:
        """With a sentence encoder, but not from pixels."""
        return bool(self.sentences) and not self.finetune

    def starts_canonically(self) -> bool:
        """Whether projections begin with canonical correlation: as asked, or wherever captions come pretrained."""
        possible = bool(self.sentences) and self.whole
        if self.projections == "canonical" and not possible:
            raise BadInput(
                "projections=canonical: needs captions read by a sentence encoder (sentences=minilm), and whole=true"
            )
        return possible and self.projections != "random"

    def ranking(self) -> Objective:
        """The ranking loss: triplets, or probabilities at a temperature."""
        if self.loss == "triplet":
            return Triplet(margin=self.margin, negatives=self.negatives)
        return SoftmaxLoss(self.loss, temperature=self.temperature, pull=self.pull, q=self.q)

    def network(self, sizes: Sizes) -> Matcher:
        """Both sides with a set prediction module of their own, pictures behind a backbone where it is trained."""
        image = RegionSets(
            sizes.image_dim,
            self.dim,
            SetPrediction(self.dim, self.dim, self.slot_settings()),
            hidden=self.hidden,
            dropout=self.dropout,
            drop=self.drop_regions,
            pooling=self.pooling,
        )
        sides = {IMAGE: self.behind_backbone(image), TEXT: self.caption_sets(sizes)}
        matcher = Matcher(sides, set_similarity(self.similarity, alpha=self.alpha, learned=self.match_learned))
        if self.padding == "official":
            matcher.depends_on_padding, matcher.encode_batch = True, OFFICIAL_BATCH
        return matcher

    def caption_sets(self, sizes: Sizes) -> nn.Module:
        """Captions read by a sentence encoder where one is named, else word by word."""
        if self.sentences:
            reads = SetPrediction(self.dim, self.dim, self.slot_settings())
            frozen = not self.sentences_rate
            return PieceSets(self.sentences, self.dim, reads, drop=self.drop_words, pooling=self.pooling, frozen=frozen)
        reads = SetPrediction(self.dim, self.word_dim, self.slot_settings())
        rows = sizes.vocabulary + 1  # one more than there are words: <mask>
        return WordSets(rows, self.dim, reads, word_dim=self.word_dim, dropout=self.dropout, pooling=self.pooling)

    def slot_settings(self) -> Slots:
        """The slots of either side."""
        return Slots(
            count=self.slots,
            depth=self.depth,
            heads=self.heads,
            head_dim=self.head_dim,
            dropout=self.dropout,
            begin=self.begin,
            update=self.update,
            whole=self.whole,
            padding=self.padding,
        )


GRID: dict[str, Value] = {
    "drop_regions": 0.0,
    "finetune": True,
    "epochs": 120,
    "schedule": "staircase",
    "freeze_epochs": 50,
}
GRID |= {"backbone": "timm:resnet152.tv_in1k", "pixels": 224, "crop": 0.08}
BERT: dict[str, Value] = {
    "drop_regions": 0.0,
    "finetune": True,
    "epochs": 50,
    "schedule": "staircase",
    "decay_every": 20,
    "rate": 1e-4,
}
BERT |= {"backbone": "timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "pixels": 512, "backbone_rate": 0.1, "warm": 1}
BERT |= {"sentences": "hf:bert-base-uncased", "batch": 640}

# few steps want no slow part, a picture in as many batches as it has captions, and hard negatives only once the
# encoders know something
SMALL: dict[str, Value] = {"dim": 256, "hidden": 256, "word_dim": 128, "head_dim": 64, "batch": 128, "epochs": 16}
SMALL |= {"rate": 1.5e-3, "slot_rate": 1.0, "together": False, "dropout": 0.0, "drop_words": 0.1}
SMALL |= {"pooling": "gpo", "loss": "rclog", "diversity": 0.3}
DUAL: dict[str, Value] = {
    "loss": "rclog",
    "pooling": "top",
    "head_dim": 128,
    "rate": 5e-4,
    "slot_rate": 1.0,
    "batch": 640,
    "epochs": 20,
}

METHODS = [
    Method(
        "dive",
        DivE,
        paper="Improving Cross-Modal Retrieval with Set of Diverse Embeddings (CVPR 2023)",
        needs=("pairs", "regions"),
        small=SMALL,
        presets={
            "coco": {},
            "f30k": {"slot_rate": 0.05},
            "coco_grid": GRID,
            "f30k_grid": {**GRID, "rate": 2e-3, "slot_rate": 0.01},
            "bert": BERT,
            "dual": DUAL,
        },
        reader=read_dive,
    )
]
