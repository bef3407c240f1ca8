"""DivE: a picture is a small set of vectors, a caption too, and the sets are compared softly, element by element.

Kim, Kim, Kwak: Improving Cross-Modal Retrieval with Set of Diverse Embeddings, CVPR 2023, arXiv:2211.16761. Slots that
compete for regions or words find the elements (`slots.py`), smooth-Chamfer similarity compares sets (`sets.py`), and a
triplet loss trains on pictures that come with all their captions.

Departs from the authors' code: padding takes no part (`padding="official"` lets it, as their attention does), places of
words are relative to the caption's own length, BatchNorm ignores padded regions, and word vectors start from small
random numbers (theirs from GloVe). `loss=infonce | rclog | gce`, `pooling=gpo | top` and `padding="masked"` belong to
Matchlight.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, Items, Matcher, Objective, Recipe, Sizes, Strategy
from matchlight.inputs.augmentation import crop_flip_colour, drop_words
from matchlight.methods.dive_files import read_dive
from matchlight.methods.set_encoders import POOLINGS, PieceSets, RegionSets, WordSets
from matchlight.methods.set_losses import LOSSES, NEGATIVES, SetLoss, Triplet, ranking
from matchlight.methods.slots import BEGINS, PADDINGS, UPDATES, SetPrediction
from matchlight.parts.encoders import from_pixels
from matchlight.parts.sets import SIMILARITIES, set_similarity
from matchlight.training.recipes import Method, check_choices
from matchlight.training.schedules import half_cosine, staircase
from matchlight.training.strategies import Together, WarmUp

OFFICIAL_BATCH = 256  # what the authors' evaluation reads at once: with their padding, embeddings depend on it
AROUND = (1, 2)  # <start> and <end>: never changed


def own_rates(
    matcher: Matcher, objective: Objective, *, rate: float, shares: dict[str, float], decay: float
) -> list[dict[str, Any]]:
    """What was pretrained; all else of the pictures and the captions' set module, slowly; all else of the captions."""
    parts: dict[str, list[Tensor]] = {"heads": list(objective.parameters()), **{name: [] for name in shares}}
    for name, p in matcher.named_parameters():
        parts[_part(name)].append(p)
    return [
        {"name": name, "params": params, "lr": rate * shares.get(name, 1.0), "weight_decay": decay}
        for name, params in parts.items()
        if params
    ]


def _part(name: str) -> str:
    for pretrained in ("backbone", "reader"):
        if f".{pretrained}." in name:
            return pretrained
    return "slots" if name.startswith("encoders.image.") or ".slots." in name else "heads"


def own_factors(epoch: int, step: int, steps: int, *, rates: Any, frozen: int) -> dict[str, float]:
    """One factor for all; the backbone waits `frozen` epochs."""
    factor = rates(epoch, step, steps)
    return {"heads": factor, "slots": factor, "reader": factor, "backbone": 0.0 if epoch < frozen else factor}


def changed(side: str, items: Items, seed: int, *, p: float, vocabulary: int, crop: float | None) -> Items:
    """Training only: pixels cropped and mirrored (where `crop` is given), words masked, replaced or left out."""
    if side == IMAGE:
        return crop_and_mirror(items, seed, crop) if crop is not None else items
    if not p:
        return items
    return drop_words(items, seed=seed, p=p, mode="mixed", word=vocabulary, vocabulary=vocabulary, special=AROUND)


def crop_and_mirror(items: Items, seed: int, smallest: float) -> Items:
    """Windows from the share `smallest` of a picture's area up to all of it."""
    return crop_flip_colour(items, seed=seed, by="area", scale=(smallest, 1.0), ratio=(3 / 4, 4 / 3), brightness=0.0)


def caption_sets(sizes: Sizes, dim: int, slots: dict[str, Any], text: dict[str, Any]) -> nn.Module:
    """Captions read by a sentence encoder where one is named, else word by word."""
    if text["name"]:
        reads = SetPrediction(dim, dim, **slots)
        return PieceSets(text["name"], dim, reads, drop=text["drop"], pooling=text["pooling"])
    reads = SetPrediction(dim, text["word_dim"], **slots)
    rows = sizes.vocabulary + 1  # one more than there are words: <mask>
    shape = {"word_dim": text["word_dim"], "dropout": slots["dropout"], "pooling": text["pooling"]}
    return WordSets(rows, dim, reads, **shape)


def matching_sets(
    sizes: Sizes,
    dim: int,
    *,
    slots: dict[str, Any],
    image: dict[str, Any],
    text: dict[str, Any],
    similarity: dict[str, Any],
    backbone: str | None,
) -> Matcher:
    """Both sides with a set prediction module of their own, pictures behind a backbone where one is named."""
    seen = RegionSets(sizes.image_dim, dim, SetPrediction(dim, dim, **slots), dropout=slots["dropout"], **image)
    sides = {IMAGE: from_pixels(seen, backbone) if backbone else seen, TEXT: caption_sets(sizes, dim, slots, text)}
    matcher = Matcher(sides, set_similarity(**similarity))
    if slots["padding"] == "official":
        matcher.depends_on_padding, matcher.encode_batch = True, OFFICIAL_BATCH
    return matcher


