"""LoRA: a tower stays as it is, and each attention projection learns a small product of two matrices beside it.

Hu et al., ICLR 2022, arXiv:2106.09685; the layers are those of the library peft. A run keeps the small matrices alone,
beside one copy of the weights they belong to; `merged` adds them up, after which nothing tells that there were any.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor, nn

from matchlight.core import BadInput

TARGETS = r".*blocks\.\d+\.attention\.(query|key|value|mixed)"
ADAPTER = "lora_"  # part of the name of every weight that peft adds
BASE = ".base_layer."


class Adapted(Protocol):
    """What we use of a layer of peft's."""

    base_layer: nn.Linear

    def get_delta_weight(self, adapter: str) -> Tensor:
        """What the small matrices add to the weight."""


def adapt(tower: nn.Module, *, rank: int) -> None:
    """Put small matrices beside a tower's attention projections, and freeze all else of it."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise BadInput("tune=lora needs the package peft: pip install 'matchlight[lora]'") from None
    tower.requires_grad_(False)
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=TARGETS), tower)


def is_base(key: str) -> bool:
    """Whether a weight of an adapted tower is one that never changes."""
    return ".tower." in f".{key}" and ADAPTER not in key


def save_adapters_alone(module: nn.Module) -> None:
    """From now on what never changes is not part of a module's state, and not asked for when one is taken back."""
    module.register_state_dict_post_hook(_without_base)
    module.register_load_state_dict_post_hook(_base_may_miss)


def _without_base(module: nn.Module, state: dict[str, Tensor], prefix: str, metadata: object) -> None:
    for key in [key for key in state if key.startswith(prefix) and is_base(key)]:
        del state[key]


def _base_may_miss(module: nn.Module, keys: torch.nn.modules.module._IncompatibleKeys) -> None:
    keys.missing_keys[:] = [key for key in keys.missing_keys if not is_base(key)]


@torch.no_grad()
def merged(module: nn.Module) -> dict[str, Tensor]:
    """The whole state of a module as if it had been tuned without adapters."""
    state = {name: value.detach().clone() for name, value in _everything(module)}
    for name, part in module.named_modules():
        if hasattr(part, "base_layer"):
            layer = cast(Adapted, part)
            state[f"{name}.base_layer.weight"] += layer.get_delta_weight("default")
    return {name.replace(BASE, "."): value for name, value in state.items() if ADAPTER not in name}


def _everything(module: nn.Module) -> list[tuple[str, Tensor]]:
    kept = set(module.state_dict())
    buffers = [(name, value) for name, value in module.named_buffers() if name in kept]
    return [*((name, value.data) for name, value in module.named_parameters()), *buffers]
