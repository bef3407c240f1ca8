"""From pairs to what a run reads: features or pixels, a vocabulary, word ids, and the sizes a recipe needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from matchlight.core import BadInput, Json, Sizes
from matchlight.data.formats import boxes
from matchlight.inputs.backbones import Size, backbone, backbone_class
from matchlight.inputs.batches import Table
from matchlight.inputs.text import Captions, Vocabulary
from matchlight.pairs import FeatureSource, Pairs

LITE = "lite0"  # the backbone that comes with us


@dataclass(frozen=True)
class View:
    """How a model reads pictures and captions, settled when it is trained and kept in recipe.json as `view`."""

    kind: str  # "given": features that came with the data | "grid" | "pooled": of a backbone | "pixels"
    backbone: str = LITE
    size: int | Size | None = None  # of the pictures a backbone gets, a square or height and width; None: not settled
    boxes: bool = False  # pictures come with boxes of what is in them
    sentences: str = ""  # the sentence encoder whose word pieces captions are cut into; none: words of our own

    def to_json(self) -> dict[str, Json]:
        """As recipe.json holds it: what does not apply is left out."""
        size: Json = list(self.size) if isinstance(self.size, tuple) else self.size
        seen: dict[str, Json] = {} if self.kind == "given" else {"backbone": self.backbone, "size": size}
        more: dict[str, Json] = {"boxes": True} if self.boxes else {}
        return {"kind": self.kind, **seen, **more, **({"sentences": self.sentences} if self.sentences else {})}

    @staticmethod
    def from_json(value: Mapping[str, object]) -> View:
        """What recipe.json says."""
        backbone, sentences = str(value.get("backbone") or LITE), str(value.get("sentences") or "")
        return View(str(value["kind"]), backbone, _size(value.get("size")), bool(value.get("boxes")), sentences)

    def with_size(self, device: torch.device) -> View:
        """A model keeps the picture size it was trained with, so the size is settled once and stored."""
        if self.kind == "given" or self.size:
            return self
        known = backbone_class(self.backbone).size_without_weights(device)
        height, width = known or backbone(self.backbone).usual_size(device)
        return replace(self, size=height if height == width else (height, width))


@dataclass
class Inputs:
    """A data set made ready for one kind of model."""

    table: Table
    vocabulary: Vocabulary | None
    sizes: Sizes
    view: View  # how pictures and captions were read; kept in recipe.json


def build_vocabulary(pairs: Pairs, rows: np.ndarray) -> Vocabulary:
    """Words of the training captions; rare ones are unknown once there are enough captions to learn the rest from."""
    captions = [pairs.captions[i] for i in rows]
    minimum = 4 if len(captions) >= 20000 else 2 if len(captions) >= 5000 else 1
    return Vocabulary.build(captions, minimum=minimum)


def view_of(arguments: Mapping[str, object], *, pooled: bool, pairs: Pairs) -> View:
    """How a method with these arguments wants to see pictures, and captions where it reads them with its own words."""
    backbone, size = str(arguments.get("backbone", LITE)), _size(arguments.get("pixels"))
    sentences = str(arguments.get("sentences") or "")
    if arguments.get("finetune"):
        if pairs.pictures is None:
            raise BadInput(f"{pairs.root}: finetune=true needs pictures, and this set has only features")
        return View("pixels", backbone, size, sentences=sentences)
    if pairs.features is not None:
        return View("given", sentences=sentences)
    things = bool(arguments.get("boxes")) and boxes.known(pairs)
    return View("pooled" if pooled else "grid", backbone, size, boxes=things, sentences=sentences)


def _size(value: object) -> int | Size | None:
    """A picture size as an argument or a JSON file gives it: a number, height and width, or nothing yet."""
    if isinstance(value, list | tuple):
        height, width = value
        return int(height), int(width)
    return value if isinstance(value, int) and value else None


def _images(pairs: Pairs, view: View, device: torch.device) -> tuple[FeatureSource, list[int]]:
    from matchlight.inputs import features

    if view.kind == "given":
        if pairs.features is None:
            raise BadInput(f"{pairs.root}: this model reads ready-made features, and this set has pictures only")
        return pairs.features, []
    store: features.Store
    if view.kind == "pixels":
        assert view.size is not None  # `with_size` settles it first
        store = features.pixels(pairs, size=view.size)
    else:
        store = features.extract(pairs, backbone=view.backbone, kind=view.kind, device=device.type, size=view.size)
    return store, list(store.broken)


def _pieces(pairs: Pairs, name: str) -> Captions:
    """Captions in the word pieces of a sentence encoder, which brings its own vocabulary."""
    from matchlight.inputs.sentence_encoders import sentence_encoder

    return Captions.from_tokens(sentence_encoder(name).token_ids(pairs.captions))


def _shape(images: FeatureSource, view: View) -> tuple[str, int, int]:
    """Kind, dimension and regions of what the picture encoder will get."""
    if view.kind == "pixels":
        return "pixels", backbone(view.backbone).dim, 1
    shape = tuple(images.shape)
    return ("vector", shape[1], 1) if len(shape) == 2 else ("regions", shape[2], shape[1])


def prepare(
    pairs: Pairs,
    view: View,
    *,
    device: torch.device,
    vocabulary: Vocabulary | None = None,
    train: str = "train",
) -> Inputs:
    """Read pictures as `view` says, captions with `vocabulary` (built from the training split where none is given)."""
    view = view.with_size(device)
    pairs = boxes.attach(pairs) if view.boxes else pairs
    images, broken = _images(pairs, view, device)
    rows = pairs.rows(train) if train in pairs.split_names else np.arange(0)
    if pairs.text_features is not None:
        captions, vocabulary = None, None
    elif view.sentences:
        captions, vocabulary = _pieces(pairs, view.sentences), None
    else:
        vocabulary = vocabulary or build_vocabulary(pairs, rows if len(rows) else np.arange(len(pairs)))
        captions = Captions.encode(pairs.captions, vocabulary)
    table = Table(pairs, images, captions, device=device, broken=broken)
    kind, dim, regions = _shape(images, view)
    sizes = Sizes(
        pairs=len(rows),
        pictures=len(np.unique(pairs.picture[rows])),
        image=kind,
        image_dim=int(dim),
        regions=int(regions),
        vocabulary=len(vocabulary) if vocabulary else 0,
        text_dim=0 if pairs.text_features is None else int(pairs.text_features.shape[1]),
        classes=0 if pairs.labels is None else len(pairs.labels.names),
    )
    return Inputs(table, vocabulary, sizes, view)
