"""Compiled training steps: on a GPU, layers that are run again and again become few large kernels instead of many.

Most kernels of a vision transformer's layer in bf16 only move numbers; compiled it takes two thirds of the time. Equal
layers share one compilation, which takes seconds and is kept by PyTorch for the next run. `MATCHLIGHT_COMPILE=0` turns
it off.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from matchlight.console import say

Part = Callable[..., Any]  # a layer's forward, whatever its library has it take and give
PAYS = 600  # steps from which on compiling saves more time than it takes


class Compiles(nn.Module):
    """A network with parts that are worth compiling."""

    def compile_training(self) -> None:
        """Replace them by parts that are compiled where they train on a GPU."""
        raise NotImplementedError


class QuickInTraining:
    """A part of a module: compiled for steps of training on a GPU, plain everywhere else.

    Batches of training have few shapes; those of evaluation have many, each of which would be compiled anew.
    """

    failed = False  # of all parts: what cannot compile one cannot compile the next

    def __init__(self, module: nn.Module, plain: Part, *, dynamic: bool | None):
        self.module, self.plain, self.dynamic = module, plain, dynamic
        self.compiled: Part = torch.compile(plain, dynamic=dynamic)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As the part itself would."""
        if not self._pays(*given, *named.values()):
            return self.plain(*given, **named)
        try:
            return self.compiled(*given, **named)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as problem:
            QuickInTraining.failed = True
            say(f"steps are not compiled here ({str(problem).splitlines()[0][:120]}); training goes on without")
            return self.plain(*given, **named)

    def _pays(self, *given: Any) -> bool:
        on_gpu = any(isinstance(one, Tensor) and one.is_cuda for one in given)
        return on_gpu and self.module.training and torch.is_grad_enabled() and not QuickInTraining.failed

    def __deepcopy__(self, memo: dict[int, Any]) -> QuickInTraining:
        """A copy of the module is compiled for itself: the old compilation would run the old weights."""
        module, plain = copy.deepcopy(self.module, memo), copy.deepcopy(self.plain, memo)
        return QuickInTraining(module, plain, dynamic=self.dynamic)


def compile_training(network: nn.Module) -> None:
    """Everything in a network that is worth it."""
    for part in network.modules():
        if isinstance(part, Compiles):
            part.compile_training()


def is_wanted(device: torch.device, steps: int) -> bool:
    """Whether so many steps on this device are worth compiling for."""
    return device.type == "cuda" and steps >= PAYS and os.environ.get("MATCHLIGHT_COMPILE", "1") != "0"
