"""Curves for other tools while a run trains: TensorBoard, Weights & Biases, MLflow, through one callback.

    train("ncr", pairs, log="tensorboard")         # or --log wandb|mlflow|tensorboard, which may be repeated

Each tool is two functions, `log` and `close`. Nothing is imported, and nothing leaves the machine, unless it is asked
for: MLflow writes into the run's folder unless MLFLOW_TRACKING_URI names a server, W&B obeys WANDB_MODE=offline.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from matchlight import files
from matchlight.core import BadInput, Json
from matchlight.training.callbacks import Callback, EpochLine
from matchlight.training.contract import TrainingRun

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT = "matchlight"
Settings = Mapping[str, Json]


class Sink(Protocol):
    """Where numbers go."""

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """The numbers of one epoch, counted from 0."""

    def close(self) -> None:
        """Nothing more comes."""


class TensorBoard:
    """Curves in the run folder's `tensorboard/`."""

    def __init__(self, folder: Path, settings: Settings):
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(folder / "tensorboard"))

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """One curve a number."""
        for name, value in numbers.items():
            self.board.add_scalar(name, value, epoch)

    def close(self) -> None:
        """To the disk."""
        self.board.close()


class WandB:
    """A run of Weights & Biases; one that goes on after a stop is the same run there."""

    def __init__(self, folder: Path, settings: Settings):
        import wandb

        same = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()
        self.run = wandb.init(
            project=PROJECT, name=folder.name, id=same, resume="allow", dir=folder, config=dict(settings)
        )

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """One step an epoch."""
        self.run.log(dict(numbers), step=epoch)

    def close(self) -> None:
        """Wait until all is written or sent."""
        self.run.finish()


class MLflow:
    """A run of MLflow, in the server of MLFLOW_TRACKING_URI or in the run folder's `mlruns/`."""

    def __init__(self, folder: Path, settings: Settings):
        import os

        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask before they write plain files
        from mlflow import MlflowClient

        where = os.environ.get("MLFLOW_TRACKING_URI") or (folder.resolve() / "mlruns").as_uri()
        self.client = MlflowClient(tracking_uri=where)
        known = self.client.get_experiment_by_name(PROJECT)
        experiment = self.client.create_experiment(PROJECT) if known is None else known.experiment_id
        self.id = self.client.create_run(experiment, run_name=folder.name).info.run_id
        for name, value in settings.items():
            self.client.log_param(self.id, name, value)

    def log(self, numbers: Mapping[str, float], epoch: int) -> None:
        """One step an epoch."""
        for name, value in numbers.items():
            self.client.log_metric(self.id, name.replace("/", "."), value, step=epoch)  # a slash would be a folder

    def close(self) -> None:
        """The run has ended."""
        self.client.set_terminated(self.id)


SINKS: dict[str, tuple[str, Callable[[Path, Settings], Sink]]] = {  # the package each needs, and what opens it
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "mlflow": ("mlflow", MLflow),
}


def loggers(names: str | Sequence[str]) -> list[Callback]:
    """The callbacks of these tools, each once; one that is not known or not installed is one clear line."""
    asked = dict.fromkeys([names] if isinstance(names, str) else names)
    for name in asked:
        if name not in SINKS:
            raise BadInput(f"--log {name}: no logger of that name; {', '.join(SINKS)}")
        if find_spec(SINKS[name][0]) is None:
            extra = "logs" if name == "tensorboard" else name
            raise BadInput(f"--log {name} needs one more package: pip install 'matchlight[{extra}]'")
    return [Curves(SINKS[name][1]) for name in asked]


class Curves(Callback):
    """Loss, seconds and everything validation measured, epoch by epoch, into one tool."""

    def __init__(self, opened: Callable[[Path, Settings], Sink]) -> None:
        self.opened = opened
        self.sink: Sink | None = None

    def begin(self, run: TrainingRun) -> None:
        """Open it in the process that writes, with the run's settings."""
        if not run.chief:
            return
        recipe = run.folder / "recipe.json"
        info = files.read_json(recipe, "a run's recipe") if recipe.is_file() else {}
        named = {"method": info.get("name"), "seed": info.get("seed"), **info.get("arguments", {})}
        self.sink = self.opened(run.folder, named)

    def epoch(self, run: TrainingRun, line: EpochLine, value: float) -> None:
        """What log.jsonl says too."""
        if self.sink is None:
            return
        numbers = {"loss": line["loss"], "seconds": line["seconds"]}
        if line["val"] is not None:
            numbers |= {"val": value, **flat(line["val"], "val")}
        self.sink.log({name: one for name, one in numbers.items() if math.isfinite(one)}, line["epoch"])

    def end(self, run: TrainingRun) -> None:
        """Close it."""
        if self.sink is not None:
            self.sink.close()


def flat(report: Mapping[str, object], above: str) -> dict[str, float]:
    """The numbers of a report by their paths: val/i2t/r1."""
    found: dict[str, float] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}/{name}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{above}/{name}"] = float(value)
    return found
