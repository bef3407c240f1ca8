"""What else happens while a run trains: a progress bar, a line an epoch, or your own (loggers.py: other tools)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from matchlight.console import progress, say
from matchlight.training.contract import TrainingRun


class EpochLine(TypedDict):
    """One line of log.jsonl."""

    epoch: int
    phase: str
    loss: float
    seconds: float
    val: Mapping[str, object] | None
    resumed_from_step: NotRequired[int]


class Callback:
    """Hooks around the loop; each does nothing by default. They are called in every process of a run."""

    def begin(self, run: TrainingRun) -> None:
        """Before the first epoch that is left."""

    def step(self, run: TrainingRun, done: float) -> None:
        """After a step: `done` epochs so far, in fractions."""

    def epoch(self, run: TrainingRun, line: EpochLine, value: float) -> None:
        """After an epoch was logged and saved; `value` is what the best model is chosen by."""

    def end(self, run: TrainingRun) -> None:
        """After the last epoch, or when training stops early for whatever reason."""


class ProgressBar(Callback):
    """Epochs done and time left."""

    def __init__(self) -> None:
        self.bar = progress()

    def begin(self, run: TrainingRun) -> None:
        """Show it."""
        self.bar.start()
        self.task = self.bar.add_task("training", total=run.recipe.epochs, completed=run.epoch, note="")

    def step(self, run: TrainingRun, done: float) -> None:
        """Move it."""
        self.bar.update(self.task, completed=done)

    def end(self, run: TrainingRun) -> None:
        """Take it away."""
        self.bar.stop()


class EpochPrinter(Callback):
    """One line an epoch for the person at the terminal."""

    def epoch(self, run: TrainingRun, line: EpochLine, value: float) -> None:
        """Loss, validation and seconds."""
        if not run.chief:
            return
        name = "rsum" if run.recipe.protocol == "recall" else "map"
        validation = "" if line["val"] is None else f"  val {name} {value:.4g}"
        where = f"epoch {line['epoch'] + 1}/{run.recipe.epochs}"
        say(f"{where}  loss {line['loss']:.4g}{validation}  {line['seconds']:.1f} s")
