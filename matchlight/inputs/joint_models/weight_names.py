"""Weights of transformers' and open_clip's files under the names that `towers.py` has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.joint_models.shapes import Shape

Weights = dict[str, Tensor]
LAYER = {  # of transformers' files -> ours, inside a layer and inside SigLIP's pooling
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.mixed",
    "layer_norm1": "norm",
    "layer_norm2": "norm_thought",
    "mlp.fc1": "thought.wide",
    "mlp.fc2": "thought.narrow",
}
TRANSFORMERS = {
    r"(vision|text)_model\.encoder\.layers\.": r"\1.blocks.",
    r"vision_model\.embeddings\.class_embedding": "vision.class_token",
    r"vision_model\.embeddings\.patch_embedding\.": "vision.patches.",
    r"(vision|text)_model\.embeddings\.position_embedding\.weight": r"\1.places",
    r"vision_model\.pre_layrnorm\.": "vision.norm_before.",
    r"vision_model\.post_layernorm\.": "vision.norm.",
    r"vision_model\.head\.probe": "vision.pool.question",
    r"vision_model\.head\.attention\.out_proj\.": "vision.pool.attention.mixed.",
    r"vision_model\.head\.attention\.in_proj_": "vision.pool.attention.joined.",
    r"vision_model\.head\.layernorm\.": "vision.pool.norm.",
    r"vision_model\.head\.mlp\.fc1\.": "vision.pool.thought.wide.",
    r"vision_model\.head\.mlp\.fc2\.": "vision.pool.thought.narrow.",
    r"visual_projection\.": "vision.project.",
    r"text_model\.embeddings\.token_embedding\.": "text.pieces.",
    r"text_model\.final_layer_norm\.": "text.norm.",
    r"text_model\.head\.": "text.project.",
    r"text_projection\.": "text.project.",
    r"logit_scale$": "scale",
    r"logit_bias$": "bias",
}
OPEN_LAYER = {
    "attn.in_proj_": "attention.joined.",
    "attn.out_proj": "attention.mixed",
    "ln_1": "norm",
    "ln_2": "norm_thought",
    "mlp.c_fc": "thought.wide",
    "mlp.c_proj": "thought.narrow",
}
OPEN_CLIP = {
    r"visual\.transformer\.resblocks\.": "vision.blocks.",
    r"visual\.class_embedding": "vision.class_token",
    r"visual\.conv1\.": "vision.patches.",
    r"visual\.positional_embedding": "vision.places",
    r"visual\.ln_pre\.": "vision.norm_before.",
    r"visual\.ln_post\.": "vision.norm.",
    r"visual\.proj$": "vision.project.turned",
    r"(?:text\.)?transformer\.resblocks\.": "text.blocks.",
    r"(?:text\.)?token_embedding\.": "text.pieces.",
    r"(?:text\.)?positional_embedding": "text.places",
    r"(?:text\.)?ln_final\.": "text.norm.",
    r"(?:text\.)?text_projection$": "text.project.turned",
    r"(?:text\.)?text_projection\.": "text.project.",
    r"logit_scale$": "scale",
    r"logit_bias$": "bias",
}
SIDES = {"vision.": "pictures.", "text.": "texts."}
UNUSED = re.compile(r"(.*\.)?(position_ids|attn_mask)$")  # buffers that follow from the sizes


def ours(weights: Mapping[str, Tensor], shape: Shape, *, open_clip: bool) -> Weights:
    """A file's weights, float32, as `Towers` names and lays them out."""
    names, layer = (OPEN_CLIP, OPEN_LAYER) if open_clip else (TRANSFORMERS, LAYER)
    found: Weights = {}
    for key, value in weights.items():
        if UNUSED.match(key) or (key == "logit_bias" and not shape.has_bias):
            continue
        found |= _laid_out(_renamed(key, names, layer), value.float(), shape)
    return found


def _renamed(key: str, names: Mapping[str, str], layer: Mapping[str, str]) -> str:
    for pattern, new in names.items():
        if fits := re.match(pattern, key):
            name = fits.expand(new) + key[fits.end() :]
            break
    else:
        raise BadInput(f"its weight {key!r:.80} belongs to no joint model that is known here")
    side = next((side for side in SIDES if name.startswith(side)), "")
    rest = name.removeprefix(side)
    if rest.startswith("blocks."):
        place, inner = rest.removeprefix("blocks.").split(".", 1)
        known = next((old for old in layer if inner.startswith(old)), "")
        rest = f"blocks.{place}.{layer.get(known, '')}{inner.removeprefix(known)}"
    return SIDES.get(side, "") + rest


def _laid_out(name: str, value: Tensor, shape: Shape) -> Weights:
    """One weight as it lies here: projections turned, queries, keys and values apart, patches colour by colour."""
    if name in ("scale", "bias"):
        return {name: value.reshape(())}
    if name.endswith(".turned"):
        return {name.removesuffix("turned") + "weight": value.T.contiguous()}
    if ".joined." in name:
        parts = zip(("query", "key", "value"), value.chunk(3), strict=True)
        return {name.replace("joined", part): some.contiguous() for part, some in parts}
    if name == "pictures.patches.weight" and value.dim() == 4:
        return {name: value.flatten(1)}
    if name == "pictures.patches.weight":  # SigLIP2's patches: row, column, colour
        side = shape.picture.patch
        return {name: value.unflatten(1, (side, side, 3)).permute(0, 3, 1, 2).flatten(1)}
    return {name: value}
