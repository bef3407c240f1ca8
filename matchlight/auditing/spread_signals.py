"""Stage one of an audit by many processes: the signals of fixed vectors, computed in shards.

    pictures    vectors of each part of the data (the part that takes time), and of the captions
    sums        means, covariances and principal directions of each side, from sums that workers add up
    neighbours  of each block of rows, by reference rows that all blocks share
    turns       canonical correlation on all folds but one, from weighted sums; then scores of that fold, three times

This process holds names, captions and the signals, a few hundred numbers a pair; vectors stay in files that all
machines see. Word vectors, folds, near-duplicates and the verdict are its own work. Each shard is done once: what a
killed audit leaves in `work/` is kept.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import torch

from matchlight import files
from matchlight.auditing import shard_scores as tasks
from matchlight.auditing.canonical_signals import losses_of, over_rows
from matchlight.auditing.cca_inputs import TFIDF, WORD_WEIGHT, picture_kinds
from matchlight.auditing.fixed_vectors import own_view
from matchlight.auditing.folds import Folds, divide, near_duplicate_groups, usable
from matchlight.auditing.gallery import GALLERY, gallery_of
from matchlight.auditing.item_vectors import sentence_encoders, tfidf_vectors
from matchlight.auditing.neighbours import AuditedRows, Signals, references
from matchlight.auditing.options import Options, fold_count
from matchlight.auditing.shard_scores import Fitted, Looks, Nearby, array_file
from matchlight.auditing.shard_vectors import Kind, Side, Sums, added, equal_length, equal_spread, principal
from matchlight.cluster.data_parts import Part, Parts
from matchlight.cluster.jobs import Item, Job, Shared, Unfinished, Work, Workers, tell
from matchlight.console import VERSION, say
from matchlight.data.formats.sources import NpyFeatures
from matchlight.pairs import Pairs
from matchlight.parts.canonical_correlation import sizes_for
from matchlight.training.cross_fits import PASSES, weights_in_passes

BLOCK = 5000  # rows or pictures of one task
Block = tuple[int, np.ndarray]  # a fold and some of its rows


@dataclass(frozen=True)
class Stage:
    """A folder of shards, and who does them; a shard that cannot be done ends the audit, for the next one needs it."""

    workers: Workers
    folder: Path

    def arrays(self, work: Work[Shared, Item], shared: Shared, items: Iterable[Item], name: str) -> list[Sums]:
        """What each shard wrote, in order."""
        jobs = [Job(f"{name} {k}", self.folder / f"{name}-{k:05d}.npz", item) for k, item in enumerate(items)]
        self.finish(work, shared, jobs, name)
        return [files.read_npz(job.file, "an audit writes it") for job in jobs]

    def finish(self, work: Work[Shared, Item], shared: Shared, jobs: list[Job[Item]], name: str) -> None:
        """Do all of them."""
        if lost := self.workers.finish(work, shared, jobs, name, total=len(jobs)):
            why = f"{lost[0].name}: {lost[0].reason}"
            raise Unfinished(f"{len(lost)} of {len(jobs)} shards could not be done ({why}); the others are kept")


def spread_signals(pairs: Pairs, work: Path, options: Options, workers: Workers) -> Signals:
    """What `signals.gather` keeps, without runs and quick models."""
    audited = pairs.rows(options.split)
    say(f"auditing {len(audited)} pairs of {options.split!r}")
    device = "cuda" if options.device.startswith("cuda") else "cpu"
    encoders = "+".join(sentence_encoders(options.captions))  # what is missing is reported before the slow part
    sources, places, broken = _pictures(pairs, audited, work / "pictures", options, device)
    rows, lost = usable(pairs, audited, broken)
    folds = divide(pairs, rows, near_duplicate_groups(pairs), count=fold_count(pairs, rows, options), seed=options.seed)
    pictures, picture = np.unique(pairs.picture[rows], return_inverse=True)
    sources = [source.take(np.searchsorted(places, pictures)) for source in sources]
    rows_of = AuditedRows(picture, folds.group[pictures], np.searchsorted(rows, folds.wrong))
    stage = Stage(workers, work / _digest(rows, folds))  # another set of readable pictures has other shards
    captions = [pairs.captions[row] for row in rows.tolist()]
    texts, near = _captions(captions, stage, encoders, device, seed=options.seed)
    images = _picture_side(sources, stage, len(rows))
    signals = {"rows": rows, "fold": folds.fold, "decoy": folds.decoy, "lost": lost, "group": folds.group}
    signals |= {"wrong": rows_of.wrong, "picture": pairs.picture[rows]}
    nearby = Nearby(images, near, rows_of, references(len(rows), options.seed))
    blocks = _blocks(folds.fold)
    found = stage.arrays(tasks.write_neighbours, nearby, [some for _, some in blocks], "neighbours")
    signals |= {f"free_{name}": value for name, value in _over_rows(found, blocks).items()}
    sides = tuple(_with_components(stage, side, name, len(rows)) for side, name in ((images, "image"), (texts, "text")))
    fitted = Fitted(sides[0], sides[1], rows_of, np.ones(len(rows)))
    plain = _canonical(stage, fitted, folds.fold, blocks, seed=options.seed)
    return signals | {f"plain_{name}": value for name, value in plain.items()}


def _digest(rows: np.ndarray, folds: Folds) -> str:
    state = rows.astype("<i8").tobytes() + folds.fold.astype("<i8").tobytes() + folds.wrong.astype("<i8").tobytes()
    return hashlib.sha256(VERSION.encode() + state).hexdigest()[:16]


def _pictures(
    pairs: Pairs, audited: np.ndarray, folder: Path, options: Options, device: str
) -> tuple[list[NpyFeatures], np.ndarray, np.ndarray]:
    """Vectors of the audited pictures, a source a kind; the pictures they are of; pictures that cannot be used."""
    workers = options.workers
    assert workers is not None
    view, kinds = own_view(pairs, picture_kinds(options.pictures, pairs), quick=False)
    parts = Parts(pairs, np.unique(pairs.picture[audited]))
    looks = Looks(view.with_size(torch.device(device)), kinds, device)
    made: dict[str, Path] = {}

    def jobs() -> Iterator[Job[Part]]:
        for part in parts:
            made[part.name] = folder / f"{part.name}-{part.key('')[:12]}.npz"  # another time's has another name
            yield Job(part.name, made[part.name], part)

    lost = workers.finish(tasks.write_pictures, looks, jobs(), "vectors of pictures", total=len(parts))
    tell(lost, len(parts))
    gone = {one.name for one in lost}
    done = [name for name in parts.names if name not in gone]
    marks = [files.read_npz(made[name], "an audit writes it") for name in done]
    places = np.concatenate([mark["places"] for mark in marks])
    missing = np.setdiff1d(parts.places, places)
    broken = np.concatenate([missing, *(mark["broken"] for mark in marks)])
    sources = [NpyFeatures([array_file(folder, name, k) for name in done]) for k in range(len(kinds))]
    return sources, places, broken


def _captions(captions: list[str], stage: Stage, encoders: str, device: str, *, seed: int) -> tuple[Side, NpyFeatures]:
    """Captions by their meaning and words for canonical correlation, and what neighbours are found with."""
    words = _word_vectors(captions, stage.folder / "words.npy", **TFIDF, seed=seed)  # type: ignore[arg-type]
    if encoders:
        spans = [slice(start, start + BLOCK) for start in range(0, len(captions), BLOCK)]
        jobs = [Job(f"captions {k}", stage.folder / f"captions-{k:05d}.npy", captions[s]) for k, s in enumerate(spans)]
        stage.finish(tasks.write_captions, (encoders, device), jobs, "vectors of captions")
        near = NpyFeatures([job.file for job in jobs])
        kinds = [(Kind(near), 1.0), (Kind(words), WORD_WEIGHT)]
    else:
        near = _word_vectors(captions, stage.folder / "few-words.npy", seed=seed)
        kinds = [(Kind(words), 1.0)]
    spans_of = _spans(len(captions))
    scaled = []
    for k, (kind, weight) in enumerate(kinds):
        sums = added(stage.arrays(tasks.write_squares, kind, spans_of, f"lengths-{k}"))
        scaled.append(equal_length(kind, sums, weight))
    return Side(tuple(scaled)), near


def _word_vectors(captions: list[str], file: Path, *, seed: int, **how: float) -> NpyFeatures:
    """By this process: the counts of words are sparse, and their reduction looks at all captions."""
    if not file.exists():
        files.write_array(file, tfidf_vectors(captions, seed=seed, **how).numpy())  # type: ignore[arg-type]
    return NpyFeatures([file])


def _spans(count: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]


def _picture_side(sources: list[NpyFeatures], stage: Stage, pairs: int) -> Side:
    """Pictures with every kind at its scale, and by its principal directions where it has many."""
    wide, _ = sizes_for(pairs)
    kinds = []
    for k, source in enumerate(sources):
        spans, kind = _spans(len(source)), Kind(source)
        kind = equal_spread(kind, added(stage.arrays(tasks.write_squares, kind, spans, f"spread-{k}")))
        if source.shape[1] > wide:
            sums = added(stage.arrays(tasks.write_kind_products, kind, spans, f"products-{k}"))
            kind = replace(kind, directions=principal(sums, wide)[1])
        kinds.append(kind)
    return Side(tuple(kinds))


def _with_components(stage: Stage, side: Side, name: str, pairs: int) -> Side:
    wide, _ = sizes_for(pairs)
    spans = _spans(len(side.kinds[0].source))
    centre, directions, scale = principal(added(stage.arrays(tasks.write_products, side, spans, f"side-{name}")), wide)
    return replace(side, centre=centre, directions=directions, scale=scale)


def _blocks(fold: np.ndarray) -> list[Block]:
    """Every fold in blocks."""
    inside = [(k, np.flatnonzero(fold == k)) for k in range(int(fold.max()) + 1)]
    return [(k, rows[start : start + BLOCK]) for k, rows in inside for start in range(0, len(rows), BLOCK)]


def _canonical(stage: Stage, fitted: Fitted, fold: np.ndarray, blocks: list[Block], *, seed: int) -> Signals:
    """As `canonical_signals.cross_validated_signals`, from sums."""

    def signals(turn: int, weight: np.ndarray, *, last: bool = False) -> Signals:
        now = _fit(stage, replace(fitted, weight=weight, last=last), fold, blocks, turn=turn, seed=seed)
        return _over_rows(stage.arrays(tasks.write_scores, now, blocks, f"scores-{turn}"), blocks)

    weight = weights_in_passes(len(fold), lambda turn, weight: losses_of(signals(turn, weight)))
    return signals(PASSES - 1, weight, last=True)


def _fit(stage: Stage, fitted: Fitted, fold: np.ndarray, blocks: list[Block], *, turn: int, seed: int) -> Fitted:
    """With the fit on all folds but each, and the gallery of each."""
    picture, (_, kept) = fitted.audited.picture, sizes_for(len(fold))
    moments = [tasks.read_moments(one) for one in stage.arrays(tasks.write_moments, fitted, blocks, f"moments-{turn}")]
    fits, galleries = {}, {}
    for k in sorted({k for k, _ in blocks}):
        others = [one for one, (own, _) in zip(moments, blocks, strict=True) if own != k]
        fits[k] = reduce(operator.add, others).fit(kept=kept)
        inside, outside = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        galleries[k] = gallery_of(picture, inside, outside, size=GALLERY, seed=seed)
    return replace(fitted, fits=fits, galleries=galleries)


def _over_rows(parts: list[Sums], blocks: list[Block]) -> Signals:
    return over_rows(parts, [rows for _, rows in blocks])
