"""Recorded numbers of the authors' code, read the way a user would: import the checkpoint, read the folder, score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from matchlight.core import Batch, Objective, Scores
from matchlight.inputs.batches import collate
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.importing import import_checkpoints
from matchlight.training.network import score_batch, whole_batch


def imported(folder: Path, method: str, out: Path) -> tuple[Run, Pairs, dict[str, np.ndarray]]:
    """An imported run, its data, and what the authors' code gave."""
    run = import_checkpoints([folder / "checkpoint.pth.tar"], method, folder / "data" / "vocab.json", out)
    return run, Pairs.read(folder / "data"), dict(np.load(folder / "expected.npz"))


@torch.no_grad()
def recorded_batch(run: Run, pairs: Pairs, expected: dict[str, np.ndarray]) -> tuple[Batch, Scores, dict]:
    """The authors' batch (one picture a pair, repeated where it repeats) scored by our model in eval mode."""
    inputs = run.inputs(pairs)
    rows = expected["batch_captions"].astype(np.int64)
    assert (pairs.picture[rows] == expected["batch_images"]).all()
    batch = collate(inputs.table, rows, repeat=True)
    embeddings, batch = whole_batch(run.matcher.eval(), batch)
    return batch, score_batch(run.matcher, embeddings, batch, matrix=True), embeddings


def loss_value(objective: Objective, batch: Batch, scores: Scores, embeddings: dict) -> float:
    return float(objective.total(objective(scores, embeddings, batch)))
