"""How epochs are spent: plain, a gentler start (warm-up), whole pictures (together), networks side by side (apart)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from matchlight.core import Ensemble, Matcher, Objective, Phase
from matchlight.inputs.batches import plan_pictures


class Plain:
    """Every epoch is one pass over all training rows with the network's own objective."""

    networks: tuple[str, ...] = ("A",)

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """One phase."""
        return [Phase(rows=run.rows)]

    def result(self, run: Any) -> Matcher:
        """The one network."""
        return run.networks["A"].judged

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to take back."""


class WarmUp(Plain):
    """The first `epochs` train with a gentler objective (all negatives instead of the hardest), the rest plainly."""

    def __init__(self, objective: Objective, *, epochs: int, ramp: int | None = None):
        self.objective = objective
        self.epochs = epochs
        self.ramp = ramp  # the epoch whose loss grows linearly from 0, after a frozen backbone is released

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """One phase, with the objective and the ramp of its epoch."""
        warm = epoch < self.epochs
        ramp = (lambda step, steps: step / steps) if epoch == self.ramp else None
        name = "warm-up" if warm else "train"
        return [Phase(rows=run.rows, objective=self.objective if warm else None, weight=ramp, name=name)]


def in_whole_pictures(run: Any, phase: Phase) -> Phase:
    """The same phase, its rows in batches of pictures with all their captions."""
    order = partial(plan_pictures, phase.rows, run.pairs.picture, run.recipe.batch, even=run.table.pixels)
    return replace(phase, order=order, together=True)


class Together(WarmUp):
    """Pictures are drawn, not pairs: a picture comes into a batch with all its captions."""

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """As a warm-up's, in batches of whole pictures."""
        return [in_whole_pictures(run, phase) for phase in super().phases(run, epoch)]


class Apart(Plain):
    """Networks that learn nothing from each other, each over all rows for its own epochs; scores are averaged."""

    def __init__(self, epochs: dict[str, int], *, warm: int = 0, gentle: Objective | None = None):
        self.networks = tuple(epochs)
        self.epochs = epochs
        self.warm = warm  # first epochs with the gentler objective
        self.gentle = gentle

    def phases(self, run: Any, epoch: int) -> list[Phase]:
        """One phase a network that is not done yet."""
        objective = self.gentle if epoch < self.warm else None
        going = [name for name in self.networks if epoch < self.epochs[name]]
        return [Phase(rows=run.rows, network=name, objective=objective) for name in going]

    def result(self, run: Any) -> Matcher:
        """All networks, averaged."""
        return Ensemble([run.networks[name].judged for name in self.networks])
