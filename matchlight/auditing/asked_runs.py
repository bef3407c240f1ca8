"""What runs that the user named say of the pairs: gallery scores, neighbours, and what one kept while it trained.

One run may have been trained on these very pairs (`matchlight audit RUN`); what it kept of them is read from its
folder. Further runs (`--with RUN`), joint models above all, must have seen none of them: their scores of manufactured
mismatches then show what they are worth.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.auditing.gallery import (
    GALLERY,
    MEASURES,
    SET_GALLERY,
    GalleryQuery,
    gallery_of,
    is_dot_product,
    score_against_gallery,
)
from matchlight.auditing.neighbours import Signals
from matchlight.auditing.quick_models import Plan, neighbours_and_partners
from matchlight.core import BadInput
from matchlight.data.fingerprints import is_same_data
from matchlight.data.formats.safety import load_npy
from matchlight.inputs.prepare import Inputs
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.runs.seen import trained_on


def run_signals(run: Run, inputs: Inputs, plan: Plan) -> Signals:
    """Signals of a run: gallery scores of every pair, and neighbours where they are cheap."""
    folds, pairs = plan.folds, inputs.table.pairs
    size = GALLERY if is_dot_product(run.matcher) else SET_GALLERY
    gallery = gallery_of(pairs.picture, folds.rows, folds.rows[:0], size=size, seed=plan.seed)
    captions = np.concatenate([folds.rows, folds.wrong])
    query = GalleryQuery(np.tile(pairs.picture[folds.rows], 2), captions, gallery, folds.group)
    scores = score_against_gallery(run.matcher, inputs.table, query)
    signals: Signals = {}
    for name in MEASURES:
        signals[name], signals[f"{name}_wrong"] = np.split(scores[name], 2)
    if is_dot_product(run.matcher):
        signals |= neighbours_and_partners(
            run.matcher, replace(plan, inputs=inputs), np.arange(len(folds.rows)), seed=plan.seed
        )
    return signals


def inputs_of_unseen(run: Run, pairs: Pairs, rows: np.ndarray) -> Inputs:
    """The data as a further run reads them; one that was trained on some of the pairs is refused."""
    if trained := int(trained_on(run.folder, pairs, rows).sum()):
        instead = f"`matchlight audit {run.folder}` takes that into account"
        raise BadInput(f"--with {run.folder}: it was trained on {trained} of these {len(rows)} pairs; {instead}")
    return run.inputs(pairs)


def training_record(run: Run, pairs: Pairs, rows: np.ndarray) -> Signals:
    """Which of the rows the named run was trained on, and what its folder keeps of them.

    Its files are by row of the table it was trained on: of any other table they may not be read.
    """
    trained = trained_on(run.folder, pairs, rows)
    signals: Signals = {"trained_here": trained}
    if not trained.any() or not is_same_data(run.info.get("data"), pairs):
        return signals
    history = run.folder / "evidence.npy"
    if history.is_file():
        kept = load_npy(history)
        if kept.ndim != 2 or kept.shape[1] != len(pairs):
            raise BadInput(f"{history}: is not by the {len(pairs)} rows of the data; train the run again")
        signals["history"] = kept[:, rows]
    return signals | _measured(run.folder / "division.npz", rows)


def _measured(path: Path, rows: np.ndarray) -> Signals:
    """Losses that a run took of its pairs and of wrong ones of its own making; {} where it took none."""
    if not path.is_file():
        return {}
    kept = files.read_npz(path, "training writes it")
    sides = {"measured": "loss_", "measured_wrong": "null_"}
    if any(
        kept[name].ndim != 1 or len(kept[name]) <= rows.max() for name in kept if name.startswith(("loss_", "null_"))
    ):
        raise BadInput(f"{path}: is not by the rows of the data; train the run again")
    every = {to: [kept[name][rows] for name in kept if name.startswith(start)] for to, start in sides.items()}
    return {to: np.mean(values, axis=0) for to, values in every.items()} if all(every.values()) else {}
