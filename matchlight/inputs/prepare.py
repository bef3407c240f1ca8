"""From pairs to what a run reads: features or pixels, a vocabulary, word ids, and the sizes a recipe needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from matchlight import devices
from matchlight.core import BadInput, Json, Sizes
from matchlight.data.formats import boxes
from matchlight.inputs.backbones import Size, TokenChoice, as_size, backbone, backbone_class
from matchlight.inputs.backbones.vision_transformer import EVERY_CELL, TokenBackbone, known_tokens
from matchlight.inputs.batches import Table
from matchlight.inputs.caption_states import CaptionStates, caption_states, fits_on_disk
from matchlight.inputs.preprocessing import Frame, Preprocessing, known_resample
from matchlight.inputs.text import Captions, Vocabulary
from matchlight.pairs import FeatureSource, Pairs

if TYPE_CHECKING:
    from matchlight.inputs.joint_models import JointModel
    from matchlight.inputs.onnx_towers import OnnxTowers
    from matchlight.inputs.sentence_encoders import SentenceEncoder

Stream = Literal["auto", "always", "never"]
LITE = "lite0"  # the backbone that comes with us


@dataclass(frozen=True)
class View:
    """How a model reads pictures and captions, settled when it is trained and kept in recipe.json as `view`."""

    kind: str  # "given": features that came with the data | "grid" | "pooled": of a backbone | "pixels"
    backbone: str = LITE
    size: int | Size | None = None  # of the pictures a backbone gets, a square or height and width; None: not settled
    boxes: bool = False  # pictures come with boxes of what is in them
    sentences: str = ""  # the sentence encoder whose word pieces captions are cut into; none: words of our own
    choice: TokenChoice | None = None  # which tokens of a vision transformer are read; None: every cell
    frame: Frame = "whole"  # what is shown of a picture
    stated: Preprocessing | None = None  # as a library's network states it; None: the whole picture, bilinear
    settled: bool = False  # size, choice and preprocessing are those of a network that was looked at
    joint: str = ""  # the joint model that reads both sides, as it was asked for; none: each side is read by itself
    onnx: str = ""  # the file in the run's folder whose towers read both sides; none: the run's own networks
    read_once: bool = False  # the sentence encoder is frozen: training stores what it reads; not kept in recipe.json
    home: Path | None = None  # a run's folder, which holds its own copy of that model's files; not kept in recipe.json

    def to_json(self) -> dict[str, Json]:
        """As recipe.json holds it: what does not apply is left out."""
        size: Json = list(self.size) if isinstance(self.size, tuple) else self.size
        if self.onnx:
            return {"kind": self.kind, "onnx": self.onnx}
        if self.joint:
            return {"kind": self.kind, "joint": self.joint, "size": size}
        seen: dict[str, Json] = {} if self.kind == "given" else {"backbone": self.backbone, "size": size}
        more: dict[str, Json] = {"boxes": True} if self.boxes else {}
        if self.choice:
            more |= {"tokens": self.choice.tokens, "cells": list(self.choice.cells) if self.choice.cells else None}
        if self.stated:
            more |= {"shorter": self.stated.shorter, "resample": self.stated.resample}
        return {"kind": self.kind, **seen, **more, **({"sentences": self.sentences} if self.sentences else {})}

    @staticmethod
    def from_json(value: Mapping[str, object]) -> View:
        """What recipe.json says."""
        view = View(str(value["kind"]), str(value.get("backbone") or LITE), _size(value.get("size")))
        if value.get("onnx"):
            return replace(view, onnx=Path(str(value["onnx"])).name, settled=True)
        named, cells, shorter = value.get("tokens"), _size(value.get("cells")), value.get("shorter")
        choice = TokenChoice(known_tokens(named), as_size(cells) if cells else None) if named else None
        if "resample" in value and view.size:
            edge = shorter if isinstance(shorter, int) else None
            way = known_resample(str(value["resample"]))
            view = replace(view, stated=Preprocessing(as_size(view.size), edge, way, reducing=False))
        sentences, joint = str(value.get("sentences") or ""), str(value.get("joint") or "")
        view, settled = replace(view, joint=joint), view.size is not None
        return replace(view, boxes=bool(value.get("boxes")), sentences=sentences, choice=choice, settled=settled)

    @cached_property
    def joint_model(self) -> JointModel:
        """The joint model that reads both sides: the run's own copy where there is one."""
        from matchlight.inputs.joint_models import at_home, joint_model

        return joint_model(at_home(self.joint, self.home))

    @cached_property
    def onnx_towers(self) -> OnnxTowers:
        """The towers of an exported run that read both sides."""
        from matchlight.inputs.onnx_towers import OnnxTowers

        assert self.home is not None
        return OnnxTowers.open(self.home / self.onnx, threads=torch.get_num_threads())

    @property
    def preprocessing(self) -> Preprocessing:
        """How pictures become pixels; the size is settled by then."""
        if self.onnx:
            made = self.onnx_towers.preprocessing
            assert made is not None
            return made
        if self.joint:
            return self.joint_model.preprocessing
        assert self.size is not None
        return self.stated or Preprocessing(as_size(self.size))

    def with_size(self, device: torch.device) -> View:
        """A model keeps the picture size it was trained with, so the size is settled once and stored."""
        if self.kind == "given" or self.settled:
            return self
        if self.joint:
            return replace(self, size=_square(self.preprocessing.size), settled=True)
        known = backbone_class(self.backbone).size_without_weights(device)
        if known:
            return replace(self, size=self.size or _square(known), choice=None, settled=True)
        network = backbone(self.backbone, self.size, choice=self.choice)
        made = network.preprocessing(network.usual_size(device), self.frame)
        choice = TokenChoice(network.tokens, network.cell_grid) if isinstance(network, TokenBackbone) else None
        stated = None if made == Preprocessing(made.size) else made
        return replace(self, size=_square(made.size), choice=choice, stated=stated, settled=True)


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
    if joint := arguments.get("model"):
        if pairs.pictures is None:
            raise BadInput(f"{pairs.root}: a joint model needs pictures, and this set has only features")
        return View("pixels", joint=str(joint))
    backbone, size = str(arguments.get("backbone", LITE)), _size(arguments.get("pixels"))
    sentences = str(arguments.get("sentences") or "")
    once = bool(sentences) and arguments.get("sentences_rate") == 0 and not arguments.get("drop_words")
    cells = arguments.get("cells")
    choice = TokenChoice.written(known_tokens(arguments.get("tokens", "both")), str(cells) if cells else None)
    frame: Frame = "stated" if arguments.get("frame") == "stated" else "whole"
    if arguments.get("finetune"):
        if pairs.pictures is None:
            raise BadInput(f"{pairs.root}: finetune=true needs pictures, and this set has only features")
        return View("pixels", backbone, size, sentences=sentences, choice=choice, frame=frame, read_once=once)
    if pairs.features is not None:
        return View("given", sentences=sentences, read_once=once)
    things = bool(arguments.get("boxes")) and boxes.known(pairs)
    kind = "pooled" if pooled else "grid"
    view = View(kind, backbone, size, boxes=things, sentences=sentences, choice=choice, frame=frame)
    return replace(view, read_once=once)


