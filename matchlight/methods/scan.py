"""SCAN: each word looks at the regions (or each region at the words), and a pair is as good as its fragments are seen.

Lee et al., ECCV 2018, arXiv:1803.08024. Departs from the paper: captions of the same picture are never negatives
(`siblings="negatives"` counts them, as the repository does). From the code: the l1 norms work (there they call a
function that does not exist), and one picture or one word alone can be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Embedding, Items, Matcher, Recipe, Similarity, Sizes
from matchlight.inputs.augmentation import changed
from matchlight.parts.attention import AGGREGATES, NORMS, CrossAttention, Meeting, attention, combined, cosines
from matchlight.parts.encoders import Words, from_pixels, gru_names
from matchlight.parts.layers import glorot, unit
from matchlight.parts.objectives import Hinge
from matchlight.scoring import kernels
from matchlight.training.recipes import Foreign, Method, check_choices, renamed
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
        found = cosines(meeting, weights)
        return combined(found, meeting.query_mask, aggregate=self.aggregate, sharpness=self.sharpness)


def recipe(
    sizes: Sizes,
    *,
    direction: str = "t2i",
    aggregate: str = "mean",
    norm: str = "clipped_l2norm",
    temperature: float | None = None,
    sharpness: float | None = None,
    dim: int = 1024,
    word_dim: int = 300,
    both_ways: bool = True,
    image_norm: bool = True,
    text_norm: bool = True,
    margin: float = 0.2,
    hardest: bool = True,
    warm: int = 0,
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
    """SCAN; `temperature` and `sharpness` (lambda 1 and 2) are the paper's for the direction unless given."""
    check_choices(direction=(direction, ("t2i", "i2t")), aggregate=(aggregate, AGGREGATES), norm=(norm, NORMS))
    usual = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}[direction]
    similarity = partial(
        StackedCrossAttention,
        direction,
        aggregate=aggregate,
        norm=norm,
        temperature=usual[0] if temperature is None else temperature,
        sharpness=usual[1] if sharpness is None else sharpness,
    )
    return assemble(
        fragments(sizes, dim, word_dim, both_ways=both_ways, image_norm=image_norm, text_norm=text_norm),
        similarity,
        hinge=partial(Hinge, margin=margin, siblings=siblings),
        hardest=hardest,
        warm=warm,
        finetune=backbone if finetune else None,
        backbone_rate=backbone_rate,
        rate=rate,
        decay_every=decay_every,
        shared={"epochs": epochs, "batch": batch, "clip": clip, "select": select, "siblings": siblings},
    )


# ---- what BFAN and IMRAM share --------------------------------------------------------------------------------------

Encoders = Callable[[], dict[str, nn.Module]]


def fragments(
    sizes: Sizes, dim: int, word_dim: int, *, both_ways: bool = True, image_norm: bool = True, text_norm: bool = True
) -> Encoders:
    """Regions and words, each of unit length."""
    return lambda: {
        IMAGE: Regions(sizes.image_dim, dim, unit_length=image_norm),
        TEXT: WordStates(sizes.vocabulary, dim, word_dim=word_dim, both_ways=both_ways, unit_length=text_norm),
    }


def assemble(
    encoders: Encoders,
    similarity: Callable[[], Similarity],
    *,
    hinge: Callable[..., Hinge],
    hardest: bool,
    warm: int,
    finetune: str | None,
    backbone_rate: float,
    rate: float,
    decay_every: int,
    shared: dict[str, Any],
) -> Recipe:
    """How all three papers train: ranking loss, Adam, a staircase; `finetune` names a backbone to train along."""

    def matcher() -> Matcher:
        sides = encoders()
        if finetune is not None:
            sides[IMAGE] = from_pixels(sides[IMAGE], finetune)
        return Matcher(sides, similarity())

    return Recipe(
        matcher=matcher,
        objective=partial(hinge, hardest=hardest),
        strategy=WarmUp(hinge(hardest=False), epochs=warm) if warm else Plain(),
        groups=partial(groups, rate=rate, backbone=backbone_rate, decay=0.0),
        schedule=partial(staircase, every=decay_every),
        augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if finetune is not None else None,
        **shared,
    )


# ---- the authors' checkpoints ---------------------------------------------------------------------------------------

WORDS = {"embed.": "encoders.text.words.embed."} | gru_names("rnn.", "encoders.text.words.")


def plain_projection(image: dict[str, Any], name: str = "fc.") -> dict[str, Any]:
    """The picture's projection as weight and bias; weight normalisation (one gain for all of it) is multiplied out."""
    if f"{name}weight_v" in image:
        direction = image[f"{name}weight_v"]
        weight = image[f"{name}weight_g"] * direction / torch.linalg.vector_norm(direction)
        image = {f"{name}weight": weight, f"{name}bias": image[f"{name}bias"]}
    return renamed(image, {name: "encoders.image.fc."})


def read_encoders(file: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int], dict[str, Any]]:
    """Arguments, sizes and weights of `model` = [image, text], the layout of SCAN, BFAN and AOQ's BFAN."""
    image, text = file["model"][:2]
    weights = plain_projection(image) | renamed(text, WORDS)
    return shared_arguments(weights, file["opt"]), shared_sizes(weights), weights


def shared_sizes(weights: dict[str, Any]) -> dict[str, int]:
    """What the weights say about the data."""
    vocabulary = len(weights["encoders.text.words.embed.weight"])
    return {"image_dim": weights["encoders.image.fc.weight"].shape[1], "vocabulary": vocabulary}


def shared_arguments(weights: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
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


def read(file: dict[str, Any]) -> Foreign:
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


SMALL = {"dim": 256, "word_dim": 128, "batch": 128, "epochs": 12, "rate": 1e-3, "warm": 1}
COCO = {"epochs": 20, "rate": 5e-4, "decay_every": 10}
FLICKR = {"epochs": 30, "rate": 2e-4, "decay_every": 15}

METHODS = [
    Method(
        "scan",
        recipe,
        paper="Stacked Cross Attention for Image-Text Matching (ECCV 2018)",
        needs=("pairs", "regions"),
        small=SMALL,
        presets={"f30k": FLICKR, "coco": COCO},
        reader=read,
    ),
]
