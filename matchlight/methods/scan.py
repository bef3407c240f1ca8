"""SCAN: each word looks at the regions (or each region at the words), and a pair is as good as its fragments are seen.

Lee et al., ECCV 2018, arXiv:1803.08024. Departs from the paper: captions of the same picture are never negatives
(`siblings="negatives"` counts them, as the repository does). From the code: the l1 norms work (there they call a
function that does not exist), and one picture or one word alone can be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Embedding, Items, Matcher, Similarity, Sizes
from matchlight.inputs.augmentation import changed
from matchlight.parts.attention import CrossAttention, Meeting, attention, combined, cosines
from matchlight.parts.encoders import Words, gru_names
from matchlight.parts.layers import glorot, unit
from matchlight.parts.objectives import Hinge
from matchlight.scoring import kernels
from matchlight.training.arguments import (
    Count,
    NonNegative,
    Positive,
    Ranking,
    Staircase,
    Training,
    TunedPictures,
    Value,
    Whole,
)
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method, Weights, renamed
from matchlight.training.schedules import groups, staircase
from matchlight.training.strategies import Plain, WarmUp

# ---- encoders: BFAN and IMRAM have the same -------------------------------------------------------------------------


class Regions(nn.Module):
    """Each region projected, of unit length; nothing else happens to a picture."""

    def __init__(self, inside: int, dim: int, *, unit_length: bool = True):
        super().__init__()
        self.fc = glorot(nn.Linear(inside, dim))
        self.unit_length = unit_length

    def forward(self, items: Items) -> Embedding:
        """(N, R, dim); padded regions are zero."""
        out = self.fc(items.x if items.x.dim() == 3 else items.x[:, None])
        out = out if items.mask is None else out * items.mask[..., None]
        return Embedding(unit(out) if self.unit_length else out, items.mask)


class WordStates(nn.Module):
    """Each word as its GRU state, of unit length."""

    def __init__(self, vocabulary: int, dim: int, *, word_dim: int, both_ways: bool = True, unit_length: bool = True):
        super().__init__()
        self.words = Words(vocabulary, dim, word_dim=word_dim, both_ways=both_ways)
        self.unit_length = unit_length

    def forward(self, items: Items) -> Embedding:
        """(N, L, dim); padded words are zero."""
        states = self.words(items)
        return Embedding(unit(states) if self.unit_length else states, items.mask)


# ---- the score ------------------------------------------------------------------------------------------------------


class StackedCrossAttention(CrossAttention):
    """Cosine of each fragment with what it attends to on the other side, put together into one number."""

    def __init__(self, direction: str, *, aggregate: str, norm: str, temperature: float, sharpness: float):
        super().__init__(direction)
        self.aggregate = aggregate
        self.norm = norm
        self.temperature = temperature
        self.sharpness = sharpness

    def fused(self) -> kernels.AttentionSettings | None:
        """For the norms that the kernels know."""
        if self.norm not in kernels.NORMS:
            return None
        return kernels.AttentionSettings(self.temperature, norm=self.norm, aggregate=self.aggregate, lse=self.sharpness)

    def direction_scores(self, meeting: Meeting, direction: str) -> Tensor:
        """(N, K)."""
        weights = attention(meeting, temperature=self.temperature, norm=self.norm)
        fit = cosines(meeting, weights)
        return combined(fit, meeting.query_mask, aggregate=self.aggregate, sharpness=self.sharpness)


# ---- the recipe, and what BFAN and IMRAM share -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttentionArguments(TunedPictures, Ranking, Staircase, Training):
    """Regions and words, each of unit length, compared by attention; ranking loss, Adam, a staircase."""

    dim: Count = 1024
    word_dim: Count = 300
    image_norm: bool = True
    text_norm: bool = True
    hardest: bool = True
    warm: Whole = 0

    def assemble(self, sizes: Sizes, similarity: Callable[[], Similarity], *, both_ways: bool = True) -> Recipe:
        """The recipe of a similarity between fragments; `both_ways`: captions are read forwards and backwards."""
        hinge = partial(Hinge, margin=self.margin, siblings=self.siblings)

        def matcher() -> Matcher:
            image = Regions(sizes.image_dim, self.dim, unit_length=self.image_norm)
            reading = {"both_ways": both_ways, "unit_length": self.text_norm}
            text = WordStates(sizes.vocabulary, self.dim, word_dim=self.word_dim, **reading)
            seen: nn.Module = self.behind_backbone(image)
            return Matcher({IMAGE: seen, TEXT: text}, similarity())

        recipe = Recipe(
            matcher=matcher,
            objective=partial(hinge, hardest=self.hardest),
            strategy=WarmUp(hinge(hardest=False), epochs=self.warm) if self.warm else Plain(),
            groups=partial(groups, rate=self.rate, backbone=self.backbone_rates(), decay=0.0),
            schedule=partial(staircase, every=self.decay_every),
            epochs=self.epochs,
            batch=self.batch,
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
            augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if self.finetune else None,
        )
        return self.ranked(recipe)


Norm = Literal["clipped_l2norm", "l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm"]


@dataclass(frozen=True, kw_only=True)
class SCAN(AttentionArguments):
    """SCAN; `temperature` and `sharpness` (lambda 1 and 2) are the paper's for the direction unless given."""

    direction: Literal["t2i", "i2t"] = "t2i"
    aggregate: Literal["lse", "mean", "max", "sum"] = "mean"
    norm: Norm = "clipped_l2norm"
    temperature: Positive | None = None
    sharpness: NonNegative | None = None
    both_ways: bool = True

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        usual = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}[self.direction]
        similarity = partial(
            StackedCrossAttention,
            self.direction,
            aggregate=self.aggregate,
            norm=self.norm,
            temperature=usual[0] if self.temperature is None else self.temperature,
            sharpness=usual[1] if self.sharpness is None else self.sharpness,
        )
        return self.assemble(sizes, similarity, both_ways=self.both_ways)


