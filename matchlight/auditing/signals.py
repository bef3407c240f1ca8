"""Stage one of an audit: all measurements of each pair by models and neighbours, gathered into `signals.npz`.

This is the part that takes time. It is resumable: quick models live in `work/`, one folder each, and finished ones are
not trained again. What reads the result (stage two) takes seconds and never looks at the truth either.

Per pair, `x` is the real pair's value and `x_wrong` the same for its manufactured wrong caption:

    history            (epochs, n) loss of the pair while quick models trained on it (decoys: on the wrong pair)
    own i2t t2i ...    gallery scores by the quick model that never saw the pair (gallery.py)
    text photo sibling lists of neighbours by that model's vectors (neighbours.py), and `free_...` without any model
    plain_...          gallery scores by canonical correlation between fixed vectors that never saw the pair
    other_...          better partners (better_partners.py)
    run_...            the same by a run the user named, its history, and what it measured while it trained;
                       `run_trained_here` says which pairs it was trained on (older files: one answer for all)
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight import files
from matchlight.auditing.canonical_correlation import cross_validated_signals
from matchlight.auditing.cca_inputs import caption_features, picture_features, picture_kinds, picture_names
from matchlight.auditing.folds import Folds, divide, near_duplicate_groups
from matchlight.auditing.gallery import (
    GALLERY,
    MEASURES,
    SET_GALLERY,
    GalleryQuery,
    gallery_of,
    is_dot_product,
    score_against_gallery,
)
from matchlight.auditing.item_vectors import picture_vectors, sentence_vectors, tfidf_vectors
from matchlight.auditing.neighbours import AuditedRows, Signals, Space, neighbour_signals
from matchlight.auditing.odd_captions import says_something
from matchlight.auditing.quick_models import Plan, condensed, neighbours_and_partners, quick_settings, train_fold
from matchlight.console import progress, say
from matchlight.core import BadInput, Json
from matchlight.data.content import content_mark
from matchlight.data.fingerprints import CONTENT, differing, fingerprint, is_same_data
from matchlight.data.formats.safety import load_npy
from matchlight.devices import pick_device
from matchlight.inputs.batches import Table
from matchlight.inputs.prepare import Inputs, prepare, view_of
from matchlight.inputs.weights.ordinary_names import folder_of
from matchlight.pairs import BadPicture, Pairs
from matchlight.runs.folder import Run
from matchlight.runs.seen import trained_on, weights_mark
from matchlight.training.arguments import Value

FILE = "signals.npz"
MANY = 400  # pictures that are enough for ten folds


@dataclass(frozen=True)
class Options:
    """How much work an audit may do."""

    split: str = "train"
    quick: bool = False  # train quick models as well: twenty times the work, for little or nothing
    folds: int | None = None  # each scored by models that did not see it; None: 5, and 10 without quick models
    models: int = 1  # quick models a fold, averaged
    seed: int = 0
    device: str = "auto"
    overrides: dict[str, Value] | None = None  # arguments of the quick recipe
    captions: str = "auto"  # compared by an encoder (minilm, mpnet, gte-small) or words; auto: minilm if installed
    pictures: str = "auto"  # vectors for canonical correlation: own, or backbones joined by "+"; auto: own and lite0-2


class OptionArguments(TypedDict, total=False):
    """The same as keyword arguments of `audit`, which takes the split by itself."""

    quick: bool
    folds: int | None
    models: int
    seed: int
    device: str
    overrides: dict[str, Value] | None
    captions: str
    pictures: str


def gather(run: Run | None, pairs: Pairs, folder: Path, options: Options) -> dict[str, np.ndarray]:
    """The signals of all usable pairs of a split, from the folder where they are there already."""
    kept = folder / FILE
    if not kept.exists():
        picture_kinds(options.pictures, pairs)  # what is missing is reported before anything is written
        folder_of(options.captions, "sentence")
    there, free = folder.exists(), claim(folder, settings(run, pairs, options))
    if kept.exists():
        signals = read(kept)
        _check_mended(signals["lost"], pairs, folder)
        return signals
    with files.locked(folder / "work", "auditing into it"):
        try:
            files.write_npz(kept, _gather(run, pairs, folder / "work", options))
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


def fold_count(pairs: Pairs, rows: np.ndarray, options: Options) -> int:
    """Five; ten where a fit takes seconds and pictures are many enough: each then learns from nine tenths of them."""
    many = len(np.unique(pairs.picture[rows])) >= MANY
    return options.folds or (10 if many and not options.quick else 5)


def settings(run: Run | None, pairs: Pairs, options: Options) -> dict[str, Json]:
    """What an audit's folder belongs to."""
    overrides: dict[str, Json] | None = None if options.overrides is None else {**options.overrides}
    quick: dict[str, Json] = {"models": options.models, "overrides": overrides}
    return {
        "data": fingerprint(pairs),
        CONTENT: content_mark(pairs),
        "split": options.split,
        "seed": options.seed,
        "folds": options.folds,
        "captions": options.captions,
        "pictures": "+".join(picture_names(options.pictures)),
        "quick": quick if options.quick else None,
        "run": None if run is None else _named(run),
    }


def _named(run: Run) -> dict[str, Json]:
    """Which run is used; two of the same method, data and seed may still differ in epochs, or be trained further."""
    known = {name: run.info.get(name) for name in ("name", "data", "seed", "arguments")}
    return known | {"model": weights_mark(run.folder)}