def _size(value: object) -> int | Size | None:
    """A picture size as an argument or a JSON file gives it: a number, height and width, or nothing yet."""
    if isinstance(value, list | tuple):
        height, width = value
        return int(height), int(width)
    return value if isinstance(value, int) and value else None


def _square(size: Size) -> int | Size:
    return size[0] if size[0] == size[1] else size


def streams(pairs: Pairs, view: View, device: torch.device, asked: Stream = "auto") -> bool:
    """Whether pictures are read anew for each batch rather than once into a store; `view` knows its size.

    Several processes must agree: the room on a disk changes while one of them asks.
    """
    from matchlight.inputs import features
    from matchlight.inputs.features.stream import is_too_large

    if asked not in get_args(Stream):
        raise BadInput(f"--stream {asked}: {', '.join(get_args(Stream))}")
    if asked != "auto" or view.kind == "given" or (view.kind != "pixels" and pairs.features is not None):
        return asked == "always"
    if view.kind == "pixels":
        return is_too_large(features.store_of_pixels(pairs, view.preprocessing))
    choice = view.choice or EVERY_CELL
    return is_too_large(features.planned(pairs, view.backbone, view.kind, device, view.preprocessing, choice)[2])


def _images(pairs: Pairs, view: View, device: torch.device, streamed: bool) -> tuple[FeatureSource, list[int]]:
    from matchlight.inputs import features

    if view.kind == "given":
        if pairs.features is None:
            raise BadInput(f"{pairs.root}: this model reads ready-made features, and this set has pictures only")
        return pairs.features, []
    source: features.Store | features.PixelStream
    made, choice = view.preprocessing, view.choice or EVERY_CELL
    if view.kind == "pixels":
        source = (features.pixel_stream if streamed else features.pixels)(pairs, made)
    elif streamed and pairs.features is None:
        source = features.feature_stream(
            pairs, backbone=view.backbone, kind=view.kind, device=device, size=made, choice=choice
        )
    else:
        source = features.extract(
            pairs, backbone=view.backbone, kind=view.kind, device=device.type, size=made, choice=choice
        )
    return source, list(source.broken)


