"""Stores and streams of pixels: pictures of one size, decoded once or anew for each batch; no network, and no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchlight.console import BadInput, say
from matchlight.data.content import stamps
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.store import PixelStore, S
from matchlight.inputs.features.stream import PixelStream
from matchlight.inputs.preprocessing import Preprocessing, Size, as_size

if TYPE_CHECKING:
    from matchlight.pairs import Pairs, PictureSource

Meta = dict[str, Any]  # a store's description, as meta.json holds it


def pixels(pairs: Pairs, size: int | Size | Preprocessing = (224, 224), *, out: str | Path | None = None) -> PixelStore:
    """All pictures of `pairs` decoded once to one size, uint8, from the cache where they are there already."""
    source, made = pictures_of(pairs), size if isinstance(size, Preprocessing) else Preprocessing(as_size(size))
    meta = store_of_pixels(pairs, made)

    def produce(start: int) -> Iterator[Rows]:
        return decoded(source, start, made, 32)

    return reported(kept(PixelStore, meta, produce, as_path(out)), pairs)


def store_of_pixels(pairs: Pairs, made: Preprocessing) -> Meta:
    """The description of the store of these pixels."""
    source = pictures_of(pairs)
    return described(pairs, source, made, what="pixels") | {"shape": (len(source), 3, *made.size), "dtype": "uint8"}


def pixel_stream(pairs: Pairs, made: Preprocessing) -> PixelStream:
    """All pictures of `pairs`, decoded anew for each batch."""
    return PixelStream(pictures_of(pairs), made)


def as_path(out: str | Path | None) -> Path | None:
    """A folder as it was named, if it was."""
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


def reported(store: S, pairs: Pairs) -> S:
    """The same store, after telling which pictures could not be read."""
    broken = store.broken
    if broken:
        names = ", ".join(str(pairs.names[place]) for place in broken[:3])
        names += f" and {len(broken) - 3:,} more" if len(broken) > 3 else ""
        say(f"{len(broken):,} of {len(store):,} pictures could not be read: {names}; `matchlight data info` says why")
    return store