def recipe(
    sizes: Sizes,
    *,
    dim: int = 1024,
    hidden: int = 512,
    word_dim: int = 300,
    slots: int = 4,
    depth: int = 4,
    heads: int = 4,
    head_dim: int = 512,
    begin: str = "learned",
    update: str = "sum",
    whole: bool = True,
    pooling: str = "paper",
    similarity: str = "smooth_chamfer",
    alpha: float = 16.0,
    match_learned: bool = False,
    padding: str = "masked",
    sentences: str | None = None,
    dropout: float = 0.1,
    drop_regions: float = 0.2,
    drop_words: float = 0.2,
    loss: str = "triplet",
    negatives: str = "hardest",
    margin: float = 0.2,
    temperature: float = 0.05,
    pull: float = 0.1,
    q: float = 0.5,
    mmd: float = 0.01,
    diversity: float = 0.01,
    warm: int = 0,
    together: bool = True,
    finetune: bool = False,
    backbone: str = "lite0",
    pixels: int | None = None,
    crop: float = 0.36,
    backbone_rate: float = 1.0,
    sentences_rate: float = 1.0,
    freeze_epochs: int = 1,
    epochs: int = 80,
    batch: int = 1000,
    rate: float = 1e-3,
    slot_rate: float = 0.1,
    decay: float = 1e-4,
    schedule: str = "cosine",
    decay_every: int = 10,
    clip: float = 1.0,
    ema: float = 0.0,
    select: str = "best",
    validate_every: int = 1,
) -> Recipe:
    """DivE on regions or grid cells with a bi-GRU; `sentences=hf:NAME` reads captions with a transformer instead."""
    return built(SimpleNamespace(**locals()))


def built(g: SimpleNamespace) -> Recipe:
    """The recipe of these arguments."""
    check_choices(similarity=(g.similarity, SIMILARITIES), padding=(g.padding, PADDINGS), begin=(g.begin, BEGINS))
    check_choices(update=(g.update, UPDATES), loss=(g.loss, LOSSES), negatives=(g.negatives, NEGATIVES))
    check_choices(schedule=(g.schedule, ("cosine", "staircase")), pooling=(g.pooling, POOLINGS))
    chosen = {"margin": g.margin, "negatives": g.negatives, "temperature": g.temperature, "pull": g.pull, "q": g.q}
    of_sets = {"mmd": g.mmd, "diversity": g.diversity}
    gentle = SetLoss(Triplet(margin=g.margin, negatives="all"), **of_sets)
    strategy: Strategy = (Together if g.together else WarmUp)(gentle, epochs=g.warm if g.loss == "triplet" else 0)
    falls = {"cosine": partial(half_cosine, epochs=g.epochs), "staircase": partial(staircase, every=g.decay_every)}
    shares = {"slots": g.slot_rate, "backbone": g.backbone_rate, "reader": g.sentences_rate}
    words = 0.0 if g.sentences else g.drop_words  # pieces are dropped by their encoder, which knows whole words
    return Recipe(
        matcher=network_of(g),
        objective=partial(SetLoss, ranking(g.loss, **chosen), **of_sets),
        strategy=strategy,
        epochs=g.epochs,
        batch=g.batch,
        groups=partial(own_rates, rate=g.rate, shares=shares, decay=g.decay),
        optimiser="adamw",
        schedule=partial(own_factors, rates=falls[g.schedule], frozen=g.freeze_epochs if g.finetune else 0),
        clip=g.clip,
        ema=g.ema,
        select=g.select,
        validate_every=g.validate_every,
        augment=partial(changed, p=words, vocabulary=g.sizes.vocabulary, crop=g.crop if g.finetune else None),
    )


def network_of(g: SimpleNamespace) -> Callable[[], Matcher]:
    """Builds the matcher of these arguments."""
    module = {"count": g.slots, "depth": g.depth, "heads": g.heads, "head_dim": g.head_dim, "dropout": g.dropout}
    module |= {"begin": g.begin, "update": g.update, "whole": g.whole, "padding": g.padding}
    return partial(
        matching_sets,
        g.sizes,
        g.dim,
        slots=module,
        image={"hidden": g.hidden, "drop": g.drop_regions, "pooling": g.pooling},
        text={"name": g.sentences, "word_dim": g.word_dim, "drop": g.drop_words, "pooling": g.pooling},
        similarity={"name": g.similarity, "alpha": g.alpha, "learned": g.match_learned},
        backbone=g.backbone if g.finetune else None,
    )


GRID: dict[str, Any] = {
    "drop_regions": 0.0,
    "finetune": True,
    "epochs": 120,
    "schedule": "staircase",
    "freeze_epochs": 50,
}
GRID |= {"backbone": "timm:resnet152.tv_in1k", "pixels": 224, "crop": 0.08}
BERT: dict[str, Any] = {
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
SMALL: dict[str, Any] = {"dim": 256, "hidden": 256, "word_dim": 128, "head_dim": 64, "batch": 128, "epochs": 16}
SMALL |= {"rate": 1.5e-3, "slot_rate": 1.0, "together": False, "dropout": 0.0, "drop_words": 0.1}
SMALL |= {"pooling": "gpo", "loss": "rclog", "diversity": 0.3}
DUAL = {"loss": "rclog", "pooling": "top", "head_dim": 128, "rate": 5e-4, "slot_rate": 1.0, "batch": 640, "epochs": 20}

METHODS = [
    Method(
        "dive",
        recipe,
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
