"""What a joint model's configuration says of its two towers.

CLIP, SigLIP and SigLIP2 as transformers saves them, and open_clip's own files. A configuration only names what differs
from its library's defaults, so these stand here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from matchlight.core import BadInput

Family = Literal["clip", "siglip", "siglip2"]
Config = Mapping[str, object]
FAMILIES: dict[str, Family] = {"clip": "clip", "siglip": "siglip", "siglip2": "siglip2"}
ACTIVATIONS = ("quick_gelu", "gelu", "gelu_pytorch_tanh")
LEGACY_END = 2  # what configurations of old say of every CLIP: the largest id is meant
HEAD = 64  # dimensions of a head where open_clip names no number of heads


@dataclass(frozen=True)
class Blocks:
    """The layers of a transformer."""

    width: int
    hidden: int
    layers: int
    heads: int
    activation: str
    eps: float

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise BadInput(f"an activation {self.activation!r} is not known; known: {', '.join(ACTIVATIONS)}")
        if min(self.width, self.hidden, self.layers, self.heads) < 1 or self.width % self.heads:
            raise BadInput(f"a tower of width {self.width} with {self.heads} heads and {self.layers} layers cannot be")


@dataclass(frozen=True)
class PictureTower:
    """Patches, with a class token (CLIP) or an attention that pools (SigLIP)."""

    blocks: Blocks
    out: int  # dimensions of the vector that the tower ends in
    patch: int
    image: int  # pixels a side; of a flexible tower: of the square that has as many patches as its position table
    flexible: bool = False  # pictures keep their shape, in as many patches as fit (SigLIP2's "naflex")

    @property
    def places(self) -> int:
        """Patches a side of the position table."""
        return self.image // self.patch


@dataclass(frozen=True)
class TextTower:
    """Word pieces."""

    blocks: Blocks
    out: int
    vocabulary: int
    length: int  # places
    end: int | None = None  # the piece whose state is the caption's (CLIP); None: the piece with the largest id


@dataclass(frozen=True)
class Shape:
    """Both towers."""

    family: Family
    picture: PictureTower
    text: TextTower

    @property
    def dim(self) -> int:
        """Dimensions of the vectors that are compared."""
        return self.text.out

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added to scores: those that were trained with a sigmoid."""
        return self.family != "clip"


COMMON = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
QUICK = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
TANH = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
DEFAULTS: dict[Family, tuple[Config, Config]] = {  # of pictures, of text
    "clip": (
        {**COMMON, **QUICK, "image_size": 224, "patch_size": 32},
        {**QUICK, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8}
        | {"vocab_size": 49408, "max_position_embeddings": 77, "eos_token_id": 49407},
    ),
    "siglip": (
        {**COMMON, **TANH, "image_size": 224, "patch_size": 16},
        {**COMMON, **TANH, "vocab_size": 32000, "max_position_embeddings": 64},
    ),
    "siglip2": (
        {**COMMON, **TANH, "num_patches": 256, "patch_size": 16},
        {**COMMON, **TANH, "vocab_size": 32000, "max_position_embeddings": 64},
    ),
}


def shape_of(config: Config) -> Shape:
    """The towers that a `config.json` of transformers describes."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        kind = config.get("model_type")
        raise BadInput(f"a model of type {kind!r} is no joint model that can be read; clip, siglip and siglip2 can")
    seen, read = (dict(part) for part in DEFAULTS[family])
    seen |= _part(config, "vision_config")
    read |= _part(config, "text_config")
    _check_parts(seen)
    outs = (_int(config, "projection_dim", 512),) * 2
    if family != "clip":
        outs = _int(seen, "hidden_size"), _int(read, "projection_size", _int(read, "hidden_size"))
    if outs[0] != outs[1]:
        raise BadInput(f"its pictures have {outs[0]} dimensions and its captions {outs[1]}; they must be as many")
    side = _side(seen) if family == "siglip2" else _int(seen, "image_size")
    picture = PictureTower(_blocks(seen), outs[0], _int(seen, "patch_size"), side, flexible=family == "siglip2")
    end = _int(read, "eos_token_id") if family == "clip" else None
    text = TextTower(
        _blocks(read),
        outs[1],
        _int(read, "vocab_size"),
        _int(read, "max_position_embeddings"),
        end=None if end == LEGACY_END else end,
    )
    return Shape(family, picture, text)


def _part(config: Config, name: str) -> dict[str, object]:
    """One tower's own settings; files of old hold them once more under another name, which then counts."""
    found: dict[str, object] = {}
    for key in (name, f"{name}_dict"):
        value = config.get(key)
        found |= {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}
    return found


