"""The contract of training: what a recipe states, what a strategy may decide, and what both see of a run.

A method's file ends in a function that makes a `Recipe`: networks, losses, rates, and a `Strategy` that says how epochs
are spent. A strategy overrides the hooks it needs; all of them do nothing by default. It sees the run as a
`TrainingRun`, which the trainer implements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch

from matchlight.core import Batch, Items, Json, Matcher, Objective, Rates, Schedule, Seed
from matchlight.inputs.batches import Table
from matchlight.pairs import Pairs
from matchlight.training.checkpoints import State, Writer
from matchlight.training.network import Network, NetworkPlan

Select = Literal["best", "noisy", "last"]
Siblings = Literal["masked", "negatives"]
Companions = Callable[[np.ndarray, np.random.Generator], dict[str, np.ndarray]]
Order = Callable[[np.random.Generator], list[np.ndarray]]


@dataclass
class Phase:
    """One pass over some rows of the table by one network."""

    rows: np.ndarray  # rows of the whole table
    network: str = "A"
    objective: Objective | None = None  # None: the network's own
    companions: Companions | None = None  # more pairs to score beside a batch's rows
    order: Order | None = None  # None: shuffled, in batches
    weight: Callable[[int, int], float] | None = None  # (step, steps) -> factor on the loss, for ramps
    hardness: Callable[[int, int], float] | None = None  # (step, steps) -> what `batch.extra["hardness"]` holds
    name: str = "train"
    pictures: np.ndarray | None = None  # (C,) for every row of the table another picture than its own to learn it with
    together: bool = False  # `order` keeps a picture's captions together: it is read once for them, from pixels too


@dataclass
class Best:
    """The best validation so far."""

    value: float = float("-inf")
    epoch: int = -1
    report: Mapping[str, object] | None = None


class TrainingRun(Protocol):
    """What strategies and callbacks see of a run in training."""

    folder: Path
    recipe: Recipe
    table: Table
    pairs: Pairs
    rows: np.ndarray  # training rows of the whole table
    seed: int
    device: torch.device
    precision: str
    repeat: bool  # a picture is encoded once for each of its captions in a batch
    networks: dict[str, Network]
    epoch: int
    best: Best
    waited: int  # validations since the best one
    writer: Writer

    @property
    def chief(self) -> bool:
        """Whether this is the process that writes files and prints."""

    def fresh(self, name: str, *, seed: int) -> Network:
        """A new network that has taken no step."""

    def save(self) -> None:
        """Keep everything needed to go on from this very step."""

    def result(self) -> Matcher:
        """The model as the strategy would hand it over now."""


class Strategy:
    """How epochs are spent. Every hook has a default: one network, one pass over all rows an epoch."""

    networks: tuple[str, ...] = ("A",)

    def check(self, run: TrainingRun) -> None:
        """Raise `BadInput` for what can be refused before the run folder is made."""

    def begin_from(self, run: TrainingRun, source: Path) -> None:
        """Take over what the run in another folder, whose weights the networks have by now, knows of the data."""

    def phases(self, run: TrainingRun, epoch: int) -> list[Phase]:
        """The passes of an epoch, in order."""
        return [Phase(rows=run.rows)]

    def before_step(self, run: TrainingRun, phase: Phase, batch: Batch) -> Batch:
        """The batch with whatever the objective needs more; items are as they are, before any augmentation."""
        return batch

    def assemble(self, networks: Mapping[str, Matcher]) -> Matcher:
        """The model that is handed over, from a matcher a network."""
        return networks["A"]

    def result(self, run: TrainingRun) -> Matcher:
        """The model that is evaluated and kept: the networks' averaged copies where they have one."""
        return self.assemble({name: run.networks[name].evaluated for name in self.networks})

    def finish(self, run: TrainingRun) -> None:
        """After the last epoch: what the run leaves beside its model."""

    def state_dict(self) -> State:
        """What a resumed run needs of the strategy: part of every checkpoint."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Take it back."""


def constant(epoch: int, step: int, steps: int) -> Rates:
    """The same rate from the first step to the last."""
    return 1.0


@dataclass(kw_only=True)
class Recipe(NetworkPlan):
    """All that training a method takes."""

    strategy: Strategy
    epochs: int
    batch: int
    schedule: Schedule = constant
    select: str = "best"  # by validation | "noisy": by held-out training rows as they are | "last"
    validate_every: int = 1  # epochs
    validate_loss: bool = False  # log the network's own loss on the rows that are held out as well
    patience: int = 0  # validations without a gain before stopping; 0 = never stop early
    siblings: str = "masked"  # captions of one picture inside a batch
    protocol: Literal["recall", "labels"] = "recall"  # what validation measures: rsum | MAP
    augment: Callable[[str, Items, Seed], Items] | None = None  # (side, items, seed), training only
    notes: dict[str, Json] = field(default_factory=dict)  # written into recipe.json
