"""How epochs are spent: plainly, after a warm-up, by whole pictures, by networks apart, or with unit centres."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from matchlight.core import Batch, Ensemble, Matcher, Objective
from matchlight.inputs.batches import plan_pictures
from matchlight.parts.labelwise import Centres, Classified
from matchlight.training.contract import Phase, Strategy, TrainingRun


class Plain(Strategy):
    """Every epoch is one pass over all training rows with the network's own objective."""


def hardness(epoch: int, *, warm: int, harden: int) -> Callable[[int, int], float] | None:
    """The share of the hardest negative by (step, steps), from 0 to 1 over the `harden` epochs after the warm-up."""
    done = epoch - warm
    return (lambda step, steps: (done + step / steps) / harden) if 0 <= done < harden else None


class WarmUp(Strategy):
    """The first `epochs` train with a gentler objective (all negatives instead of the hardest), the rest plainly.

    Over the `harden` epochs that follow them, a hinge comes from all negatives to the hardest.
    """

    def __init__(self, objective: Objective, *, epochs: int, ramp: int | None = None, harden: int = 0):
        self.objective = objective
        self.epochs = epochs
        self.harden = harden
        self.ramp = ramp  # the epoch whose loss grows linearly from 0, after a frozen backbone is released

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase, with the objective, the ramp and the hardness of its epoch."""
        warm = epoch < self.epochs
        objective, harder = self.objective if warm else None, hardness(epoch, warm=self.epochs, harden=self.harden)
        ramp = (lambda step, steps: step / steps) if epoch == self.ramp else None
        name = "warm-up" if warm else "train"
        return [Phase(rows=run.rows, objective=objective, weight=ramp, hardness=harder, name=name)]


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

    def __init__(self, epochs: dict[str, int], *, warm: int = 0, gentle: Objective | None = None, harden: int = 0):
        self.networks = tuple(epochs)
        self.epochs = epochs
        self.warm = warm  # first epochs with the gentler objective
        self.gentle = gentle
        self.harden = harden  # epochs after those, over which a hinge comes to the hardest negative

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """One phase a network that is not done yet."""
        objective = self.gentle if epoch < self.warm else None
        harder = hardness(epoch, warm=self.warm, harden=self.harden)
        going = [name for name in self.networks if epoch < self.epochs[name]]
        return [Phase(rows=run.rows, network=name, objective=objective, hardness=harder) for name in going]

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
