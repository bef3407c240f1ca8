"""Vision transformers as backbones: a class token and a grid of patches, several kinds of tuning.

A picture is read as `tokens`: "cells" (the patches, averaged in blocks to a grid of at most `cells`), "class" (the
token that stands for the whole picture), or "both", the class token first. Libraries differ in how a network is loaded
and run; what is done with its tokens and its layers is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from matchlight.core import BadInput
from matchlight.inputs.backbones.base import Backbone
from matchlight.inputs.compiled import Compiles, QuickInTraining
from matchlight.inputs.preprocessing import Size

Tokens = Literal["cells", "class", "both"]
TRANSFORMER_RATE = 1 / 15  # of a CNN's rate: with all of it, tuning loses what pretraining knew
FEWER = (8, 8)  # cells a picture unless more are asked for: a quarter of the memory of 16 x 16


@dataclass(frozen=True)
class TokenChoice:
    """Which tokens of a vision transformer are read."""

    tokens: Tokens = "both"
    cells: Size | None = None  # rows and columns that patches are averaged to, at most; None: the network's usual

    @staticmethod
    def written(tokens: Tokens, cells: str | None) -> TokenChoice:
        """As arguments say it: `cells=8x8`."""
        sides = re.fullmatch(r"(\d{1,4})x(\d{1,4})", cells or "")
        if cells is not None and not (sides and int(sides[1]) and int(sides[2])):
            raise BadInput(f"cells={cells}: rows x columns, such as 8x8")
        return TokenChoice(tokens, (int(sides[1]), int(sides[2])) if sides else None)


def known_tokens(name: object) -> Tokens:
    """A choice of tokens by its name."""
    for known in get_args(Tokens):
        if name == known:
            return known
    raise BadInput(f"tokens={name}: {', '.join(get_args(Tokens)[:-1])} or {get_args(Tokens)[-1]}")


EVERY_CELL = TokenChoice("cells", (4096, 4096))  # how transformers were read before there was a choice


@dataclass(frozen=True)
class Tuning:
    """How a backbone is trained along with what stands on it."""

    last: int | None = None  # only so many of its last layers learn; None: all
    drop_path: float = 0.0  # share of the pictures that skip a layer, growing from 0 to this with the depth
    checkpointing: bool = False  # activations are computed again in the backward pass: slower, far less memory


class TokenBackbone(Backbone, Compiles):
    """A library's network: a vision transformer (equal layers over patches, mostly with a class token) or a CNN."""

    tokens: Tokens = "both"
    cell_grid: Size | None = None  # rows and columns that patches are averaged to, at most; None: every patch
    has_class_token: bool = False  # a token that stands for the whole picture

    def is_transformer(self, *, class_token: bool) -> None:
        """What holds for a transformer unless it is said otherwise."""
        self.has_class_token, self.rate_share, self.cell_grid = class_token, TRANSFORMER_RATE, FEWER

    def states(self, pixels: Tensor) -> tuple[Tensor | None, Tensor]:
        """The class token (N, dim), where there is one, and the patches (N, rows, columns, dim)."""
        raise NotImplementedError

    def grid(self, pixels: Tensor) -> Tensor:
        """(N, cells, dim) of normalised pixels: the tokens that were chosen, the class token first."""
        whole, patches = self.states(pixels)
        patches = patches.float()  # a mean in half precision would lose what its patches have kept
        cells = self._averaged(patches).flatten(1, 2)
        if whole is None or self.tokens == "cells":
            return cells
        whole = whole.float()
        return whole[:, None] if self.tokens == "class" else torch.cat([whole[:, None], cells], 1)

    def _averaged(self, patches: Tensor) -> Tensor:
        if self.cell_grid is None:
            return patches
        size = min(self.cell_grid[0], patches.shape[1]), min(self.cell_grid[1], patches.shape[2])
        return F.adaptive_avg_pool2d(patches.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)

    @property
    def pooled_dim(self) -> int:
        """Twice the width where the class token stands beside the mean."""
        return self.dim * (2 if self.tokens == "both" and self.has_class_token else 1)

    def pool(self, grid: Tensor) -> Tensor:
        """(N, pooled_dim): the class token and the mean over the cells, side by side, or the one that was chosen."""
        if self.tokens == "both" and self.has_class_token:
            return torch.cat([grid[:, 0], grid[:, 1:].mean(1)], 1)
        return grid.mean(1)

    # ---- layers, for tuning ------------------------------------------------------------------------------------------

    def layers(self) -> tuple[str, nn.ModuleList | nn.Sequential]:
        """The equal layers, first to last, and what they are called together."""
        found = [(name, part) for name, part in self.named_modules() if _is_stack(part)]
        if not found:
            raise BadInput(f"backbone={self.name}: no stack of equal layers to tune; lite0 or a ViT would do")
        return max(found, key=lambda one: len(one[1]))

    def depths(self) -> dict[str, int]:
        """Each parameter's place: 0 before the first layer, 1 in the first, and one past the last after it."""
        name, stack = self.layers()
        inside = re.compile(rf"{re.escape(name)}\.(\d+)\.")
        place, out = 0, {}
        for parameter, _ in self.named_parameters():
            match = inside.match(parameter)
            if match:
                place = len(stack) + 1
            out[parameter] = int(match[1]) + 1 if match else place
        return out

    def prepare_tuning(self, tuning: Tuning) -> None:
        """Freeze what is not to learn, and have layers skipped or recomputed as asked."""
        stack = self.layers()[1]
        if tuning.last is not None and tuning.last < len(stack):
            depth = self.depths()
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(depth[name] > len(stack) - tuning.last)
        for place, layer in enumerate(stack if tuning.drop_path else ()):
            share = tuning.drop_path * place / max(1, len(stack) - 1)
            layer.register_forward_hook(partial(_skip_layer, share=share), with_kwargs=True)
        if tuning.checkpointing:
            for layer in stack:
                layer.forward = partial(_recomputed, layer.forward)

    def compile_training(self) -> None:
        """Its layers, where it is a stack of them that learns; pictures of training have one size."""
        if self.has_class_token and any(one.requires_grad for one in self.parameters()):
            for layer in self.layers()[1]:
                layer.forward = QuickInTraining(layer, layer.forward, dynamic=False)


def _is_stack(part: nn.Module) -> bool:
    kinds = {type(layer) for layer in part.children()}
    return isinstance(part, nn.ModuleList | nn.Sequential) and len(part) > 1 and len(kinds) == 1


LayerOut = Tensor | tuple[Tensor, ...]  # libraries' layers give their states alone or with more behind them


def _skip_layer(
    layer: nn.Module, given: tuple[Tensor, ...], named: dict[str, Tensor], out: LayerOut, *, share: float
) -> LayerOut:
    """What a layer adds is left out for some pictures and enlarged for the others, so that its mean stays."""
    if not (layer.training and share):
        return out
    before = given[0] if given else named["hidden_states"]
    after = out[0] if isinstance(out, tuple) else out
    kept = torch.rand(len(after), *(1,) * (after.dim() - 1), device=after.device) >= share
    mixed = before + (after - before) * kept / (1 - share)
    return (mixed, *out[1:]) if isinstance(out, tuple) else mixed


def _recomputed(forward: Callable[..., LayerOut], *given: Tensor, **named: Tensor) -> LayerOut:
    """A layer whose inner states are not kept for the backward pass."""
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    again: LayerOut = checkpoint(partial(forward, **named), *given, use_reentrant=False)
    return again
