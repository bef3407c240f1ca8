"""Features of all pictures of a data set by a frozen network, stored or streamed; of a few in hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from matchlight.core import BadInput
from matchlight.devices import pick_device
from matchlight.inputs.backbones import Backbone, Size, TokenChoice, as_size, backbone
from matchlight.inputs.backbones.vision_transformer import TokenBackbone
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.pixel_stores import Meta, as_path, described, pictures_of, reported
from matchlight.inputs.features.runtimes import OTHER_NUMBERS, asked_for, computed, computed_by
from matchlight.inputs.features.store import FeatureStore, GivenFeatures
from matchlight.inputs.features.stream import FeatureStream
from matchlight.inputs.preprocessing import Preprocessing
from matchlight.inputs.weights.ordinary_names import settled

if TYPE_CHECKING:
    import torch

    from matchlight.pairs import Pairs, PictureSource

KINDS = ("grid", "pooled")
CPU_BATCH = 8 * 160 * 160  # pixels at once: on a CPU small batches stay in its caches and are twice as fast


def extract(
    pairs: Pairs,
    *,
    backbone: str | Backbone = "lite0",
    kind: str = "grid",
    device: str = "auto",
    size: int | Size | Preprocessing | str | None = None,
    choice: TokenChoice | None = None,
    out: str | Path | None = None,
    batch: int | None = None,
) -> FeatureStore:
    """Features of all pictures of `pairs`, from the cache (or the folder `out`) where they are there already.

    `kind` is "grid" (one vector a cell) or "pooled" (their mean). `size` is a number or (height, width); "auto" is the
    backbone's own, and for those that take any, less on a CPU: lite0 gets 160 there and 224 on a GPU, lite1 192 and
    240, lite2 192 and 260. `choice` is of a vision transformer's tokens; a network's `runtime` says what computes it.
    Features that came with the data are given back as they are.
    """
    if pairs.features is not None:
        given = pairs.features
        return given if isinstance(given, FeatureStore) else GivenFeatures(given)
    network, made, meta = planned(pairs, backbone, kind, pick_device(device), size, choice)
    source, where = pictures_of(pairs), pick_device(device)
    many = batch or (max(1, CPU_BATCH // (made.size[0] * made.size[1])) if where.type == "cpu" else 128)

    def produce(start: int) -> Iterator[Rows]:
        runs = computed_by(network.for_inference().to(where), source, made, left=len(source) - start)
        return _seen(runs, source, start, made, many, kind)

    return reported(kept(FeatureStore, meta, produce, as_path(out)), pairs)


def planned(
    pairs: Pairs,
    backbone: str | Backbone,
    kind: str,
    where: torch.device,
    size: int | Size | Preprocessing | str | None,
    choice: TokenChoice | None,
) -> tuple[Backbone, Preprocessing, Meta]:
    """The network, what it sees of a picture, and the description of the store of its features."""
    if kind not in KINDS:
        raise BadInput(f"{kind!r} is no kind of feature; known: {', '.join(KINDS)}")
    wanted = None if isinstance(size, str | Preprocessing | None) else as_size(size)
    network = backbone if isinstance(backbone, Backbone) else _named(backbone, wanted, choice)
    made = size if isinstance(size, Preprocessing) else network.preprocessing(wanted or network.usual_size(where))
    source = pictures_of(pairs)
    meta = described(
        pairs, source, made, what="features", backbone=network.name, kind=kind, weights=network.fingerprint()
    )
    if isinstance(network, TokenBackbone):
        meta |= {"tokens": network.tokens, "cells": network.cell_grid}
    if (runtime := asked_for(network)) in OTHER_NUMBERS:
        meta |= {"runtime": runtime}
    tail = (network.cells(made.size), network.dim) if kind == "grid" else (network.pooled_dim,)
    return network, made, meta | {"shape": (len(source), *tail), "dtype": "float16"}


def feature_stream(
    pairs: Pairs, *, backbone: str, kind: str, device: torch.device, size: Preprocessing, choice: TokenChoice
) -> FeatureStream:
    """Features of all pictures of `pairs`, computed anew for each batch."""
    network, made, meta = planned(pairs, backbone, kind, device, size, choice)
    source = pictures_of(pairs)
    runs = computed_by(network.for_inference().to(device), source, made, left=len(source))
    return FeatureStream(source, made, runs, kind, meta["shape"])


def encode(
    images: Sequence[Image.Image], network: Backbone, *, kind: str = "grid", size: int | Size | Preprocessing
) -> np.ndarray:
    """Features of a few pictures in hand, made as `extract` makes them; `store.meta` knows kind and size."""
    made = size if isinstance(size, Preprocessing) else network.preprocessing(as_size(size))
    return computed(network.eval(), np.stack([made.pixels(image) for image in images]), kind)


def _named(name: str, size: Size | None, choice: TokenChoice | None) -> Backbone:
    return backbone(settled(name, "picture", asked="backbone"), size, choice=choice)


def _seen(
    network: Backbone, source: PictureSource, start: int, made: Preprocessing, batch: int, kind: str
) -> Iterator[Rows]:
    """Batches of features from row `start` on; rows of broken pictures are zeros."""

    def look(rows: np.ndarray) -> np.ndarray:
        return computed(network, rows, kind)

    if network.mean.device.type == "cpu":  # type: ignore[union-attr]
        batches = decoded(source, start, made, batch, then=look)
    else:
        batches = ((look(rows), broken) for rows, broken in decoded(source, start, made, batch))
    for found, broken in batches:
        found[[place - start for place in broken]] = 0
        start += len(found)
        yield found, broken
