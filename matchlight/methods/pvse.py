"""PVSE: a picture and a caption are K vectors each, for K ways to read them, and the best pair of readings counts.

Song and Soleymani, CVPR 2019, arXiv:1906.04402. The vectors come from PIE-Net (`pie_net.py`); training with the best
pair is multiple-instance learning. Two more terms keep the K readings of an item apart (diversity) and pictures and
captions in one region of the space (MMD).

Departs from the authors' code: captions of the same picture are never negatives (`siblings="negatives"` counts them);
the model is chosen on the validation split (the code validates on test); the rate is halved on a fixed plan, the one
that the code's plateau rule comes to (see `halved`); word vectors start at random instead of GloVe and always learn.
Videos and the order measure are left out. `sentence="last_word"` reads captions as the released models do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Batch, Embedding, Matcher, Objective, Scores, Sizes, Terms
from matchlight.inputs.augmentation import changed
from matchlight.methods.pie_net import polysemous_image, polysemous_text
from matchlight.methods.set_losses import own_sets
from matchlight.parts.encoders import gru_names
from matchlight.parts.objectives import contrast, hinge_all, hinge_hardest
from matchlight.parts.set_similarities import BestPair, maximum_mean_discrepancy
from matchlight.training.arguments import (
    BatchSize,
    Count,
    NonNegative,
    Ranking,
    Share,
    Training,
    TunedPictures,
    Value,
    Whole,
)
from matchlight.training.contract import Recipe
from matchlight.training.registry import Checkpoint, Foreign, Method, renamed
from matchlight.training.schedules import groups
from matchlight.training.strategies import Plain, WarmUp


def likeness(residuals: Tensor) -> Tensor:
    """(N, K, D) -> (N,): how alike the K residuals of an item are; 0 = all orthogonal."""
    r = F.normalize(residuals.float(), dim=-1)
    k = r.shape[1]
    others = ~torch.eye(k, dtype=torch.bool, device=r.device)
    gram = torch.einsum("nkd,nld->nkl", r, r) * others
    return gram.flatten(1).norm(dim=1) / k**2


class Polysemy(Objective):
    """A hinge on the best pair of readings, and for K > 1 what keeps readings apart and the two sides together."""

    reduction = "mean"

    def __init__(
        self,
        *,
        margin: float = 0.1,
        hardest: bool = True,
        diversity: float = 0.1,
        mmd: float = 0.01,
        siblings: str,
        ranking: Objective | None = None,
    ):
        super().__init__()
        self.ranking = ranking  # in place of the hinge
        self.margin = margin
        self.hardest = hardest
        self.diversity = diversity
        self.mmd = mmd
        self.siblings = siblings

    def forward(self, scores: Scores, embeddings: dict[str, Embedding], batch: Batch) -> Terms:
        """A term a direction, (P,) each, and one number each for diversity and discrepancy."""
        assert scores.matrix is not None
        terms = dict(self.ranking(scores, embeddings, batch)) if self.ranking else self._hinge(scores.matrix, batch)
        image, text = own_sets(embeddings, batch)
        if image.vectors.shape[1] == 1:
            return terms
        if self.diversity:
            alike = [likeness(side.extra["residual"]).mean() for side in (image, text)]
            terms["diversity"] = self.diversity * (alike[0] + alike[1])
        if self.mmd:
            terms["mmd"] = self.mmd * maximum_mean_discrepancy(image.vectors.flatten(0, 1), text.vectors.flatten(0, 1))
        return terms

    def ranked_by(self, ranking: Objective) -> Objective:
        """Another loss in place of the hinge, the readings kept apart as ever."""
        return Polysemy(diversity=self.diversity, mmd=self.mmd, siblings=self.siblings, ranking=ranking)

    def _hinge(self, matrix: Tensor, batch: Batch) -> Terms:
        c = contrast(matrix, batch, siblings=self.siblings)
        if self.hardest:
            return hinge_hardest(c, self.margin)
        asked = {"i2t": matrix.shape[1], "t2i": matrix.shape[0]}  # the mean over the matrix, as the authors take it
        return {name: cost / asked[name] for name, cost in hinge_all(c, self.margin).items()}


def halved(epoch: int, step: int, steps: int, *, every: int) -> float:
    """Half the rate again after each `every` epochs, the first two counting as one.

    The authors' plateau rule waits for an rsum *below* the best, which never comes: with a patience of 10 it halves the
    rate after 12 epochs and then after every 11.
    """
    return 0.5 ** (max(0, epoch - 1) // every)


@dataclass(frozen=True, kw_only=True)
class PVSE(TunedPictures, Ranking, Training):
    """PVSE (`heads=1` is the paper's baseline without the two extra terms)."""

    dim: Count = 1024
    heads: Count = 2
    hidden: Count | None = None
    word_dim: Count = 300
    sentence: Literal["ends", "last_word"] = "ends"
    dropout: Share = 0.0
    eps: NonNegative = 1e-8
    margin: NonNegative = 0.1
    hardest: bool = True
    diversity: NonNegative = 0.1
    mmd: NonNegative = 0.01
    warm: Whole = 0
    batch: BatchSize = 256
    halve_every: Count = 11

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""

        def matcher() -> Matcher:
            shape: dict[str, Any] = {
                "heads": self.heads,
                "hidden": self.hidden,
                "dropout": self.dropout,
                "eps": self.eps,
            }
            image = polysemous_image(sizes.image_dim, self.dim, **shape)
            text = polysemous_text(
                sizes.vocabulary, self.dim, word_dim=self.word_dim, last_word=self.sentence == "last_word", **shape
            )
            return Matcher({IMAGE: self.behind_backbone(image), TEXT: text}, BestPair())

        objective = partial(
            Polysemy, margin=self.margin, diversity=self.diversity, mmd=self.mmd, siblings=self.siblings
        )
        recipe = Recipe(
            matcher=matcher,
            objective=partial(objective, hardest=self.hardest),
            strategy=WarmUp(objective(hardest=False), epochs=self.warm) if self.warm else Plain(),
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(groups, rate=self.rate, backbone=self.backbone_rates(), decay=0.0),
            optimiser="amsgrad",
            schedule=partial(halved, every=self.halve_every),
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
            augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if self.finetune else None,
        )
        return self.ranked(recipe)


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------

SIDES = {"img_enc.": "encoders.image.", "txt_enc.": "encoders.text."}
INSIDE = {
    "attention.w_1.": "attention.first.",
    "attention.w_2.": "attention.second.",
    "fc.": "fc.",
    "layer_norm.": "norm.",
}
NAMES = {f"{old}pie_net.{a}": f"{new}pie.{b}" for old, new in SIDES.items() for a, b in INSIDE.items()}
NAMES |= {"img_enc.fc.": "encoders.image.whole.fc.", "txt_enc.embed.": "encoders.text.parts.embed."}
NAMES |= gru_names("txt_enc.rnn.", "encoders.text.whole.")


def flat(model: Any) -> dict[str, Tensor]:
    """A model's weights in one dictionary, under the newer names and without those of the CNN in front of it.

    Older files hold two dictionaries, picture and caption, and call PIE-Net `our_model`.
    """
    if isinstance(model, list | tuple):
        if len(model) != len(SIDES):
            raise BadInput(f"{len(model)} dictionaries of weights; older files hold two, for pictures and captions")
        sides = zip(SIDES, model, strict=True)
        model = {f"{side}{key.removeprefix('module.')}": value for side, part in sides for key, value in part.items()}
    named = {key.removeprefix("module.").replace(".our_model.", ".pie_net."): value for key, value in model.items()}
    return {key: value for key, value in named.items() if not key.startswith("img_enc.cnn.")}


def read_pvse(file: Checkpoint) -> Foreign:
    """A training checkpoint (`args` and `model`), or a released file: weights alone, trained with `legacy`.

    A file that is a pair of dictionaries and nothing else comes as `model`: it too was trained with `legacy`.
    """
    options = file.get("args", {"legacy": True})
    model = flat(file["model"] if "model" in file else {k: v for k, v in file.items() if torch.is_tensor(v)})
    if options.get("order") or not (options.get("img_attention", True) and options.get("txt_attention", True)):
        raise BadInput("trained with an order measure or without attention: only cosine PIE-Net models can be read")
    dim, image_dim = model["img_enc.fc.weight"].shape
    vocabulary, word_dim = model["txt_enc.embed.weight"].shape
    named: dict[str, Value] = {
        "dim": dim,
        "heads": len(model["img_enc.pie_net.attention.w_2.weight"]),
        "word_dim": word_dim,
        "sentence": "last_word" if options.get("legacy") else "ends",
        "dropout": float(options.get("dropout", 0.0)),
        "margin": float(options.get("margin", 0.1)),
        "hardest": bool(options.get("max_violation", True)),
        "diversity": float(options.get("div_weight", 0.1)),
        "mmd": float(options.get("mmd_weight", 0.01)),
        "siblings": "negatives",
        "eps": 0.0,
    }
    return Foreign(named, {"image_dim": image_dim, "vocabulary": vocabulary}, renamed(model, NAMES))


METHODS = [
    Method(
        "pvse",
        PVSE,
        paper="Polysemous Visual-Semantic Embedding for Cross-Modal Retrieval (CVPR 2019)",
        needs=("pairs", "regions"),
        # with a few thousand pairs the hardest negatives alone never leave the start
        small={"dim": 256, "hidden": 128, "word_dim": 128, "batch": 128, "epochs": 16, "rate": 1e-3, "warm": 3},
        robust={"loss": "rclog", "warm": 0},
        presets={"coco": {}},
        reader=read_pvse,
    )
]
