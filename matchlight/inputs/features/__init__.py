"""Features: what a picture looks like to a network, computed once and kept in a memory-mapped store.

    store = extract(pairs, backbone="lite0")       # (N, cells, 1280) float16; computed once, found again by content
    photos = pixels(pairs, size=(224, 224))        # (N, 3, 224, 224) uint8, for a backbone that is trained end to end
    network = backbone("lite0")                    # pixels in 0..255 -> (N, cells, dim)

Every picture is resized whole, sides unequal if need be, to one size: nothing at its borders is lost, and every picture
has the same number of cells. A network of transformers (hf:NAME) gets what its own preprocessor makes. Pictures are
decoded by threads ahead of the network. One that cannot be read gets a row of zeros, is counted, and is listed in
`store.broken`. decode.py makes pixels of pictures, runtimes.py says what computes the network, fill.py writes a store,
store.py reads one; stream.py does without one; spread.py has many processes do it; detectors.py finds regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.cache import cache_clear, cache_listing
from matchlight.data.content import stamps
from matchlight.devices import pick_device
from matchlight.inputs.backbones import Backbone, Size, TokenChoice, as_size, backbone
from matchlight.inputs.backbones.vision_transformer import TokenBackbone
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.runtimes import OTHER_NUMBERS, asked_for, computed, computed_by
from matchlight.inputs.features.store import FeatureStore, GivenFeatures, PixelStore, S, Store
from matchlight.inputs.features.stream import FeatureStream, PixelStream
from matchlight.inputs.preprocessing import Preprocessing
from matchlight.inputs.weights.ordinary_names import settled

if TYPE_CHECKING:
    import torch

    from matchlight.pairs import Pairs, PictureSource

__all__ = [
    "Backbone", "FeatureStore", "FeatureStream", "PixelStore", "PixelStream", "Store", "backbone", "cache_clear",
    "cache_listing", "encode", "extract", "feature_stream", "pixel_stream", "pixels", "planned", "store_of_pixels",
]  # fmt: skip

Meta = dict[str, Any]  # a store's description, as meta.json holds it
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

    return reported(kept(FeatureStore, meta, produce, _path(out)), pairs)


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


def pixels(pairs: Pairs, size: int | Size | Preprocessing = (224, 224), *, out: str | Path | None = None) -> PixelStore:
    """All pictures of `pairs` decoded once to one size, uint8, from the cache where they are there already."""
    source, made = pictures_of(pairs), size if isinstance(size, Preprocessing) else Preprocessing(as_size(size))
    meta = store_of_pixels(pairs, made)

    def produce(start: int) -> Iterator[Rows]:
        return decoded(source, start, made, 32)

    return reported(kept(PixelStore, meta, produce, _path(out)), pairs)


def store_of_pixels(pairs: Pairs, made: Preprocessing) -> Meta:
    """The description of the store of these pixels."""
    source = pictures_of(pairs)
    return described(pairs, source, made, what="pixels") | {"shape": (len(source), 3, *made.size), "dtype": "uint8"}


def pixel_stream(pairs: Pairs, made: Preprocessing) -> PixelStream:
    """All pictures of `pairs`, decoded anew for each batch."""
    return PixelStream(pictures_of(pairs), made)


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


def _path(out: str | Path | None) -> Path | None:
    return None if out is None else Path(out)


def pictures_of(pairs: Pairs) -> PictureSource:
    """The pictures of a data set that has some."""
    if pairs.pictures is None or not len(pairs.pictures):
        raise BadInput(f"{pairs.root}: has no pictures to look at and no features; pictures in images/ would do")
    return pairs.pictures


def described(pairs: Pairs, source: PictureSource, made: Preprocessing, **more: Any) -> Meta:
    """All that a store's content depends on."""
    digest = hashlib.sha256()
    for stamp in stamps(source):
        digest.update(stamp.encode("utf-8", "replace") + b"\n")
    if made != Preprocessing(made.size, mean=made.mean, std=made.std):  # whole and bilinear goes without saying
        more |= {"shorter": made.shorter, "resample": made.resample, "reducing": made.reducing}
    if made.even:
        more |= {"even": True}
    return {**more, "size": made.size, "pictures": digest.hexdigest()}


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


def reported(store: S, pairs: Pairs) -> S:
    """The same store, after telling which pictures could not be read."""
    broken = store.broken
    if broken:
        names = ", ".join(str(pairs.names[place]) for place in broken[:3])
        names += f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
        say(f"{len(broken):,} of {len(store):,} pictures could not be read: {names}; `matchlight data info` says why")
    return store
