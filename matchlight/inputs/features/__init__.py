"""Features: what a picture looks like to a network, computed once and kept in a memory-mapped store.

    store = extract(pairs, backbone="lite0")       # (N, cells, 1280) float16; computed once, found again by content
    photos = pixels(pairs, size=(224, 224))        # (N, 3, 224, 224) uint8, for a backbone that is trained end to end
    network = backbone("lite0")                    # pixels in 0..255 -> (N, cells, dim)

Every picture is resized whole, sides unequal if need be, to one size: nothing at its borders is lost, and every picture
has the same number of cells. A network of transformers (hf:NAME) gets what its own preprocessor makes. Pictures are
decoded by threads ahead of the network. One that cannot be read gets a row of zeros, is counted, and is listed in
`store.broken`. decode.py makes pixels of pictures, runtimes.py says what computes the network, fill.py writes a store,
store.py reads one; stream.py does without one; pixel_stores.py and extraction.py are what is called; spread.py has many
processes do it; detectors.py finds regions. What needs a network is loaded when it is asked for: pixels need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from matchlight.data.cache import cache_clear, cache_listing
from matchlight.inputs.features.pixel_stores import pixel_stream, pixels, store_of_pixels
from matchlight.inputs.features.store import FeatureStore, PixelStore, Store
from matchlight.inputs.features.stream import FeatureStream, PixelStream

if TYPE_CHECKING:
    from matchlight.inputs.backbones import Backbone, backbone
    from matchlight.inputs.features.extraction import encode, extract, feature_stream, planned

__all__ = [
    "Backbone", "FeatureStore", "FeatureStream", "PixelStore", "PixelStream", "Store", "backbone", "cache_clear",
    "cache_listing", "encode", "extract", "feature_stream", "pixel_stream", "pixels", "planned", "store_of_pixels",
]  # fmt: skip

_LATER = {
    "backbones": ("Backbone", "backbone"),
    "features.extraction": ("encode", "extract", "feature_stream", "planned"),
}
_HOME = {name: f"matchlight.inputs.{module}" for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
