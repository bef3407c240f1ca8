"""Parameter groups and how their rates change: the papers' schedules, and a cycle of our own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from matchlight.core import Group, Matcher, Objective, Rates, Schedule
from matchlight.inputs.backbones import Backbone
from matchlight.inputs.backbones.vision_transformer import TokenBackbone


@dataclass(frozen=True)
class BackboneRates:
    """How fast a backbone learns beside the rest."""

    share: float  # of the rate, for a CNN; other kinds bear a share of this: `Backbone.rate_share`
    layer_decay: float = 1.0  # each layer's rate as a share of the layer behind it


def groups(
    matcher: Matcher, objective: Objective, *, rate: float, backbone: BackboneRates, decay: float, reader: float = 1.0
) -> list[Group]:
    """The backbone and the sentence encoder (where they learn) at a fraction of the rate, everything else at it."""
    named = [(name, p) for name, p in matcher.named_parameters() if ".backbone." not in name]
    rest = [p for name, p in named if ".reader." not in name] + list(objective.parameters())
    heads = Group(name="heads", params=rest, lr=rate, weight_decay=decay)
    read = [p for name, p in named if ".reader." in name and p.requires_grad]
    words = [Group(name="reader", params=read, lr=rate * reader, weight_decay=decay)] if read else []
    return [heads, *backbone_groups(matcher, rate, backbone, decay=decay), *words]


def backbone_groups(matcher: Matcher, rate: float, backbone: BackboneRates, *, decay: float) -> list[Group]:
    """The backbones' parameters that learn, at the rate their kind bears, each layer slower than the one behind it."""
    by_rate: dict[float, list[nn.Parameter]] = {}
    for network in (part for part in matcher.modules() if isinstance(part, Backbone)):
        depth = network.depths() if isinstance(network, TokenBackbone) and backbone.layer_decay < 1 else {}
        last = max(depth.values(), default=0)
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                behind = last - depth.get(name, last)
                own = rate * backbone.share * network.rate_share * backbone.layer_decay**behind
                by_rate.setdefault(own, []).append(parameter)
    return [Group(name="backbone", params=some, lr=own, weight_decay=decay) for own, some in by_rate.items()]


def staircase(epoch: int, step: int, steps: int, *, every: int) -> float:
    """A tenth of the rate again after each `every` epochs."""
    return 0.1 ** (epoch // every)


def step_down(epoch: int, step: int, steps: int, *, at: int) -> float:
    """A tenth of the rate, once, from epoch `at` on."""
    return 0.1 if epoch >= at else 1.0


def half_cosine(epoch: int, step: int, steps: int, *, epochs: int) -> float:
    """From the full rate down to nothing along half a cosine, step by step."""
    return (1 + math.cos(math.pi * (epoch * steps + step) / max(1, epochs * steps))) / 2


def one_cycle(epoch: int, step: int, steps: int, *, epochs: int, rise: float = 0.2, start: float = 0.04) -> float:
    """Up along a cosine during the first part of training, then down to nothing."""
    done = (epoch * steps + step) / max(1, epochs * steps)
    if done < rise:
        return start + (1 - start) * (1 - math.cos(math.pi * done / rise)) / 2
    return (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


def cosine(epoch: int, step: int, steps: int, *, epochs: int) -> float:
    """Down to nothing along half a cosine, an epoch late: MRL's code steps its schedule after each epoch's end."""
    return (1 + math.cos(math.pi * max(0, epoch - 1) / max(1, epochs))) / 2


def released(epoch: int, step: int, steps: int, *, rates: Schedule, frozen: int) -> Rates:
    """The backbone waits `frozen` epochs until the heads know what to ask of it."""
    factor = rates(epoch, step, steps)
    assert isinstance(factor, float)
    return {"heads": factor, "reader": factor, "backbone": 0.0 if epoch < frozen else factor}
