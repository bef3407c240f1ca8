"""Backbones: pixels in 0..255 -> a grid of vectors, whoever made the network: "lite0", "tinyvit-5m", "hf:NAME".

A name of the catalogue of weights ("dinov2-small") stands for the folder they were fetched into.

A backbone is one Module, used frozen (its features are extracted once and cached) or trained end to end. It does its
own normalising, so everything outside it speaks of plain pixels, and it always gives (N, cells, dim). Vision
transformers may put their class token before the cells. Pooled features are the mean over the cells (and the class
token beside it).

    base.py             what a backbone is: the class that ours and other people's are made of
    vision_transformer.py  class token and cells; layers, frozen or tuned
    attention_products.py  attention in bfloat16 on a CPU by plain products
    lite.py             EfficientNet-Lite;  lite_weights.py: its weights, found and checked
    lite_backbones.py   lite0, lite1, lite2
    tiny_vit.py         TinyViT;  tiny_vit_backbone.py: tinyvit-5m, its weights found and loaded
    timm_backbones.py   timm:NAME
    hub_backbones.py    hf:NAME
    onnx_backbone.py    any of them, frozen, by ONNX Runtime on a CPU
"""

from __future__ import annotations

from collections.abc import Callable

from matchlight import plugins
from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone
from matchlight.inputs.backbones.vision_transformer import TokenBackbone, TokenChoice
from matchlight.inputs.preprocessing import Size, as_size
from matchlight.inputs.weights.ordinary_names import folder_of, is_ordinary, opened_as_folder, settled

__all__ = ["Backbone", "Size", "TokenChoice", "as_size", "backbone", "backbone_class", "is_backbone"]


def backbone(name: str, size: int | Size | None = None, *, choice: TokenChoice | None = None) -> Backbone:
    """A backbone by name: "lite0", "timm:NAME", a plug-in's; `size` is that of the pictures to come.

    `choice` is what a vision transformer gives: its class token, its patches averaged to so many rows and columns, or
    both. Other networks have cells only.
    """
    make: Callable[..., Backbone] = backbone_class(name)
    rest, fetched = name.partition(":")[2], folder_of(name, "picture")
    made = make(str(fetched)) if fetched else make(rest) if rest else make()
    if fetched:
        made.name = settled(name, "picture", asked="backbone")  # features do not depend on where the folder is
    made.size = made.size if size is None else as_size(size)
    if isinstance(made, TokenBackbone) and choice is not None:
        made.tokens, made.cell_grid = choice.tokens, choice.cells or made.cell_grid
    return made.eval()


def backbone_class(name: str) -> type[Backbone]:
    """Which class a name stands for; nothing is loaded yet."""
    kind, colon, rest = ("hf", ":", name) if is_ordinary(name, "picture") else name.partition(":")
    if kind in plugins.names("backbones"):
        cls = _checked(kind, plugins.load("backbones", kind))
        if bool(cls.takes) == bool(rest) == bool(colon):
            return cls
    raise BadInput(f"{name!r} is no backbone; known: {', '.join(_known())}")


def is_backbone(name: str) -> bool:
    """Whether a backbone goes by this name; what a library is asked for after the colon is not looked up."""
    try:
        return bool(backbone_class(name))
    except BadInput:
        return False


def _checked(name: str, value: object) -> type[Backbone]:
    if not (isinstance(value, type) and issubclass(value, Backbone)):
        raise BadInput(f"the plug-in {name!r} of matchlight.backbones is no Backbone class, but {value!r:.80}")
    return value


def _known() -> list[str]:
    known = [(name, getattr(value, "takes", "")) for name, value in plugins.working("backbones")]
    return [*(f"{name}:{takes}" if takes else name for name, takes in known), *opened_as_folder("picture")]