# ---- the authors' checkpoints ---------------------------------------------------------------------------------------

WORDS = {"embed.": "encoders.text.words.embed."} | gru_names("rnn.", "encoders.text.words.")


def plain_projection(image: Weights, name: str = "fc.") -> dict[str, Tensor]:
    """The picture's projection as weight and bias; weight normalisation (one gain for all of it) is multiplied out."""
    if f"{name}weight_v" in image:
        direction = image[f"{name}weight_v"]
        weight = image[f"{name}weight_g"] * direction / torch.linalg.vector_norm(direction)
        image = {f"{name}weight": weight, f"{name}bias": image[f"{name}bias"]}
    return renamed(image, {name: "encoders.image.fc."})


def read_encoders(file: Checkpoint) -> tuple[dict[str, Value], dict[str, int], dict[str, Tensor]]:
    """Arguments, sizes and weights of `model` = [image, text], the layout of SCAN, BFAN and AOQ's BFAN."""
    image, text = file["model"][:2]
    weights = plain_projection(image) | renamed(text, WORDS)
    return shared_arguments(weights, file["opt"]), shared_sizes(weights), weights


def shared_sizes(weights: Weights) -> dict[str, int]:
    """What the weights say about the data."""
    vocabulary = len(weights["encoders.text.words.embed.weight"])
    return {"image_dim": weights["encoders.image.fc.weight"].shape[1], "vocabulary": vocabulary}


def shared_arguments(weights: Weights, options: Checkpoint) -> dict[str, Value]:
    """What the weights and the options say about encoders and loss."""
    return {
        "dim": weights["encoders.image.fc.weight"].shape[0],
        "word_dim": weights["encoders.text.words.embed.weight"].shape[1],
        "image_norm": not options.get("no_imgnorm", False),
        "text_norm": not options.get("no_txtnorm", False),
        "hardest": bool(options.get("max_violation", True)),
        "margin": float(options.get("margin", 0.2)),
        "siblings": "negatives",
    }


def read(file: Checkpoint) -> Foreign:
    """SCAN: direction, aggregation, norm and both lambdas stand in the options, the kind of GRU in the weights."""
    named, sizes, weights = read_encoders(file)
    options = file["opt"]
    how = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}
    named |= {
        "direction": options.get("cross_attn", "t2i"),
        "aggregate": how[options.get("agg_func", "LogSumExp")],
        "norm": options.get("raw_feature_norm", "clipped_l2norm"),
        "temperature": float(options.get("lambda_softmax", 9.0)),
        "sharpness": float(options.get("lambda_lse", 6.0)),
        "both_ways": any(".back." in key for key in weights),
    }
    return Foreign(named, sizes, weights)


SMALL: dict[str, Value] = {"dim": 256, "word_dim": 128, "batch": 128, "epochs": 12, "rate": 1e-3, "warm": 1}
ROBUST: dict[str, Value] = {"loss": "rclog", "warm": 0}  # it needs no gentle start
COCO: dict[str, Value] = {"epochs": 20, "rate": 5e-4, "decay_every": 10}
FLICKR: dict[str, Value] = {"epochs": 30, "rate": 2e-4, "decay_every": 15}

METHODS = [
    Method(
        "scan",
        SCAN,
        paper="Stacked Cross Attention for Image-Text Matching (ECCV 2018)",
        needs=("pairs", "regions"),
        small=SMALL,
        robust=ROBUST,
        presets={"f30k": FLICKR, "coco": COCO},
        reader=read,
    ),
]
