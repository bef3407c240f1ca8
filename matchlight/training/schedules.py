"""Parameter groups and how their rates change: the papers' schedules, and a cycle of our own."""

from __future__ import annotations

import math

from matchlight.core import Group, Matcher, Objective, Rates, Schedule


def groups(matcher: Matcher, objective: Objective, *, rate: float, backbone: float, decay: float) -> list[Group]:
    """The backbone (where there is one) at a fraction of the rate, everything else at the rate."""
    slow = [p for name, p in matcher.named_parameters() if ".backbone." in name]
    rest = [p for name, p in matcher.named_parameters() if ".backbone." not in name] + list(objective.parameters())
    heads = Group(name="heads", params=rest, lr=rate, weight_decay=decay)
    return [heads] + ([Group(name="backbone", params=slow, lr=rate * backbone, weight_decay=decay)] if slow else [])


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
    return {"heads": factor, "backbone": 0.0 if epoch < frozen else factor}
