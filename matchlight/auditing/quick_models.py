"""Quick models: a small dual encoder, a few epochs on all folds but one, with a loss that wrong pairs influence little.

Each is a run folder of its own under the audit's `work`, so that an audit that was killed goes on where it stopped.
After its later epochs the model scores the fold it never saw; scores are averaged over these epochs, which costs little
and makes them much steadier. What it leaves is `signals.npz` in its folder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from matchlight import files
from matchlight.auditing.better_partners import better_partners
from matchlight.auditing.folds import Folds
from matchlight.auditing.gallery import GALLERY, MEASURES, Encoded, GalleryQuery, gallery_of, score_against_gallery
from matchlight.auditing.neighbours import AuditedRows, Signals, Space, neighbour_signals
from matchlight.core import IMAGE, TEXT, Matcher
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.devices import pick_precision
from matchlight.inputs.batches import seeded
from matchlight.inputs.prepare import Inputs
from matchlight.inputs.text import Captions
from matchlight.training.arguments import Value
from matchlight.training.callbacks import Callback, EpochLine
from matchlight.training.contract import Recipe, TrainingRun
from matchlight.training.registry import find, settings_of
from matchlight.training.trainer import Trainer

LARGE = {"epochs": 10, "batch": 256}
SMALL = {"dim": 192, "hidden": 128, "word_dim": 128, "batch": 128, "epochs": 8}
STEPS = 320  # the least a small set is trained
MOST_STEPS = {"cpu": 1500, "cuda": 20000}
HELD_OUT_SCORES = 4  # times that the held-out fold is scored
SAMPLE = 500  # pictures that the principal components are fitted on
DIRECTIONS = 256  # a CPU reads pictures through so many numbers a cell


@dataclass(frozen=True)
class Plan:
    """What every quick model of an audit shares."""

    inputs: Inputs
    folds: Folds
    device: torch.device
    seed: int
    settings: dict[str, Value]  # arguments of the recipe

    @property
    def recipe(self) -> Recipe:
        """Built anew for every model."""
        return find("vse_infty").build(self.inputs.sizes, **self.settings)


def quick_settings(rows: int, device: torch.device) -> dict[str, Value]:
    """Sizes for the machine, epochs for the data: few passes over much, more over little."""
    small = device.type == "cpu" or rows < 2000
    base = dict(SMALL if small else LARGE)
    steps = max(1, -(-rows // base["batch"]))
    base["epochs"] = int(
        min(max(base["epochs"], STEPS // steps), max(4, MOST_STEPS.get(device.type, 1500) // steps), 40)
    )
    named: dict[str, Value] = {"preset": "dual", "loss": "gce", "select": "last", "validate_every": 1000, **base}
    return settings_of(find("vse_infty"), named, pairs=rows, device=device.type)[0]


def epochs_scored(epochs: int) -> list[int]:
    """Epochs of the second half, at most a few of them, the last among them."""
    return sorted({round(end) for end in np.linspace(epochs // 2 + 1, epochs, HELD_OUT_SCORES)})


def condensed(inputs: Inputs, *, seed: int) -> Inputs:
    """The training pictures as principal components of their features: a fifth of the work for a CPU."""
    table = inputs.table
    pictures = table.pairs.pictures_of("train")
    if table.device.type != "cpu" or len(table.images.shape) != 3 or inputs.sizes.image_dim <= 2 * DIRECTIONS:
        return inputs
    from sklearn.decomposition import PCA

    rng = seeded(seed, 53)
    sample = table.images.gather(np.sort(rng.choice(pictures, min(SAMPLE, len(pictures)), replace=False)))
    cells = sample.reshape(-1, sample.shape[-1]).astype(np.float32)
    cells = cells[rng.permutation(len(cells))[: 20 * SAMPLE]]
    pca = PCA(min(DIRECTIONS, len(cells)), svd_solver="randomized", random_state=seed).fit(cells)
    onto = (pca.components_ / np.sqrt(pca.explained_variance_[0])).T.astype(np.float32)
    small = np.zeros((*table.images.shape[:2], onto.shape[1]), dtype=np.float16)
    for start in range(0, len(pictures), 256):
        some = pictures[start : start + 256]
        small[some] = (table.images.gather(some) - pca.mean_.astype(np.float32)) @ onto
    lean = copy.copy(table)
    lean.images = ArrayFeatures(small)
    return replace(inputs, table=lean, sizes=replace(inputs.sizes, image_dim=onto.shape[1]))


class ScoreHeldOut(Callback):
    """Reports to the audit's progress bar and scores the fold that the model never saw as it goes."""

    def __init__(self, plan: Plan, k: int, moved: Callable[[float], None]):
        self.plan, self.k, self.moved = plan, k, moved

    def begin(self, run: TrainingRun) -> None:
        """A run that was killed right after an epoch has not scored its fold then."""
        _score_held_out(run, self.plan, self.k)

    def step(self, run: TrainingRun, done: float) -> None:
        """The share of the epochs that is done."""
        self.moved(done / run.recipe.epochs)

    def epoch(self, run: TrainingRun, line: EpochLine, value: float) -> None:
        """Score the fold."""
        _score_held_out(run, self.plan, self.k)


