"""Backbones: pixels in 0..255 -> a grid of vectors, whoever made the network: "lite0" (1, 2), "timm:NAME", "hf:NAME".

A backbone is one Module, used frozen (its features are extracted once and cached) or trained end to end. It does its
own normalising, so everything outside it speaks of plain pixels, and it always gives (N, cells, dim): tokens that stand
for no place in the picture (a class token, registers) are left out. Pooled features are the mean over the cells.

    base.py             what a backbone is: the class that ours and other people's are made of
    lite.py             EfficientNet-Lite;  lite_weights.py: its weights, found and checked
    lite_backbones.py   lite0, lite1, lite2
    timm_backbones.py   timm:NAME
    hub_backbones.py    hf:NAME
"""

from __future__ import annotations

from collections.abc import Callable

from matchlight import plugins
from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone, Size, as_size

__all__ = ["Backbone", "Size", "as_size", "backbone", "backbone_class", "is_backbone"]


def backbone(name: str, size: int | Size | None = None) -> Backbone:
    """A backbone by name: "lite0", "timm:NAME", a plug-in's; `size` is that of the pictures to come."""
    make: Callable[..., Backbone] = backbone_class(name)
    rest = name.partition(":")[2]
    made = make(rest) if rest else make()
    made.size = made.size if size is None else as_size(size)
    return made.eval()


def backbone_class(name: str) -> type[Backbone]:
    """Which class a name stands for; nothing is loaded yet."""
    kind, colon, rest = name.partition(":")
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
    return [f"{name}:{takes}" if takes else name for name, takes in known]
