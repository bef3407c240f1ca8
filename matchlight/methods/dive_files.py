"""DivE's checkpoints in our words: which weight is called what, and what the file's options mean.

Files hold `args`, `epoch`, `best_score` and `model`, one flat dictionary of weights; the rounds share theirs.
"""

from __future__ import annotations

from typing import Any

import torch

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.encoders import gru_names
from matchlight.recipes import Foreign, renamed

LAYERS = "spm.agg_block.layers."
OLD_NAMES = {"smooth_chamfer": "smooth_chamfer", "chamfer": "chamfer", "max": "mil", "mp": "mp"}


def read_dive(file: dict[str, Any]) -> Foreign:
    """A region (or grid) model with a bi-GRU; a CNN in the file is left out, its cells are then the features."""
    options = file.get("args") or {}
    state = {key.removeprefix("module."): value for key, value in file["model"].items()}
    _check_kind(state, options)
    if any(key.startswith("img_enc.cnn.") for key in state):
        say("the network for pixels in this file is left out: give this model the grid cells of that network")
    kept = {key: value for key, value in state.items() if not key.startswith("img_enc.cnn.")}
    weights = renamed(_shared(kept), NAMES)
    image, text, inner = state["img_enc.fc.weight"], state["txt_enc.embed.weight"], f"img_enc.{LAYERS}0.0.fn."
    named = {
        "dim": image.shape[0],
        "hidden": len(state["img_enc.mlp.fc1.weight"]),
        "word_dim": text.shape[1],
        "slots": len(state["img_enc.spm.agg_block.latents"]),
        "depth": int(options.get("spm_depth", 4)),
        "heads": 4,
        "head_dim": len(state[f"{inner}to_q.weight"]) // 4,
        "similarity": OLD_NAMES[options.get("eval_similarity", "smooth_chamfer")],
        "alpha": float(options.get("temperature", 16.0)),
        "margin": float(options.get("margin", 0.2)),
        "negatives": "hardest" if options.get("max_violation", True) else "all",
        "padding": "official",
    }
    return Foreign(named, {"image_dim": image.shape[1], "vocabulary": len(text) - 1}, weights)


def _check_kind(state: dict[str, Any], options: dict[str, Any]) -> None:
    if "txt_enc.embed.weight" not in state or "img_enc.mlp.fc1.weight" not in state:
        raise BadInput("only models with the residual MLP on regions and the bi-GRU can be read; this is another kind")
    wanted = {"arch": "slot", "denominator": 2.0, "spm_txt_pos_enc_type": "sine", "spm_img_pos_enc_type": "none"}
    for name, value in wanted.items():
        if options.get(name, value) != value:
            raise BadInput(f"{name}={options[name]} in this file's options; only {value} can be read")


def _shared(state: dict[str, Any]) -> dict[str, Any]:
    """The rounds share their weights, so the file holds each tensor once a round; one is kept."""
    out = {}
    for key, value in state.items():
        head, found, tail = key.partition(LAYERS)
        first = f"{head}{LAYERS}0{tail[1:]}" if found else key
        if not torch.equal(value, state[first]):
            raise BadInput(f"{key} differs from {first}: only models whose rounds share their weights can be read")
        out[first] = value
    return out


def _module(side: str, ours: str) -> dict[str, str]:
    old, new = f"{side}.spm.", f"encoders.{ours}.slots."
    block = f"{side}.{LAYERS}0."
    return {
        f"{old}residual_norm.": f"{new}whole_norm.",
        f"{old}agg_block.latents": f"{new}start.latents",
        f"{old}agg_block.last_layer.0.": f"{new}norm.",
        f"{block}0.norm.": f"{new}compete.norm.",
        f"{block}0.norm_context.": f"{new}compete.norm_context.",
        f"{block}0.fn.to_q.": f"{new}compete.query.",
        f"{block}0.fn.to_k.": f"{new}compete.key.",
        f"{block}0.fn.to_v.": f"{new}compete.value.",
        f"{block}0.fn.to_out.0.": f"{new}compete.out.",
        f"{block}2.norm.": f"{new}think.0.",
        f"{block}2.fn.net.0.": f"{new}think.1.",
        f"{block}2.fn.net.3.": f"{new}think.4.",
    }


NAMES = {
    "img_enc.fc.": "encoders.image.fc.",
    "img_enc.mlp.fc1.": "encoders.image.first.",
    "img_enc.mlp.bn.bn.": "encoders.image.norm.",
    "img_enc.mlp.fc2.": "encoders.image.second.",
    "txt_enc.embed.": "encoders.text.embed.",
    **gru_names("txt_enc.rnn.", "encoders.text."),
    **_module("img_enc", "image"),
    **_module("txt_enc", "text"),
}