def train_fold(plan: Plan, folder: Path, k: int, *, seed: int, moved: Callable[[float], None]) -> None:
    """Train the model of one fold (or go on with it) and leave its signals."""
    kept = folder / "signals.npz"
    if kept.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    inputs = _without_fold(plan.inputs, plan.folds, k)
    trainer = Trainer(
        folder,
        plan.recipe,
        inputs,
        seed=seed,
        device=plan.device,
        precision=pick_precision("auto", plan.device),
        callbacks=[ScoreHeldOut(plan, k, moved)],
    )
    files.write_json(folder / "recipe.json", {"name": "vse_infty", "arguments": plan.settings, "fold": k})
    trainer.resume()
    trainer.fit()
    _write_signals(trainer, plan, k, kept, seed=seed)


def _without_fold(inputs: Inputs, folds: Folds, k: int) -> Inputs:
    """The data with one fold and its near-duplicates held out, and the decoys' captions in their wrong places."""
    pairs = inputs.table.pairs
    outside = np.isin(folds.group, folds.group[pairs.picture[folds.rows[folds.fold == k]]])
    order = np.arange(len(pairs))
    order[folds.rows[folds.decoy]] = folds.wrong[folds.decoy]
    table = copy.copy(inputs.table)
    table.pairs = replace(pairs, splits=np.where(outside, "held", pairs.splits))
    table.captions = _reordered(inputs.table.captions, order)
    return replace(inputs, table=table)


def _reordered(captions: Captions | None, order: np.ndarray) -> Captions:
    """The same captions in another order."""
    assert captions is not None
    lengths = captions.lengths[order]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.repeat(captions.offsets[order] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Captions(captions.flat[flat], offsets)


def _held_out(plan: Plan, k: int) -> GalleryQuery:
    """The fold's real pairs, then its manufactured ones, against a gallery of the fold."""
    folds, picture = plan.folds, plan.inputs.table.pairs.picture
    inside = folds.fold == k
    rows, wrong = folds.rows[inside], folds.wrong[inside]
    gallery = gallery_of(picture, rows, folds.rows[~inside], size=GALLERY, seed=plan.seed)
    return GalleryQuery(np.tile(picture[rows], 2), np.concatenate([rows, wrong]), gallery, folds.group)


def _score_held_out(run: TrainingRun, plan: Plan, k: int) -> None:
    """After some epochs of the second half: the fold's gallery scores, kept as a file."""
    path = run.folder / f"held-{run.epoch:03d}.npy"
    if run.epoch not in epochs_scored(run.recipe.epochs) or path.exists():
        return
    scores = score_against_gallery(run.result(), plan.inputs.table, _held_out(plan, k))
    files.write_array(path, np.stack([scores[name] for name in MEASURES]))


def _write_signals(run: Trainer, plan: Plan, k: int, path: Path, *, seed: int) -> None:
    """All signals of this model, in one file."""
    folds = plan.folds
    inside = np.flatnonzero(folds.fold == k)
    held = np.mean([np.load(file, allow_pickle=False) for file in sorted(run.folder.glob("held-*.npy"))], axis=0)
    signals: Signals = {}
    for number, name in enumerate(MEASURES):
        signals[name], signals[f"{name}_wrong"] = np.split(held[number].astype(np.float32), 2)
    signals |= neighbours_and_partners(run.result(), plan, inside, seed=seed)
    signals["history"] = np.stack(run.history)[:, folds.rows].astype(np.float16)
    files.write_npz(path, signals)


def neighbours_and_partners(matcher: Matcher, plan: Plan, inside: np.ndarray, *, seed: int) -> Signals:
    """Neighbours, siblings and better partners of some rows, by this model's vectors."""
    folds, pairs = plan.folds, plan.inputs.table.pairs
    pictures, picture = np.unique(pairs.picture[folds.rows], return_inverse=True)
    audited = AuditedRows(picture, folds.group[pictures], np.searchsorted(folds.rows, folds.wrong))
    images = Encoded(matcher, plan.inputs.table, IMAGE, pictures).vectors
    texts = Encoded(matcher, plan.inputs.table, TEXT, folds.rows).vectors
    signals = neighbour_signals(Space(images, texts), audited, inside, seed=seed)
    return signals | better_partners(images, texts, audited, inside)
