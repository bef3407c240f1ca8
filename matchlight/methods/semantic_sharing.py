"""Semantic sharing: pictures and captions meet in the space of labels, through one transformer that serves both.

Yang et al., "Rethinking Label-Wise Cross-Modal Retrieval from A Semantic Sharing Perspective", IJCAI 2021. Regions and
words pass the same transformer and the same label classifier; no loss compares a picture with its caption. Hidden
words and regions must be guessed besides, which keeps the transformer from reading labels alone.

Departs from the released code, whose own ways come back by name (`preset=official` sets them all):
- padding is masked (`padding=counted`: it is attended to and enters the mean, so a caption depends on its batch);
- every word has its own place, and places and boxes weigh as much as what is there (`positions=official`: all words
  stand at the first place, times 1e-5, and boxes count 1e-4);
- a hidden word becomes `<mask>`, a hidden region disappears, both are guessed with a plain softmax (`masking=official`:
  `<unk>`; regions are asked for but stay visible; a sigmoid before the cross-entropy).
Never taken over: the box of row 0 for every picture, guesses at the first few items of a batch only, a box layer that
does not train, gradients clipped in the text encoder only, validation on the test split.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Items, Matcher, Similarity, Sizes
from matchlight.inputs.augmentation import changed
from matchlight.methods.shared_losses import Labelled
from matchlight.methods.shared_start import BertLayers, GivenWords, PieceTokens, Start, begin_with_vectors
from matchlight.methods.shared_tokens import UNK, RegionTokens, VectorToken, WordTokens
from matchlight.methods.shared_transformer import Guess, Shared, label_vectors
from matchlight.parts.encoders import gru_names
from matchlight.parts.layers import masked_mean, unit
from matchlight.training.arguments import BatchSize, Count, NonNegative, Positive, Share, Training, TunedPictures, Value
from matchlight.training.contract import Recipe, Siblings
from matchlight.training.registry import Checkpoint, Foreign, Method, Weights, renamed
from matchlight.training.schedules import groups
from matchlight.training.strategies import Plain

BOTH = "both"


class LabelSpace(Similarity):
    """Items are vectors over the labels; the score is their cosine (MIRFlickr, NUS-WIDE) or dot product (COCO)."""

    def __init__(self, measure: str):
        super().__init__()
        self.measure = measure

    def _vectors(self, items: Embedding) -> Tensor:
        return unit(items.single) if self.measure == "cosine" else items.single

    def forward(self, images: Embedding, texts: Embedding) -> Tensor:
        """(I, T)."""
        return self._vectors(images) @ self._vectors(texts).T

    def pairs(self, images: Embedding, texts: Embedding) -> Tensor:
        """(P,)."""
        return (self._vectors(images) * self._vectors(texts)).sum(-1)

    def coarse(self, embedding: Embedding, side: str) -> Tensor:
        """The vectors at unit length: exact under the cosine."""
        return unit(embedding.vectors)

    def cost(self, images: Embedding, texts: Embedding) -> int:
        """One number a pair."""
        return 4

    def predict(self, embedding: Embedding, side: str) -> Tensor:
        """(N, classes): the mean of the tokens' scores, before each is brought to unit length."""
        return embedding.extra["probability"]


class Sharing(Matcher):
    """Token encoders a side, then one transformer and label head for both (`shared` has one entry) or one each."""

    def __init__(
        self,
        encoders: dict[str, nn.Module],
        shared: Mapping[str, nn.Module],
        guess: dict[str, Guess],
        *,
        measure: str,
        padding: str,
    ):
        super().__init__(encoders, LabelSpace(measure))
        self.shared = nn.ModuleDict(dict(shared))
        self.guess = nn.ModuleDict(guess)
        self.depends_on_padding = padding == "counted"

    def states(self, side: str, items: Items) -> tuple[Embedding, Tensor]:
        """Tokens of one side as they came out of the transformer, and their label scores (N, K, classes)."""
        tokens = super().embed(side, items)
        assert isinstance(tokens, Embedding)
        mask = None if self.depends_on_padding else tokens.mask
        part = self.shared[BOTH if BOTH in self.shared else side]
        assert isinstance(part, Shared | BertLayers)
        states = part(tokens.vectors.float(), mask)  # what layers add up stays in full precision
        return replace(tokens, vectors=states, mask=mask), part.likely(states)

    def embed(self, side: str, items: Items) -> Embedding:
        """(N, 1, classes), with label probabilities, and in training what the losses need."""
        tokens, likely = self.states(side, items)
        place, probability = label_vectors(likely, tokens.mask)
        extra = {"id": items.id, "probability": probability}
        if self.training:
            extra["mean"] = masked_mean(tokens.vectors, tokens.mask)
            if "target" in tokens.extra and side in self.guess:
                extra["guess"] = self.guess[side](tokens.vectors, tokens.extra["target"])
        return Embedding(place[:, None], extra=extra)


