"""From pairs to what a run reads: features or pixels, a vocabulary, word ids, and the sizes a recipe needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from matchlight.core import BadInput, Sizes
from matchlight.data.formats import boxes
from matchlight.inputs.batches import Table
from matchlight.inputs.text import Captions, Vocabulary
from matchlight.pairs import Pairs


@dataclass
class Inputs:
    """A data set made ready for one kind of model."""

    table: Table
    vocabulary: Vocabulary | None
    sizes: Sizes
    view: dict[str, Any]  # how pictures were read: kind, backbone, size; kept in recipe.json


def build_vocabulary(pairs: Pairs, rows: np.ndarray) -> Vocabulary:
    """Words of the training captions; rare ones are unknown once there are enough captions to learn the rest from."""
    captions = [pairs.captions[i] for i in rows]
    minimum = 4 if len(captions) >= 20000 else 2 if len(captions) >= 5000 else 1
    return Vocabulary.build(captions, minimum=minimum)


def view_of(arguments: dict[str, Any], *, pooled: bool, pairs: Pairs) -> dict[str, Any]:
    """How a method with these arguments wants to see pictures, and captions where it reads them with its own words."""
    sentences = {"sentences": arguments["sentences"]} if arguments.get("sentences") else {}
    return {**_picture_view(arguments, pooled=pooled, pairs=pairs), **sentences}


def _picture_view(arguments: dict[str, Any], *, pooled: bool, pairs: Pairs) -> dict[str, Any]:
    if arguments.get("finetune"):
        if pairs.pictures is None:
            raise BadInput(f"{pairs.root}: finetune=true needs pictures, and this set has only features")
        return {"kind": "pixels", "backbone": arguments["backbone"], "size": arguments.get("pixels")}
    if pairs.features is not None:
        return {"kind": "given"}
    things = {"boxes": True} if arguments.get("boxes") and boxes.known(pairs) else {}
    return {
        "kind": "pooled" if pooled else "grid",
        "backbone": arguments.get("backbone", "lite0"),
        "size": arguments.get("pixels"),
        **things,
    }


def _images(pairs: Pairs, view: dict[str, Any], device: torch.device) -> tuple[Any, list[int]]:
    from matchlight.inputs import features

    if view["kind"] == "given":
        if pairs.features is None:
            raise BadInput(f"{pairs.root}: this model reads ready-made features, and this set has pictures only")
        return pairs.features, []
    if view["kind"] == "pixels":
        store: Any = features.pixels(pairs, size=view["size"])
    else:
        store = features.extract(
            pairs, backbone=view["backbone"], kind=view["kind"], device=device.type, size=view["size"]
        )
    return store, list(store.broken)


def _pieces(pairs: Pairs, name: str) -> Captions:
    """Captions in the word pieces of a sentence encoder, which brings its own vocabulary."""
    from matchlight.inputs.sentence_encoders import sentence_encoder

    return Captions.from_tokens(sentence_encoder(name).token_ids(pairs.captions))


def _shape(images: Any, view: dict[str, Any]) -> tuple[str, int, int]:
    """Kind, dimension and regions of what the picture encoder will get."""
    if view["kind"] == "pixels":
        from matchlight.inputs.features import backbone

        return "pixels", backbone(view["backbone"]).dim, 1
    shape = tuple(images.shape)
    return ("vector", shape[1], 1) if len(shape) == 2 else ("regions", shape[2], shape[1])


def prepare(
    pairs: Pairs,
    view: dict[str, Any],
    *,
    device: torch.device,
    vocabulary: Vocabulary | None = None,
    train: str = "train",
) -> Inputs:
    """Read pictures as `view` says, captions with `vocabulary` (built from the training split where none is given)."""
    view = with_size(view, device)
    pairs = boxes.attach(pairs) if view.get("boxes") else pairs
    images, broken = _images(pairs, view, device)
    rows = pairs.rows(train) if train in pairs.split_names else np.arange(0)
    if pairs.text_features is not None:
        captions, vocabulary = None, None
    elif view.get("sentences"):
        captions, vocabulary = _pieces(pairs, view["sentences"]), None
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


def with_size(view: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A model keeps the picture size it was trained with, so the size is settled once and stored."""
    if view["kind"] == "given" or view.get("size"):
        return view
    from matchlight.inputs.backbones import lite
    from matchlight.inputs.features import backbone

    name = view.get("backbone") or "lite0"
    if name in lite.PLANS:
        return {**view, "size": lite.usual_size(name, device.type)}
    height, width = backbone(name).usual_size(device)  # others know what they were made for
    return {**view, "size": height if height == width else [height, width]}