def _check_parts(seen: Config) -> None:
    if _int(seen, "num_channels", 3) != 3 or seen.get("vision_use_head") is False:
        raise BadInput("its picture tower has no pooling head or other than three colours")


def _blocks(part: Config) -> Blocks:
    return Blocks(
        width=_int(part, "hidden_size"),
        hidden=_int(part, "intermediate_size"),
        layers=_int(part, "num_hidden_layers"),
        heads=_int(part, "num_attention_heads"),
        activation=str(part["hidden_act"]).replace("gelu_new", "gelu_pytorch_tanh"),
        eps=_float(part, "layer_norm_eps"),
    )


def _side(seen: Config) -> int:
    """Pixels a side of the square that has as many patches as a flexible tower's position table."""
    patches = _int(seen, "num_patches")
    side = round(patches**0.5)
    if side * side != patches:
        raise BadInput(f"num_patches={patches} is no square number")
    return side * _int(seen, "patch_size")


def _int(part: Config, name: str, usual: int | None = None) -> int:
    value = part.get(name, usual)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"its configuration says {name}={value!r:.40}, which should be a whole number")
    return value


def _float(part: Config, name: str) -> float:
    value = part.get(name)
    if not isinstance(value, int | float):
        raise BadInput(f"its configuration says {name}={value!r:.40}, which should be a number")
    return float(value)


# ---- open_clip -------------------------------------------------------------------------------------------------------

UNREAD = {  # settings of open_clip that change what a tower computes, and the values that change nothing
    "timm_model_name": None, "hf_model_name": None, "attentional_pool": False, "no_ln_pre": False, "embed_cls": False,
    "no_causal_mask": False, "ls_init_value": None, "proj_type": "linear", "pos_embed_type": "learnable",
}  # fmt: skip


def open_clip_shape(config: Config) -> Shape:
    """The towers that an `open_clip_config.json` describes: CLIP's, as open_clip trains them."""
    model = config.get("model_cfg")
    seen, read = (model.get(name) if isinstance(model, dict) else None for name in ("vision_cfg", "text_cfg"))
    if not isinstance(model, dict) or not isinstance(seen, dict) or not isinstance(read, dict):
        raise BadInput("open_clip_config.json names no model_cfg with a vision_cfg and a text_cfg")
    for name, plain in UNREAD.items():
        if any(part.get(name, plain) not in (plain, None) for part in (seen, read)):
            raise BadInput(f"open_clip models with {name}={seen.get(name) or read.get(name)} cannot be read")
    if read.get("pool_type", "argmax") not in ("argmax", "eos") or seen.get("pool_type", "tok") != "tok":
        raise BadInput("open_clip models that pool other than by class token and end of text cannot be read")
    if not isinstance(seen.get("layers"), int):
        raise BadInput("open_clip models whose picture tower is no vision transformer cannot be read")
    out, activation = _int(model, "embed_dim"), "quick_gelu" if model.get("quick_gelu") else "gelu"
    heads = _int(seen, "width") // _int(seen, "head_width", HEAD)
    picture = PictureTower(
        _open_blocks(seen, heads, activation), out, _int(seen, "patch_size"), _int(seen, "image_size", 224)
    )
    words = _int(read, "vocab_size", 49408), _int(read, "context_length", 77)
    return Shape("clip", picture, TextTower(_open_blocks(read, _int(read, "heads"), activation), out, *words))


def _open_blocks(part: Config, heads: int, activation: str) -> Blocks:
    width, ratio = _int(part, "width"), part.get("mlp_ratio", 4.0)
    hidden = int(width * ratio) if isinstance(ratio, int | float) else 4 * width
    return Blocks(width, hidden, _int(part, "layers"), heads, activation, eps=1e-5)