# ---- the recipe ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SemanticSharing(TunedPictures, Training):
    """Semantic sharing; `variant=independent` trains a transformer a side, `consistent` adds a loss between sides.

    `consistency` weighs that loss: if it is not given, 0.1 for `consistent` and 0 for `independent`, which with 0.1 is
    the traditional method of the paper. `sharing` has none, whatever is given. Words may start from a file of
    `word_vectors`; with `sentences` the transformer is the first `depth` layers of a BERT and captions are its pieces.
    """

    variant: Literal["sharing", "independent", "consistent"] = "sharing"
    dim: Count = 1024
    depth: Count = 6
    heads: Count = 8
    hidden: Count = 2048
    dropout: Share = 0.1
    word_dim: Count = 300
    word_vectors: str | None = None
    max_words: Count = 150
    sentences: str | None = None
    boxes: bool = True
    positions: Literal["clean", "official"] = "clean"
    padding: Literal["masked", "counted"] = "masked"
    measure: Literal["cosine", "dot"] = "cosine"
    loss: Literal["likelihood", "bce"] = "likelihood"
    masking: Literal["clean", "official"] = "clean"
    mask_weight: NonNegative = 0.1
    mask_cost: Literal["relative", "plain"] = "relative"
    mask_share: NonNegative = 0.15
    objects: Count = 1000
    consistency: NonNegative | None = None
    siblings: Siblings = "masked"
    epochs: Count = 45
    batch: BatchSize = 64
    rate: Positive = 1e-4

    def between_sides(self) -> float:
        """The weight of the loss that compares the sides of a pair."""
        usual = {"sharing": 0.0, "independent": 0.0, "consistent": 0.1}[self.variant]  # 0.1: eta of the paper
        return usual if self.consistency is None or self.variant == "sharing" else self.consistency

    def recipe(self, sizes: Sizes) -> Recipe:
        """Networks, losses, rates and epochs."""
        self.check()

        def matcher() -> Matcher:
            start = Start(self.sentences) if self.sentences else None
            dim = start.dim if start else self.dim
            encoders, guesses = self.token_encoders(sizes, dim, start)
            encoders[IMAGE] = self.behind_backbone(encoders[IMAGE])
            parts = [IMAGE, TEXT] if self.variant == "independent" else [BOTH]
            shared = {name: self.transformer(sizes.classes, start) for name in parts}
            return Sharing(encoders, shared, guesses, measure=self.measure, padding=self.padding)

        weights = {"mask_weight": self.mask_weight, "consistency": self.between_sides()}
        given = Path(self.word_vectors) if self.word_vectors else None
        return Recipe(
            matcher=matcher,
            objective=partial(Labelled, loss=self.loss, **weights),
            strategy=GivenWords(given, dim=self.word_dim) if given else Plain(),
            begin=partial(begin_with_vectors, path=given) if given else None,
            epochs=self.epochs,
            batch=self.batch,
            groups=partial(groups, rate=self.rate, backbone=self.backbone_rates(), decay=0.0),
            clip=self.clip,
            select=self.select,
            siblings=self.siblings,
            protocol="labels",
            augment=partial(changed, p=0.0, mode="zero", vocabulary=0, pixels=True) if self.finetune else None,
        )

    def check(self) -> None:
        """Refuse what no model can have."""
        if self.dim % self.heads or self.dim < 2:
            raise BadInput(f"dim={self.dim}: must be a multiple of heads={self.heads}, and 2 at least")
        if not 0 <= self.mask_share < 1:
            raise BadInput(f"mask_share={self.mask_share}: must be from 0 to below 1")
        if self.word_vectors and self.sentences:
            raise BadInput("word_vectors and sentences: a BERT brings its own word pieces; give one of the two")

    def transformer(self, classes: int, start: Start | None) -> nn.Module:
        """Layers and a label head: new ones, or the first of a BERT."""
        if start is not None:
            return BertLayers(deepcopy(start.bert), classes, depth=self.depth)
        inside = {"depth": self.depth, "heads": self.heads, "hidden": self.hidden}
        return Shared(self.dim, classes, dropout=self.dropout, **inside)

    def token_encoders(
        self, sizes: Sizes, dim: int, start: Start | None
    ) -> tuple[dict[str, nn.Module], dict[str, Guess]]:
        """The encoders of both sides, and the heads that guess what is hidden in them."""
        share = self.mask_share if self.mask_weight > 0 and self.variant != "independent" else 0.0
        clean, box = self.masking == "clean", 1.0 if self.positions == "clean" else 1e-4
        several = share if sizes.image != "vector" else 0.0  # one vector a picture has no neighbours to be guessed from
        words = len(start.pieces) if start and not sizes.text_dim else sizes.vocabulary
        names = {IMAGE: self.objects if several else 0, TEXT: words if share else 0}
        how = {"squash": not clean, "relative": self.mask_cost == "relative"}
        guesses = {side: Guess(dim, many, **how) for side, many in names.items() if many}
        regions = {"regions": sizes.regions, "objects": self.objects, "share": several, "hide": clean}
        encoders: dict[str, nn.Module] = {IMAGE: RegionTokens(sizes.image_dim, dim, box_scale=box, **regions)}  # type: ignore[arg-type]
        return encoders | {TEXT: self.text_encoder(sizes, dim, share, start)}, guesses

    def text_encoder(self, sizes: Sizes, dim: int, share: float, start: Start | None) -> nn.Module:
        """The encoder of texts: ready vectors, pieces of a BERT, or words."""
        if sizes.text_dim:
            return VectorToken(sizes.text_dim, dim)
        if start is not None:
            return PieceTokens(start, share=share, longest=self.max_words)
        own = bool(share) and self.masking == "clean"  # one row more: the <mask> that words are replaced by
        return WordTokens(
            sizes.vocabulary + own,
            dim,
            word_dim=self.word_dim,
            share=share,
            mask_word=sizes.vocabulary if own else UNK,
            position_scale=1.0 if self.positions == "clean" else 1e-5,
            first_only=self.positions == "official",
            longest=self.max_words,
        )


