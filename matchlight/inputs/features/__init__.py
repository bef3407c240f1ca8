"""Features: what a picture looks like to a network, computed once and kept in a memory-mapped store.

    store = extract(pairs, backbone="lite0")       # (N, cells, 1280) float16; computed once, found again by content
    photos = pixels(pairs, size=(224, 224))        # (N, 3, 224, 224) uint8, for a backbone that is trained end to end
    network = backbone("lite0")                    # pixels in 0..255 -> (N, cells, dim)

Every picture is resized whole, sides unequal if need be, to one size: nothing at its borders is lost, and every picture
has the same number of cells. Pictures are decoded by threads ahead of the network. One that cannot be read gets a row
of zeros, is counted, and is listed in `store.broken`. decode.py makes pixels of pictures, fill.py writes a store row by
row, store.py reads one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.cache import cache_clear, cache_listing
from matchlight.data.content import stamps
from matchlight.devices import pick_device
from matchlight.inputs.backbones import Backbone, Size, as_size, backbone
from matchlight.inputs.features.decode import decoded, resized
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.store import FeatureStore, GivenFeatures, PixelStore, S, Store

if TYPE_CHECKING:
    from matchlight.pairs import Pairs, PictureSource

__all__ = [
    "Backbone", "FeatureStore", "PixelStore", "Store", "backbone", "cache_clear", "cache_listing", "encode", "extract",
    "pixels",
]  # fmt: skip

KINDS = ("grid", "pooled")
CPU_BATCH = 8 * 160 * 160  # pixels at once: on a CPU small batches stay in its caches and are twice as fast
LARGEST = 65504.0  # the largest float16


def extract(
    pairs: Pairs,
    *,
    backbone: str | Backbone = "lite0",
    kind: str = "grid",
    device: str = "auto",
    size: int | Size | str | None = None,
    out: str | Path | None = None,
    batch: int | None = None,
) -> FeatureStore:
    """Features of all pictures of `pairs`, from the cache (or the folder `out`) where they are there already.

    `kind` is "grid" (one vector a cell) or "pooled" (their mean). `size` is a number or (height, width); "auto" is the
    backbone's own, and for those that take any, less on a CPU: lite0 gets 160 there and 224 on a GPU, lite1 192 and
    240, lite2 192 and 260. Features that came with the data are given back as they are.
    """
    if pairs.features is not None:
        given = pairs.features
        return given if isinstance(given, FeatureStore) else GivenFeatures(given)
    if kind not in KINDS:
        raise BadInput(f"{kind!r} is no kind of feature; known: {', '.join(KINDS)}")
    source, where = _pictures(pairs), pick_device(device)
    wanted = None if size in (None, "auto") else as_size(size)  # type: ignore[arg-type]
    network = backbone if isinstance(backbone, Backbone) else _named(backbone, wanted)
    shape = wanted or network.usual_size(where)
    meta = _meta(pairs, source, shape, what="features", backbone=network.name, kind=kind, weights=network.fingerprint())
    tail = (network.cells(shape), network.dim) if kind == "grid" else (network.dim,)
    meta |= {"shape": (len(source), *tail), "dtype": "float16"}
    many = batch or (max(1, CPU_BATCH // (shape[0] * shape[1])) if where.type == "cpu" else 128)

    def produce(start: int) -> Iterator[Rows]:
        return _seen(network.for_inference().to(where), source, start, shape, many, kind)

    return _reported(kept(FeatureStore, meta, produce, _path(out)), pairs)


def pixels(pairs: Pairs, size: int | Size = (224, 224), *, out: str | Path | None = None) -> PixelStore:
    """All pictures of `pairs` decoded once to one size, uint8, from the cache where they are there already."""
    source, shape = _pictures(pairs), as_size(size)
    meta = _meta(pairs, source, shape, what="pixels")
    meta |= {"shape": (len(source), 3, *shape), "dtype": "uint8"}

    def produce(start: int) -> Iterator[Rows]:
        return decoded(source, start, shape, 32)

    return _reported(kept(PixelStore, meta, produce, _path(out)), pairs)


def encode(images: Sequence[Image.Image], network: Backbone, *, kind: str = "grid", size: int | Size) -> np.ndarray:
    """Features of a few pictures in hand, made as `extract` makes them; `store.meta` knows kind and size."""
    shape = as_size(size)
    return _run(network.eval(), np.stack([resized(image, shape) for image in images]), kind)


def _named(name: str, size: Size | None) -> Backbone:
    return backbone(name, size)


def _path(out: str | Path | None) -> Path | None:
    return None if out is None else Path(out)


def _pictures(pairs: Pairs) -> PictureSource:
    if pairs.pictures is None or not len(pairs.pictures):
        raise BadInput(f"{pairs.root}: has no pictures to look at and no features; pictures in images/ would do")
    return pairs.pictures


def _meta(pairs: Pairs, source: PictureSource, size: Size, **more: Any) -> dict[str, Any]:
    """All that a store's content depends on."""
    digest = hashlib.sha256()
    for stamp in stamps(source):
        digest.update(stamp.encode("utf-8", "replace") + b"\n")
    return {**more, "size": size, "pictures": digest.hexdigest()}


def _seen(network: Backbone, source: PictureSource, start: int, size: Size, batch: int, kind: str) -> Iterator[Rows]:
    """Batches of features from row `start` on; rows of broken pictures are zeros."""

    def look(rows: np.ndarray) -> np.ndarray:
        return _run(network, rows, kind)

    if network.mean.device.type == "cpu":  # type: ignore[union-attr]
        batches = decoded(source, start, size, batch, then=look)
    else:
        batches = ((look(rows), broken) for rows, broken in decoded(source, start, size, batch))
    for found, broken in batches:
        found[[place - start for place in broken]] = 0
        start += len(found)
        yield found, broken


@torch.inference_mode()
def _run(network: Backbone, rows: np.ndarray, kind: str) -> np.ndarray:
    device = network.mean.device
    grid = network(torch.from_numpy(rows).to(device))  # type: ignore[arg-type]
    features = grid if kind == "grid" else grid.mean(1)
    return features.float().clamp(-LARGEST, LARGEST).half().cpu().numpy()


def _reported(store: S, pairs: Pairs) -> S:
    broken = store.broken
    if broken:
        names = ", ".join(str(pairs.names[place]) for place in broken[:3])
        say(f"{len(broken)} of {len(store)} pictures could not be read and count as blank: {names}")
    return store
