"""What `recipe.json` says of an exported run: enough to open it again, with torch (`onnx_runs.py`) or without."""

from __future__ import annotations

from typing import Any

from matchlight.console import VERSION
from matchlight.inputs.onnx_towers import OnnxTowers

ONNX = "onnx"  # what a recipe is called whose model this is


def onnx_recipe(towers: OnnxTowers) -> dict[str, Any]:
    """Its sizes, and how it reads pictures and captions; refused is what is no dual encoder."""
    towers.check_dual()
    words, seen = towers.vocabulary, towers.info["picture"]
    pixels = seen["input"] == "pixels"
    sizes = {
        "pairs": 0,
        "pictures": 0,
        "image": "pixels" if pixels else "vector" if len(seen["size"]) == 1 else "regions",
        "image_dim": towers.info["dim"] if pixels else seen["size"][-1],
        "regions": 1 if pixels else seen["size"][0],
        "vocabulary": len(words) if words is not None else 0,
        "text_dim": 0,
        "classes": 0,
    }
    view = {"kind": "pixels" if pixels else "given", "onnx": towers.path.name}
    made = {"exported": towers.info["method"], "version": VERSION}
    return {"name": ONNX, "preset": "imported", "arguments": {}, "sizes": sizes, "view": view, **made}