def store_pictures(pairs: Pairs, view: View, device: torch.device) -> None:
    """Store what `prepare` reads of the pictures, unless they are read anew for each batch."""
    view = view.with_size(device)
    if not streams(pairs, view, device):
        _images(boxes.attach(pairs) if view.boxes else pairs, view, device, streamed=False)


def _pieces(pairs: Pairs, view: View) -> Captions:
    """Captions in the word pieces of a joint model or a sentence encoder, which bring their own vocabularies."""
    if view.onnx:
        return Captions.from_tokens(view.onnx_towers.token_ids(pairs.captions))
    if not view.joint:
        return Captions.from_tokens(_token_ids(view.sentences, pairs.captions))
    model = view.joint_model
    return Captions.from_tokens(model.pieces.token_ids(pairs.captions), size=model.shape.text.vocabulary)


_cut: dict[str, dict[str, list[int]]] = {}  # of a process that trains many runs on the same captions


def _token_ids(name: str, captions: Sequence[str]) -> list[list[int]]:
    """Word pieces; one of many processes side by side cuts each caption once for all its runs."""
    from matchlight.inputs.sentence_encoders import sentence_encoder

    if devices.neighbours() == 1:
        return sentence_encoder(name).token_ids(captions)
    known = _cut.setdefault(name, {})
    new = [caption for caption in dict.fromkeys(captions) if caption not in known]
    if new:
        known.update(zip(new, sentence_encoder(name).token_ids(new), strict=True))
    return [known[caption] for caption in captions]


def _states(
    captions: Captions, view: View, device: torch.device, reader: SentenceEncoder | None, precision: str
) -> CaptionStates | None:
    """What a frozen sentence encoder makes of the captions, stored on a CPU: a GPU reads them as fast as a disk."""
    from matchlight.inputs.sentence_encoders import sentence_encoder

    if not view.read_once or device.type != "cpu":
        return None
    encoder = reader or sentence_encoder(view.sentences, frozen=True)
    if not fits_on_disk(captions, encoder):
        return None
    return caption_states(captions, encoder, name=view.sentences, precision=precision)


def _shape(images: FeatureSource, view: View) -> tuple[str, int, int]:
    """Kind, dimension and regions of what the picture encoder will get."""
    if view.kind == "pixels" and view.onnx:
        return "pixels", view.onnx_towers.info["dim"], 1
    if view.kind == "pixels":
        return "pixels", view.joint_model.shape.dim if view.joint else _dim(view.backbone), 1
    shape = tuple(images.shape)
    return ("vector", shape[1], 1) if len(shape) == 2 else ("regions", shape[2], shape[1])


def _dim(name: str) -> int:
    """Numbers of a cell; a network of one size need not be loaded to know it."""
    known = getattr(backbone_class(name), "dim", None)
    return known if isinstance(known, int) else backbone(name).dim


def prepare(
    pairs: Pairs,
    view: View,
    *,
    device: torch.device,
    vocabulary: Vocabulary | None = None,
    train: str = "train",
    streamed: bool | None = None,
    reader: SentenceEncoder | None = None,
    precision: str = "fp32",
) -> Inputs:
    """Read pictures as `view` says, captions with `vocabulary` (built from the training split where none is given).

    `streamed`: pictures are read anew for each batch rather than once into a store; None: where that is too large.
    `reader`: the frozen sentence encoder that captions are read with once; None: the view's, as it came. `precision`:
    what it multiplies in.
    """
    view = view.with_size(device)
    pairs = boxes.attach(pairs) if view.boxes else pairs
    images, broken = _images(pairs, view, device, streams(pairs, view, device) if streamed is None else streamed)
    rows = pairs.rows(train) if train in pairs.split_names else np.arange(0)
    if pairs.text_features is not None:
        captions, vocabulary = None, None
    elif view.sentences or view.joint or (view.onnx and vocabulary is None):
        captions, vocabulary = _pieces(pairs, view), None
    else:
        vocabulary = vocabulary or build_vocabulary(pairs, rows if len(rows) else np.arange(len(pairs)))
        captions = Captions.encode(pairs.captions, vocabulary)
    states = _states(captions, view, device, reader, precision) if captions is not None else None
    table = Table(pairs, images, captions, device=device, broken=broken, vocabulary=vocabulary, states=states)
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
