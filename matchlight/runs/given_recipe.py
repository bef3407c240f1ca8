"""What `recipe.json` says of vectors that somebody made already."""

from __future__ import annotations

from typing import Any

from matchlight.console import VERSION
from matchlight.pairs import Pairs

VECTORS = "vectors"  # what a recipe is called whose model this is


def given_recipe(data: Pairs) -> dict[str, Any]:
    """Of data whose pictures and captions are such vectors."""
    assert data.text_features is not None
    dim = data.text_features.shape[1]
    sizes = {
        "pairs": 0,
        "pictures": 0,
        "image": "vector",
        "image_dim": dim,
        "regions": 1,
        "vocabulary": 0,
        "text_dim": dim,
        "classes": 0,
    }
    made = {"seed": 0, "data": {"root": data.root.name}, "version": VERSION}
    return {"name": VECTORS, "preset": "imported", "arguments": {}, "sizes": sizes, "view": {"kind": "given"}, **made}