def claim(folder: Path, settings: dict[str, Json]) -> bool:
    """A folder holds one audit: with other data or settings its finished parts must not be taken for this one's.

    True where the folder was free.
    """
    path = folder / "settings.json"
    if path.exists():
        old = files.read_json(path, "an audit's settings")
        if not isinstance(old, dict):
            raise BadInput(f"{path}: no audit's settings; choose another -o")
        if differs := differing(old, settings):
            raise BadInput(f"{folder} holds another audit ({', '.join(differs)} differ); choose another -o")
        return False
    if not files.is_free(folder):
        raise BadInput(f"{folder}: not empty and not an audit; choose another -o")
    try:
        files.write_json(path, settings)
    except OSError as problem:
        raise BadInput(f"{folder}: cannot write there: {problem.strerror}") from None
    return True


def release(folder: Path, *, there: bool) -> None:
    """Take a claim back, and the folder with it unless it was `there` before."""
    shutil.rmtree(folder / "work", ignore_errors=True)
    (folder / "settings.json").unlink(missing_ok=True)
    if not there and not any(folder.iterdir()):
        folder.rmdir()


def _gather(run: Run | None, pairs: Pairs, work: Path, options: Options) -> dict[str, np.ndarray]:
    device = run.device if run is not None else pick_device(options.device)
    audited = pairs.rows(options.split)
    pool = _pool(pairs, options.split)
    say(f"auditing {len(audited)} pairs of {options.split!r}")
    view = view_of({}, pooled=False, pairs=pairs)
    inputs = prepare(pool, view, device=device)
    rows, lost = _usable(pairs, audited, inputs.table.broken)
    folds = divide(pairs, rows, near_duplicate_groups(pairs), count=fold_count(pairs, rows, options), seed=options.seed)
    given = quick_settings(inputs.sizes.pairs, device) | (options.overrides or {})
    lean = condensed(inputs, seed=options.seed) if options.quick else inputs
    plan = Plan(lean, folds, device, options.seed, given)
    signals = {"rows": rows, "fold": folds.fold, "decoy": folds.decoy, "lost": lost, "group": folds.group}
    signals |= {"wrong": np.searchsorted(rows, folds.wrong), "picture": pairs.picture[rows]}
    run_inputs = None if run is None else run.inputs(pairs)  # what the run cannot read is reported before the slow part
    known = {} if run is None else _training_record(run, pairs, rows)
    signals |= _fixed_vector_signals(plan, inputs.table, work, options)
    if options.quick:
        signals |= _quick(plan, work, options)
    if run is not None and run_inputs is not None:
        known |= _run_signals(run, run_inputs, plan)
    return signals | {f"run_{name}": value for name, value in known.items()}


def _pool(pairs: Pairs, split: str) -> Pairs:
    """What quick models may learn from: the split under audit, and the training split beside it."""
    learn = np.isin(pairs.splits, [split, "train"]) | (split == "all")
    return replace(pairs, splits=np.where(learn, "train", "other"))


def _usable(pairs: Pairs, rows: np.ndarray, broken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a readable picture and at least a letter of caption, and the others."""
    said = np.array([says_something(pairs.captions[row]) for row in rows.tolist()], dtype=bool)
    fine = said & ~np.isin(pairs.picture[rows], broken)
    return rows[fine], rows[~fine]


def _audited_rows(plan: Plan) -> tuple[AuditedRows, np.ndarray]:
    folds = plan.folds
    pictures, picture = np.unique(plan.inputs.table.pairs.picture[folds.rows], return_inverse=True)
    return AuditedRows(picture, folds.group[pictures], np.searchsorted(folds.rows, folds.wrong)), pictures


def _fixed_vector_signals(plan: Plan, table: Table, work: Path, options: Options) -> Signals:
    """Signals of fixed vectors: neighbours and siblings, and canonical correlation with its better partners."""
    audited, pictures = _audited_rows(plan)
    captions = [table.pairs.captions[row] for row in plan.folds.rows.tolist()]
    sentences = sentence_vectors(captions, options.captions, work / "captions.npy", device=plan.device)
    texts = tfidf_vectors(captions, seed=plan.seed) if sentences is None else sentences
    space = Space(picture_vectors(table, pictures).to(plan.device), texts.to(plan.device))
    near = neighbour_signals(space, audited, np.arange(len(captions)), seed=plan.seed)
    sides = (
        picture_features(table, pictures, options.pictures, plan.device),
        caption_features(captions, sentences, seed=plan.seed),
    )
    plain = cross_validated_signals(*sides, audited, plan.folds.fold, seed=plan.seed)
    return {f"free_{name}": value for name, value in near.items()} | {f"plain_{k}": v for k, v in plain.items()}


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


def _run_signals(run: Run, inputs: Inputs, plan: Plan) -> Signals:
    """Signals of the named run: gallery scores of every pair, and neighbours where they are cheap."""
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


def _training_record(run: Run, pairs: Pairs, rows: np.ndarray) -> Signals:
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
    kept = read(path)
    sides = {"measured": "loss_", "measured_wrong": "null_"}
    if any(
        kept[name].ndim != 1 or len(kept[name]) <= rows.max() for name in kept if name.startswith(("loss_", "null_"))
    ):
        raise BadInput(f"{path}: is not by the rows of the data; train the run again")
    every = {to: [kept[name][rows] for name in kept if name.startswith(start)] for to, start in sides.items()}
    return {to: np.mean(values, axis=0) for to, values in every.items()} if all(every.values()) else {}
