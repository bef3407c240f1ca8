"""Joint models small enough for a test: made by transformers with random weights, their tokenizers built here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

LENGTH, SIDE, PATCH = 16, 24, 8
WORDS = "a dog cat red green blue ball box on under near big small two the and bird tree car moon".split()
BLOCKS = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
CLIP_COLOURS = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
KINDS = ("clip", "siglip", "siglip2", "open_clip")


def make(kind: str, folder: Path, *, seed: int = 0, **text: int) -> Path:
    """A tiny joint model in a folder, as its library saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "open_clip":
        return _as_open_clip(make("clip", folder, seed=seed), folder)
    words = _clip_words(folder) if kind == "clip" else _siglip_words(folder)
    model = _model(kind, words | text, seed)
    with torch.no_grad():  # biases and norms begin as 0 and 1: mixed-up ones would go unseen
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(_pictures(kind)))
    return folder


def _model(kind: str, words: dict[str, int], seed: int):  # noqa: ANN202 - whichever of transformers' classes
    import transformers

    torch.manual_seed(seed)
    seen = {**BLOCKS, "patch_size": PATCH} | ({"num_patches": 9} if kind == "siglip2" else {"image_size": SIDE})
    read = {**BLOCKS, "max_position_embeddings": LENGTH, **words}
    name = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}[kind]
    more = {"projection_dim": 20} if kind == "clip" else {}
    config = getattr(transformers, f"{name}Config")(text_config=read, vision_config=seen, **more)
    return getattr(transformers, f"{name}Model")(config).eval()


def _pictures(kind: str) -> dict[str, object]:
    if kind == "clip":
        crop = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}, "do_center_crop": True}
        return {"image_processor_type": "CLIPImageProcessor", "do_resize": True, **crop, "resample": 3, **CLIP_COLOURS}
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2, "do_resize": True}
    if kind == "siglip":
        return {"image_processor_type": "SiglipImageProcessor", "size": {"height": SIDE, "width": SIDE}, **half}
    return {"image_processor_type": "Siglip2ImageProcessor", "patch_size": PATCH, "max_num_patches": 12, **half}


def _clip_words(folder: Path) -> dict[str, int]:
    """Byte pairs of nothing but single letters, and CLIP's two special pieces."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "do", "dog</w>", "re", "red</w>"]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({piece: k for k, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\nd o\ndo g</w>\nr e\nre d</w>\n")
    special = {"bos_token": pieces[-2], "eos_token": pieces[-1], "unk_token": pieces[-1], "pad_token": pieces[-1]}
    said = {"tokenizer_class": "CLIPTokenizer", "model_max_length": LENGTH, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    end = len(pieces) - 1
    return {"vocab_size": len(pieces), "bos_token_id": end - 1, "eos_token_id": end, "pad_token_id": end}


def _siglip_words(folder: Path) -> dict[str, int]:
    """Whole words, an end behind them, and the same piece to fill up with."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    pieces = ["<unk>", "</s>", *WORDS]
    made = Tokenizer(WordLevel({piece: k for k, piece in enumerate(pieces)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    made.save(str(folder / "tokenizer.json"))
    special = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LENGTH, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps({**said, "model_input_names": ["input_ids"]}))
    return {"vocab_size": len(pieces), "eos_token_id": 1, "pad_token_id": 1, "bos_token_id": 1}


def captions(count: int, *, seed: int = 0) -> list[str]:
    """Captions of one to twelve words: some too long for the models."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 13))) for _ in range(count)]


def pictures(count: int, *, seed: int = 0) -> list[Image.Image]:
    """Pictures of many shapes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 90, (count, 2))
    return [Image.fromarray(rng.integers(0, 256, (high, wide, 3), dtype=np.uint8)) for high, wide in sizes]


# ---- open_clip's layout ----------------------------------------------------------------------------------------------

TURNED = {"text_projection.weight": "text_projection", "visual_projection.weight": "visual.proj"}
OUTSIDE = {
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm": "visual.ln_pre",
    "vision_model.post_layernorm": "visual.ln_post",
    "vision_model.encoder.layers": "visual.transformer.resblocks",
    "text_model.embeddings.token_embedding": "token_embedding",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm": "ln_final",
    "text_model.encoder.layers": "transformer.resblocks",
}
INSIDE = {"self_attn.out_proj": "attn.out_proj", "layer_norm1": "ln_1", "layer_norm2": "ln_2"}
INSIDE |= {"mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}


def _as_open_clip(clip: Path, folder: Path) -> Path:
    """The same model in open_clip's files alone."""
    theirs = load_file(clip / "model.safetensors")
    found: dict[str, torch.Tensor] = {}
    for key, value in theirs.items():
        if key in TURNED:
            found[TURNED[key]] = value.T.contiguous()
        elif "self_attn.q_proj" in key:
            parts = [theirs[key.replace("q_proj", f"{one}_proj")] for one in "qkv"]
            name = _renamed(key, OUTSIDE).replace("self_attn.q_proj.", "attn.in_proj_")
            found[name] = torch.cat(parts)
        elif "k_proj" not in key and "v_proj" not in key:
            found[_renamed(_renamed(key, OUTSIDE), INSIDE)] = value
    save_file(found, folder / "open_clip_model.safetensors")
    blocks = {"width": BLOCKS["hidden_size"], "layers": BLOCKS["num_hidden_layers"], "mlp_ratio": 1.5}
    seen = {**blocks, "image_size": SIDE, "patch_size": PATCH, "head_width": 8}
    read = {**blocks, "context_length": LENGTH, "heads": BLOCKS["num_attention_heads"]}
    read["vocab_size"] = len(found["token_embedding.weight"])
    model = {"embed_dim": 20, "quick_gelu": True, "vision_cfg": seen, "text_cfg": read}
    colours = {"mean": CLIP_COLOURS["image_mean"], "std": CLIP_COLOURS["image_std"]}
    pictures = {**colours, "interpolation": "bicubic", "resize_mode": "shortest"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": pictures}))
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        (folder / name).unlink()
    return folder


def _renamed(key: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        key = key.replace(old, new)
    return key