# ---- the authors' checkpoints ----------------------------------------------------------------------------------------


def read_sharing(file: Checkpoint) -> Foreign:
    """`model` is [pictures, words, transformer, heads]; the transformer's own label head is never used."""
    image, text, body, heads = ({k.removeprefix("module."): v for k, v in part.items()} for part in file["model"][:4])
    depth = sum(key.endswith(".self_attn.linears.0.weight") for key in body)
    data, _, losses = str(file["opt"].get("data_name", "")).rpartition("_")
    weights = renamed(image, {"fc.": "encoders.image.fc.", "box_fc.": "encoders.image.box."})
    weights |= renamed(text, WORDS) | _layers(body, depth)
    weights |= renamed({k: v for k, v in heads.items() if losses != "1" or k.startswith("fc_predict")}, HEADS)
    named: dict[str, Value] = OFFICIAL | {
        "dim": image["fc.weight"].shape[0],
        "depth": depth,
        "hidden": len(body["encoder.layers.0.feed_forward.w_1.weight"]),
        "word_dim": text["embed.weight"].shape[1],
        "objects": len(heads["fc_MOC.weight"]),
        "measure": "dot" if data.startswith("coco") else "cosine",
        "mask_weight": 0.0 if losses == "1" else OFFICIAL["mask_weight"],
    }
    sizes = {"image_dim": image["fc.weight"].shape[1], "vocabulary": len(text["embed.weight"])}
    return Foreign(named, sizes | {"classes": len(heads["fc_predict.weight"])}, weights)


def _layers(body: Weights, depth: int) -> dict[str, Tensor]:
    """The transformer under our names: queries, keys and values as one matrix a layer."""
    rest = {key: value for key, value in body.items() if not key.startswith("fc_predict.")}
    names = {"encoder.norm.a_2": "shared.both.norm.scale", "encoder.norm.b_2": "shared.both.norm.shift"}
    made = {}
    for k in range(depth):
        old, new = f"encoder.layers.{k}.", f"shared.both.layers.{k}."
        for kind in ("weight", "bias"):
            made[f"{new}ask.{kind}"] = torch.cat([rest.pop(f"{old}self_attn.linears.{n}.{kind}") for n in range(3)])
        names |= {f"{old}self_attn.linears.3.": f"{new}tell.", f"{old}feed_forward.w_1.": f"{new}first."}
        names |= {f"{old}feed_forward.w_2.": f"{new}second."}
        for n in range(2):
            norm = f"{old}sublayer.{n}.norm."
            names |= {f"{norm}a_2": f"{new}norms.{n}.scale", f"{norm}b_2": f"{new}norms.{n}.shift"}
    return made | renamed(rest, names)


WORDS = {"embed.": "encoders.text.words.embed.", "position_embeddings.": "encoders.text.place."}
WORDS |= gru_names("rnn.", "encoders.text.words.")
HEADS = {"fc_predict.": "shared.both.labels.", "fc_MLM.": "guess.text.head.", "fc_MOC.": "guess.image.head."}

OFFICIAL: dict[str, Value] = {
    "padding": "counted",
    "positions": "official",
    "masking": "official",
    "mask_weight": 5e-4,
    "siblings": "negatives",  # every pair has its own copy of the picture
    "rate": 2e-4,
    "epochs": 35,
}
SMALL: dict[str, Value] = {
    "dim": 128,
    "depth": 2,
    "heads": 4,
    "hidden": 256,
    "word_dim": 128,
    "objects": 64,
    "batch": 64,
    "epochs": 12,
    "rate": 1e-3,
}

METHODS = [
    Method(
        "semantic_sharing",
        SemanticSharing,
        paper="Rethinking Label-Wise Cross-Modal Retrieval from A Semantic Sharing Perspective (IJCAI 2021)",
        needs=("labels", "regions"),
        small=SMALL,
        presets={"flickr25k": {}, "nuswide": {}, "coco": {"mask_weight": 0.01, "measure": "dot"}, "official": OFFICIAL},
        reader=read_sharing,
    )
]
