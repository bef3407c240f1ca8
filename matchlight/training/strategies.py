"""How epochs are spent: plainly, after a warm-up, by whole pictures, by networks apart, or with unit centres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from matchlight.core import Batch, Ensemble, Matcher, Objective
from matchlight.inputs.batches import plan_pictures
from matchlight.parts.labelwise import Centres, Classified
from matchlight.training.contract import Phase, Strategy, TrainingRun


class Plain(Strategy):
    """Every epoch is one pass over all training rows with the network's own objective."""


class WarmUp(Strategy):
    """The first `epochs` train with a gentler objective (all negatives instead of the hardest), the rest plainly."""

    def __init__(self, objective: Objective, *, epochs: int, ramp: int | None = None):
        self.objective = objective
        self.epochs = epochs
        self.ramp = ramp  # the epoch whose loss grows linearly from 0, after a frozen backbone is released

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase, with the objective and the ramp of its epoch."""
        warm = epoch < self.epochs
        ramp = (lambda step, steps: step / steps) if epoch == self.ramp else None
        name = "warm-up" if warm else "train"
        return [Phase(rows=run.rows, objective=self.objective if warm else None, weight=ramp, name=name)]


def in_whole_pictures(run: TrainingRun, phase: Phase) -> Phase:
    """The same phase, its rows in batches of pictures with all their captions."""
    table = run.table
    order = partial(
        plan_pictures, phase.rows, run.pairs.picture, run.recipe.batch, even=table.pixels, blocks=table.blocks
    )
    return replace(phase, order=order, together=True)


class Together(WarmUp):
    """Pictures are drawn, not pairs: a picture comes into a batch with all its captions."""

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """As a warm-up's, in batches of whole pictures."""
        return [in_whole_pictures(run, phase) for phase in super().phases(run, epoch)]


class Apart(Strategy):
    """Networks that learn nothing from each other, each over all rows for its own epochs; scores are averaged."""

    def __init__(self, epochs: dict[str, int], *, warm: int = 0, gentle: Objective | None = None):
        self.networks = tuple(epochs)
        self.epochs = epochs
        self.warm = warm  # first epochs with the gentler objective
        self.gentle = gentle

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase a network that is not done yet."""
        objective = self.gentle if epoch < self.warm else None
        going = [name for name in self.networks if epoch < self.epochs[name]]
        return [Phase(rows=run.rows, network=name, objective=objective) for name in going]

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """All networks, averaged."""
        return Ensemble([networks[name] for name in self.networks])


class UnitCentres(Strategy):
    """Plain epochs; before each step the class centres of the shared head are brought back to unit length."""

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """The batch as it is, after the centres were scaled."""
        matcher = run.networks[phase.network].matcher
        assert isinstance(matcher, Classified) and isinstance(matcher.head, Centres)
        matcher.head.settle()
        return batch
