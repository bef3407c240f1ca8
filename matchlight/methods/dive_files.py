"""DivE's checkpoints in our words: which weight is called what, and what the file's options mean.

Files hold `args`, `epoch`, `best_score` and `model`, one flat dictionary of weights; the rounds share theirs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.parts.encoders import gru_names
from matchlight.training.arguments import Value
from matchlight.training.foreign.machine import shown
from matchlight.training.registry import Checkpoint, Foreign, Weights, renamed

LAYERS = "spm.agg_block.layers."
OLD_NAMES = {"smooth_chamfer": "smooth_chamfer", "chamfer": "chamfer", "max": "mil", "mp": "mp"}

# what a model computes with and its weights do not show: what can be read, and what the authors' code takes unasked
UNSEEN: dict[str, tuple[object, object]] = {
    "arch": ("slot", "slot"),  # like the two of captions it must be given there, so a file without it says nothing
    "txt_attention_input": ("wemb", "wemb"),
    "txt_pooling": ("rnn", "rnn"),
    "img_res_pool": ("max", "avg"),
    "img_res_first_pool": (False, False),
    "spm_activation": ("gelu", "geglu"),
    "spm_residual": (True, False),
    "spm_txt_pos_enc_type": ("sine", "none"),
    "spm_img_pos_enc_type": ("none", "none"),
}
# what the weights show as well: checked where it is given, for the line that a user reads
SEEN = {
    "use_bert": False,
    "query_slot": False,
    "gpo_1x1": True,
    "gpo_rnn": True,
    "img_res_first_fc": True,
    "img_res_last_fc": False,
    "txt_pooling_fc": False,
    "spm_1x1": True,
    "spm_pre_norm": True,
    "spm_post_norm": False,
    "spm_last_ln": True,
    "spm_residual_norm": True,
    "spm_residual_fc": False,
    "spm_weight_sharing": True,
    "spm_ff_mult": 4.0,
}
OF_SIMILARITY: dict[str, dict[str, tuple[object, object]]] = {
    "smooth_chamfer": {"denominator": (2.0, 2.0), "temperature_txt_scale": (1.0, 1.0)},
    "chamfer": {"denominator": (2.0, 2.0)},
}

# how training is called there and here; what a file does not say stays as the recipe has it
TRAINING = {
    "margin": "margin",
    "mmd_weight": "mmd",
    "unif_weight": "diversity",
    "dropout": "dropout",
    "butd_drop_prob": "drop_regions",
    "caption_drop_prob": "drop_words",
    "lr": "rate",
    "img_pie_lr_scale": "slot_rate",
    "weight_decay": "decay",
    "grad_clip": "clip",
}
CAPTIONS = 5  # of a picture in the authors' data: they count a batch in pictures, we in pairs


def read_dive(file: Checkpoint) -> Foreign:
    """A region (or grid) model with a bi-GRU; a CNN in the file is left out, its cells are then the features."""
    options = {name: value for name, value in (file.get("args") or {}).items() if value is not None}
    state = {key.removeprefix("module."): value for key, value in file["model"].items()}
    _check_kind(state)
    similarity = _similarity(options)
    _check_options(options, str(similarity["similarity"]))
    named: dict[str, Value] = {
        **_sizes(state, options),
        **similarity,
        **_training(state, options),
        "padding": "official",
    }
    if _has_cnn(state):
        say("the network for pixels in this file is left out: give this model the grid cells of that network")
    kept = {key: value for key, value in state.items() if not key.startswith("img_enc.cnn.")}
    weights = renamed(_shared(kept), NAMES)
    if named["similarity"] == "mp":  # the authors' optimiser never reaches these two, and no file holds them
        weights |= {"similarity.a": torch.tensor(1.0), "similarity.b": torch.tensor(0.0)}
    image_dim, words = state["img_enc.fc.weight"].shape[1], len(state["txt_enc.embed.weight"])
    return Foreign(named, {"image_dim": image_dim, "vocabulary": words - 1}, weights)


# ---- what is refused -------------------------------------------------------------------------------------------------


def _check_kind(state: Weights) -> None:
    if any(key.startswith("txt_enc.bert.") for key in state):
        raise BadInput(
            "use_bert=True: captions are read by BERT, from word pieces, where an import has words of a vocabulary; "
            "only models with the bi-GRU can be read"
        )
    if "txt_enc.embed.weight" not in state or "img_enc.mlp.fc1.weight" not in state:
        raise BadInput("only models with the residual MLP on regions and the bi-GRU can be read; this is another kind")


def _check_options(options: Checkpoint, similarity: str) -> None:
    seen = {name: (value, value) for name, value in SEEN.items()}
    silent = []
    for name, (value, unasked) in {**UNSEEN, **seen, **OF_SIMILARITY.get(similarity, {})}.items():
        if options.get(name, value) != value:
            raise BadInput(f"{name}={shown(str(options[name]))}: only {name}={value} can be read")
        if name not in options and unasked != value:
            silent.append(f"{name}={value}")
    if silent:  # every file of the authors' code says; one that was stripped is most likely a released model
        say(f"this file does not say how it computes; read as the released models: {', '.join(silent)}")


# ---- what becomes an argument ----------------------------------------------------------------------------------------


def _sizes(state: Weights, options: Checkpoint) -> dict[str, Value]:
    image, text = (len(state[f"{side}.spm.agg_block.latents"]) for side in ("img_enc", "txt_enc"))
    if image != text:
        raise BadInput(f"img_num_embeds={image}, txt_num_embeds={text}: only sets of one size can be read")
    rounds = {key.split(LAYERS)[1].split(".")[0] for key in state if key.startswith(f"img_enc.{LAYERS}")}
    return {
        "dim": len(state["img_enc.fc.weight"]),
        "hidden": len(state["img_enc.mlp.fc1.weight"]),
        "word_dim": state["txt_enc.embed.weight"].shape[1],
        "slots": image,
        "depth": int(options.get("spm_depth", len(rounds))),
        "heads": 4,  # at any size, in the authors' code
        "head_dim": len(state[f"img_enc.{LAYERS}0.0.fn.to_q.weight"]) // 4,
    }


def _similarity(options: Checkpoint) -> dict[str, Value]:
    """The one a model was trained with, as the authors evaluate; `eval_similarity` only chose among its epochs."""
    name = "loss" if "loss" in options else "eval_similarity"
    word = options.get(name, "smooth_chamfer")
    if word not in OLD_NAMES:
        raise BadInput(f"{name}={shown(str(word))}: no known similarity; known: {', '.join(sorted(OLD_NAMES))}")
    return {"similarity": OLD_NAMES[word], "alpha": float(options.get("temperature", 16.0))}


def _training(state: Weights, options: Checkpoint) -> dict[str, Value]:
    """What the file says about its training, for a run that goes on from it."""
    named: dict[str, Value] = {ours: float(options[theirs]) for theirs, ours in TRAINING.items() if theirs in options}
    named |= _negatives(options)
    if "num_epochs" in options:
        named["epochs"] = int(options["num_epochs"])
    if "batch_size" in options:
        named["batch"] = CAPTIONS * int(options["batch_size"])
    if _has_cnn(state):
        named["drop_regions"] = 0.0  # that share is of regions; cells are left out by another rule, not rebuilt here
    if named.get("diversity") and not options.get("unif_residual"):
        say(f"unif_weight={named['diversity']} without unif_residual is left out: diversity is that of residuals here")
        named["diversity"] = 0.0
    return named


def _negatives(options: Checkpoint) -> dict[str, Value]:
    """`semi_hard_triplet` goes before `max_violation`; `tri_mean_to_max` sets the latter after its first epochs."""
    if options.get("semi_hard_triplet"):
        return {"negatives": "semihard"}
    if options.get("tri_mean_to_max"):
        return {"negatives": "hardest", "warm": int(options.get("warm_epoch", 30))}
    if "max_violation" not in options:
        return {}
    return {"negatives": "hardest" if options["max_violation"] else "all"}


# ---- what the weights are called -------------------------------------------------------------------------------------


def _has_cnn(state: Weights) -> bool:
    return any(key.startswith("img_enc.cnn.") for key in state)


def _shared(state: Weights) -> dict[str, Tensor]:
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
