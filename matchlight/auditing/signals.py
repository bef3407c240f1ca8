"""Stage one of an audit: all measurements of each pair by models and neighbours, gathered into `signals.npz`.

This is the part that takes time. It is resumable: quick models live in `work/`, one folder each, and finished ones are
not trained again. What reads the result (stage two) takes seconds and never looks at the truth either.

Per pair, `x` is the real pair's value and `x_wrong` the same for its manufactured wrong caption:

    history            (epochs, n) loss of the pair while quick models trained on it (decoys: on the wrong pair)
    own i2t t2i ...    gallery scores by the quick model that never saw the pair (gallery.py)
    text photo sibling lists of neighbours by that model's vectors (neighbours.py), and `free_...` without any model
    plain_...          gallery scores by canonical correlation between fixed vectors that never saw the pair
    plain_likely_...   its losses alone, by the likelihood of the pair rather than by a cosine
    other_...          better partners (better_partners.py)
    given_...          gallery scores by the cosine of vectors that the user brought, where both sides have one length
    run_...            the same by a run the user named, its history, and what it measured while it trained;
                       `run_trained_here` says which pairs it was trained on (older files: one answer for all)
    also0_... also1_   the same by further runs, none of them trained on these pairs
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.auditing.asked_runs import inputs_of_unseen, run_signals, training_record
from matchlight.auditing.cca_inputs import picture_kinds
from matchlight.auditing.fixed_vectors import fixed_vector_signals, own_view
from matchlight.auditing.folds import Folds, divide, near_duplicate_groups, usable
from matchlight.auditing.item_vectors import caption_names
from matchlight.auditing.neighbours import Signals
from matchlight.auditing.odd_captions import says_something
from matchlight.auditing.options import Options, as_seen, claim, fold_count, release, settings
from matchlight.auditing.quick_models import Plan, condensed, quick_settings, train_fold
from matchlight.auditing.spread_signals import spread_signals
from matchlight.cluster.jobs import Unfinished
from matchlight.console import progress, say
from matchlight.core import BadInput
from matchlight.devices import pick_device
from matchlight.inputs.given_vectors import GivenVectors, read_vectors
from matchlight.inputs.prepare import prepare
from matchlight.inputs.weights.ordinary_names import folder_of
from matchlight.pairs import BadPicture, Pairs
from matchlight.runs.folder import Run

FILE = "signals.npz"


def gather(run: Run | None, pairs: Pairs, folder: Path, options: Options) -> dict[str, np.ndarray]:
    """The signals of all usable pairs of a split, from the folder where they are there already."""
    options.check_spread(run)
    kept = folder / FILE
    vectors = None if options.vectors is None else read_vectors(options.vectors, pairs)
    if not kept.exists():
        picture_kinds(options.pictures, as_seen(pairs, vectors, options))  # what is missing is reported before anything
        for name in caption_names(options.captions):  # is written
            folder_of(name, "sentence")
    there, free = folder.exists(), claim(folder, settings(run, pairs, options, vectors))
    if kept.exists():
        signals = read(kept)
        _check_mended(signals["lost"], pairs, folder)
        return signals
    with files.locked(folder / "work", "auditing into it"):
        try:
            if options.workers is not None:
                files.write_npz(kept, spread_signals(pairs, folder / "work", options, options.workers))
            else:
                files.write_npz(kept, _gather(run, pairs, vectors, folder / "work", options))
        except Unfinished:
            raise
        except BadInput:
            if free:  # nothing was here before: what was refused must not stand in the way of what was meant
                release(folder, there=there)
            raise
    shutil.rmtree(folder / "work", ignore_errors=True)
    return read(kept)


def _check_mended(lost: np.ndarray, pairs: Pairs, folder: Path) -> None:
    """Pictures that could not be read when the signals were gathered, and can be now, have never been audited."""
    if pairs.pictures is None:
        return
    for place in sorted({int(pairs.picture[row]) for row in lost.tolist() if says_something(pairs.captions[row])}):
        try:
            pairs.pictures.open(place)
        except BadPicture:
            continue
        problem = f"picture {pairs.names[place]} can be read now, and could not when it was audited"
        raise BadInput(f"{folder}: {problem}; choose another -o to audit it")


def read(path: Path) -> dict[str, np.ndarray]:
    """What `gather` kept."""
    return files.read_npz(path, "`matchlight audit` writes it")


def _gather(
    run: Run | None, pairs: Pairs, vectors: GivenVectors | None, work: Path, options: Options
) -> dict[str, np.ndarray]:
    device = run.device if run is not None else pick_device(options.device)
    audited, seen = pairs.rows(options.split), as_seen(pairs, vectors, options)
    pool = _pool(seen, options.split)
    say(f"auditing {len(audited)} pairs of {options.split!r}")
    kinds = picture_kinds(options.pictures, seen)
    view, kinds = own_view(seen, kinds, quick=options.quick)
    inputs = prepare(pool, view, device=device)
    rows, lost = usable(pairs, audited, inputs.table.broken)
    folds = divide(pairs, rows, near_duplicate_groups(seen), count=fold_count(pairs, rows, options), seed=options.seed)
    given = quick_settings(inputs.sizes.pairs, device) | (options.overrides or {})
    lean = condensed(inputs, seed=options.seed) if options.quick else inputs
    plan = Plan(lean, folds, device, options.seed, given)
    signals = {"rows": rows, "fold": folds.fold, "decoy": folds.decoy, "lost": lost, "group": folds.group}
    signals |= {"wrong": np.searchsorted(rows, folds.wrong), "picture": pairs.picture[rows]}
    run_inputs = None if run is None else run.inputs(pairs)  # what runs cannot read is reported before the slow part
    more = [inputs_of_unseen(one, pairs, rows) for one in options.also]
    known = {} if run is None else training_record(run, pairs, rows)
    signals |= fixed_vector_signals(inputs.table, folds, kinds, vectors, options, device)
    if options.quick:
        signals |= _quick(plan, work, options)
    if run is not None and run_inputs is not None:
        known |= run_signals(run, run_inputs, plan)
    for number, (one, its_inputs) in enumerate(zip(options.also, more, strict=True)):
        signals |= {f"also{number}_{name}": value for name, value in run_signals(one, its_inputs, plan).items()}
    return signals | {f"run_{name}": value for name, value in known.items()}


def _pool(pairs: Pairs, split: str) -> Pairs:
    """What quick models may learn from: the split under audit, and the training split beside it."""
    learn = np.isin(pairs.splits, [split, "train"]) | (split == "all")
    return replace(pairs, splits=np.where(learn, "train", "other"))


def _quick(plan: Plan, work: Path, options: Options) -> Signals:
    """Train what is missing, then put the folds together."""
    many = options.models
    jobs = [(model, k) for model in range(many) for k in range(plan.folds.count)]
    with progress() as bar:
        task = bar.add_task("auditing", total=len(jobs), note="")
        for done, (model, k) in enumerate(jobs):
            train_fold(
                plan,
                work / f"model-{model}-{k}",
                k,
                seed=options.seed + 1000 * model + k,
                moved=lambda share, done=done: bar.update(task, completed=done + share),  # type: ignore[misc]
            )
            bar.update(task, completed=done + 1)
    models = [
        _over_all_folds(plan.folds, [work / f"model-{m}-{k}" for k in range(plan.folds.count)]) for m in range(many)
    ]
    return merged(models)


def _over_all_folds(folds: Folds, folders: list[Path]) -> Signals:
    """One model's folds as arrays over all rows; histories are the mean of the models that trained on a row."""
    parts = [read(folder / FILE) for folder in folders]
    signals: Signals = {}
    for name in parts[0]:
        if name == "history":
            with np.errstate(invalid="ignore"):
                stack = np.stack([part[name].astype(np.float32) for part in parts])
                seen = np.isfinite(stack).sum(0)
                signals[name] = (np.nansum(stack, 0) / np.where(seen, seen, np.nan)).astype(np.float16)
            continue
        whole = np.empty((len(folds.rows), *parts[0][name].shape[1:]), dtype=parts[0][name].dtype)
        for k, part in enumerate(parts):
            whole[folds.fold == k] = part[name]
        signals[name] = whole
    return signals


def merged(models: list[Signals]) -> Signals:
    """Several models as one: gallery scores and histories averaged, lists and proposals side by side."""
    first = models[0]
    if len(models) == 1:
        return first
    side_by_side = [name for name, value in first.items() if value.ndim == 2 and name != "history"]
    signals = {
        name: np.mean([model[name] for model in models], axis=0).astype(value.dtype) for name, value in first.items()
    }
    return signals | {name: np.concatenate([model[name] for model in models], 1) for name in side_by_side}
