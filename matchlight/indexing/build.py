"""Building an index: shards first, then what searches them, measured, and at last the new version takes over.

What `plan.json` of a draft says (model, data, split) must agree for a build to go on with the shards of one that was
stopped. Everything behind the shards is done by one process in a minute or so and is simply done again.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight import devices, files
from matchlight.console import VERSION, say
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.data.camera_notes import read_notes
from matchlight.data.fingerprints import data_marks, fingerprint
from matchlight.devices import start_processes
from matchlight.indexing import chances, distil, origins, picture_map, versions
from matchlight.indexing.candidate_vectors import Plain
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.choosing import COARSE, Choice, forget_rows, pick_proposer
from matchlight.indexing.engines import Place, engine_class
from matchlight.indexing.index_json import EngineInfo, IndexInfo, Next
from matchlight.indexing.query_encoder import QueryEncoder, usual_padding
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS, Source, sizes_of, write_sides
from matchlight.indexing.stored_sets import Sets
from matchlight.indexing.tuning import Measured, Truth, measure, true_best, unmeasured
from matchlight.inputs.given_vectors import Given
from matchlight.inputs.joint_models import OWN
from matchlight.pairs import Pairs
from matchlight.parts.similarities import Dot
from matchlight.runs.folder import Run
from matchlight.runs.seen import SEEN, trained_on
from matchlight.runs.validation_chance import FILE as CHANCES_OF_RUN
from matchlight.training import checkpoints
from matchlight.training.mining import digest

SETS, MODEL, ITEMS, ENGINE, MAPS = "sets", "model", "items", "engine", "coarse.safetensors"
COMPARED, SAME = 5, 0.95  # captions that a model reads itself, and the cosine its vectors must have with those given


class Settings(TypedDict, total=False):
    """The keywords of `Index.build`; `Options` says what each is when it is left out."""

    engine: str
    address: str | None
    split: str
    target: float
    candidates: int | None
    thumbnails: bool
    map: bool
    seed: int
    coarse: str
    vectors: Given | None


@dataclass(frozen=True)
class Options:
    """How an index is built."""

    engine: str = "faiss"
    address: str | None = None  # of an engine that is a server
    split: str = "all"
    target: float = 0.99  # share of the true best ten that the candidates must hold
    candidates: int | None = None  # how many; None: as many as the target needs
    thumbnails: bool = True
    map: bool = True
    seed: int = 0
    coarse: str = "auto"  # vectors that propose candidates: the model's own (plain), distilled, or the better
    vectors: Given | None = None  # of all pictures and captions, made already by the run, or by nobody that is known

    def check(self) -> None:
        """One clear line for what cannot be."""
        engine = engine_class(self.engine)
        if not 0 < self.target <= 1:
            raise BadInput(f"target={self.target}: a share of the true best ten, above 0 and up to 1")
        if self.candidates is not None and self.candidates < 1:
            raise BadInput(f"candidates={self.candidates}: at least 1")
        if self.address is not None and not engine.has_address:
            raise BadInput(f"--address {self.address}: --engine {self.engine} has no address; --engine milvus has")
        if self.coarse not in COARSE:
            raise BadInput(f"coarse={self.coarse}: {', '.join(COARSE)}")
        engine.check()  # said before anything slow is done


def build(run: Run | None, pairs: Pairs, out: str | Path | None, options: Options) -> Path:
    """Build an index folder; the first process does what shards do not need all for."""
    options.check()
    run, reader, data = _readers(run, pairs, options)
    device = start_processes(run.device)  # under torchrun each process has a device of its own
    for one in (run, reader):
        one.matcher.to(device)
    root = Path(out if out is not None else devices.broadcast(tempfile.mkdtemp(prefix="matchlight-index-")))
    first = devices.rank() == 0
    if first:
        versions.check_free(root)
    with versions.locked(root) if first else nullcontext():
        source = Source.of(reader.inputs(data).table, options.split)
        plan = _plan(run, source, options)
        folder = Path(devices.broadcast(str(versions.draft(root, plan)) if first else ""))
        zero = {IMAGE: 0, TEXT: 0}
        shards = write_sides(folder / SETS, reader.matcher, source, zero, small=options.thumbnails)
        if first:
            catalogue = catalogue_of(folder / SETS, source, shards, run.folder, first=(0, 0))
            _copy_model(run, folder / MODEL)
            origins.write(folder, [{"fingerprint": fingerprint(pairs), "id": 0, "row": 0}])
            complete(folder, root, run, catalogue, shards, options, padding=padding_of(run, source))
        devices.barrier()
    return root


def _readers(run: Run | None, pairs: Pairs, options: Options) -> tuple[Run, Run, Pairs]:
    """The run that answers questions, the one that reads the data, and the data: given vectors are read as they are."""
    if options.vectors is None:
        if run is None:
            raise BadInput("an index is built with a run, or of vectors that were made already")
        return run, run, pairs
    reader, data = Run.of_vectors(options.vectors, pairs, device="cpu" if run is None else run.device.type)
    if run is None:
        say("vectors without a model: the index shows what resembles what; questions need --model RUN")
        return reader, reader, data
    _check_made_by(run, data)
    return run, reader, data


def _check_made_by(run: Run, data: Pairs) -> None:
    """Refuse a model that did not make the vectors of the captions: its questions would be answered at random."""
    assert data.text_features is not None
    if not isinstance(getattr(run.matcher, "similarity", None), Dot):
        raise BadInput(f"--model {run.folder}: it makes no single vectors; a joint model (`matchlight import`) does")
    said = [row for row in range(len(data)) if data.captions[row].strip()][:COMPARED]
    if not said:
        raise BadInput(f"{data.root}: no caption has words, so that --model {run.folder} cannot be checked")
    encoder = QueryEncoder(run)
    made = np.stack([encoder.words(data.captions[row])[0].members[0].single[0].cpu().numpy() for row in said])
    given = data.text_features[said].astype(np.float32)
    if made.shape[1] != given.shape[1]:
        widths = f"it makes vectors of {made.shape[1]} numbers, and those given have {given.shape[1]}"
        raise BadInput(f"--model {run.folder}: {widths}; the run that made them is needed")
    cosine = (made * given).sum(1) / np.maximum(np.linalg.norm(made, axis=1) * np.linalg.norm(given, axis=1), 1e-12)
    if np.median(cosine) < SAME:
        agree = f"its vectors of captions have a cosine of {np.median(cosine):.2f} with those given"
        raise BadInput(f"--model {run.folder}: {agree}; the run that made them is needed")


def _plan(run: Run, source: Source, options: Options) -> dict[str, object]:
    weights = digest(*(value.cpu().numpy() for value in run.matcher.state_dict().values()))
    return {
        "model": weights,
        "data": data_marks(source.table.pairs),
        "pictures": digest(source.pictures),
        "rows": digest(source.rows),
        "thumbnails": options.thumbnails,
        "format": versions.FORMAT,
    }


def padding_of(run: Run, source: Source) -> int | None:
    """How far questions are padded, for a model that depends on it."""
    if not run.matcher.depends_on_padding or source.table.captions is None or not len(source.rows):
        return None
    return usual_padding(source.table.captions.lengths[source.rows], run.matcher.encode_batch)


def catalogue_of(
    folder: Path, source: Source, shards: dict[str, list[str]], run: Path, *, first: tuple[int, int]
) -> Catalogue:
    """The table of a source whose shards are written; `run` is the folder of the model, which knows its own pairs."""
    pairs, sizes = source.table.pairs, np.zeros((len(source.pictures), 2), dtype=np.int64)
    if shards[THUMBS]:
        sizes = np.concatenate([np.load(sizes_of(folder / name), allow_pickle=False) for name in shards[THUMBS]])
    made = Catalogue.of(pairs, source.pictures, source.rows, sizes, first=first)
    seen = trained_on(run, pairs, source.rows) if (run / "recipe.json").is_file() else np.zeros(len(source.rows), bool)
    return replace(made.with_notes(read_notes(pairs.pictures, source.pictures)), seen=seen)


def _copy_model(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "recipe.json", run.info)
    checkpoints.save_weights(folder / "model.safetensors", run.matcher.state_dict())
    if run.vocabulary is not None:
        run.vocabulary.save(folder / "vocab.json")
    if run.view.onnx:
        shutil.copyfile(run.folder / run.view.onnx, folder / run.view.onnx)
    if (run.folder / OWN).is_dir():
        shutil.copytree(run.folder / OWN, folder / OWN, dirs_exist_ok=True)
    for name in ("labels.json", "metrics.json", CHANCES_OF_RUN, SEEN):  # what its outputs mean, how it was measured
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)


# ---- what searches ---------------------------------------------------------------------------------------------------


def complete(
    folder: Path,
    root: Path,
    run: Run,
    catalogue: Catalogue,
    shards: dict[str, list[str]],
    options: Options,
    *,
    padding: int | None,
    after: Next | None = None,
) -> Path:
    """From shards to a version in use: candidate vectors, engine, number of candidates, map; then the switch."""
    numbers, alive = {IMAGE: catalogue.ids, TEXT: catalogue.rows}, catalogue.alive_sides()
    sides = {
        side: Side(Sets([folder / SETS / name for name in shards[side]]), numbers[side], None, 0, alive=alive[side])
        for side in (IMAGE, TEXT)
        if shards[side]
    }
    searcher = Searcher(run.matcher, Plain(run.matcher), sides, run.device)
    asking = [IMAGE, TEXT] if TEXT in sides else []  # pictures alone leave nothing to ask with
    truths = {truth.wanted: truth for truth in (true_best(searcher, given, seed=options.seed) for given in asking)}
    for left in folder.glob("rows-*.npy"):  # by a build that was killed
        left.unlink()
    how = Choice(options.coarse, options.target, options.seed, room=folder)
    rows = pick_proposer(searcher, truths, how)
    if isinstance(searcher.proposer, distil.Distilled):
        searcher.proposer.save(folder / MAPS)
    engine, replaced = new_engine(options), _engine_of(root)
    make_engines(folder, root, engine, sides, rows)
    measured = {side: _measured(searcher, truths.get(side), side, options) for side in sides}
    if options.map:
        if len(rows[IMAGE]) >= picture_map.PLACED:
            say("placing pictures on the map, which takes some ten seconds")
        files.write_array(folder / "map.npy", picture_map.points(rows[IMAGE], seed=options.seed))
    likely = chances.measured_chances(searcher, catalogue, folder / MODEL, QueryEncoder(run, padding))
    likely.save(folder / chances.FILE, numbers)
    catalogue.save(folder / ITEMS)
    info = describe(run, catalogue, shards, options, padding=padding, proposer=searcher.proposer.name)
    info["sides"] = {
        side: one.info(each=rows[side].shape[1], dim=rows[side].shape[2]) for side, one in measured.items()
    }
    info["engine"], info["next"] = engine, after or info["next"]
    files.write_json(folder / "index.json", info)
    forget_rows(rows)
    final = versions.finish(folder, root)
    for own in sides.values():
        if own.engine is not None:
            own.engine.close()
    _discard(replaced, root, options.address)
    _report(measured)
    chances.report(likely)
    return final


def _measured(searcher: Searcher, truth: Truth | None, side: str, options: Options) -> Measured:
    if truth is not None:
        return measure(searcher, truth, options.target, options.candidates)
    return unmeasured(searcher.sides[side], options.target, options.candidates)


def describe(
    run: Run,
    catalogue: Catalogue,
    shards: dict[str, list[str]],
    options: Options,
    *,
    padding: int | None,
    proposer: str,
) -> IndexInfo:
    """What `index.json` says; `sides` are filled in once they are measured."""
    return {
        "method": run.method,
        "engine": {"name": options.engine, "address": options.address},
        "coarse": proposer,
        "target": options.target,
        "asked": {"candidates": options.candidates, "coarse": options.coarse},
        "padding": padding,
        "shards": shards,
        "pictures": int(catalogue.alive.sum()),
        "captions": int(catalogue.alive[catalogue.picture].sum()),
        "next": {"id": int(catalogue.ids.max()) + 1, "row": int(catalogue.rows.max(initial=-1)) + 1},
        "map": options.map,
        "thumbnails": bool(shards[THUMBS]),
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": VERSION,
        "seed": options.seed,
        "sides": {},
    }


def _report(measured: dict[str, Measured]) -> None:
    one = measured[IMAGE]
    if one.recall is None:
        some = f"a question is compared with {one.candidates:,} of them, chosen by the engine; recall needs captions"
        say("a question is compared with every picture" if one.candidates >= one.items else some)
        return
    say(f"{one.candidates} of {one.items} pictures are scored for a question: {one.recall:.1%} of the true best ten")


def new_engine(options: Options) -> EngineInfo:
    """What a version says of its engine; a database tells versions apart by a `uid` in the names it is given."""
    named: EngineInfo = {"name": options.engine, "address": options.address}
    if not engine_class(options.engine).in_files:
        named["uid"] = secrets.token_hex(6)
    return named


def place_of(root: Path, folder: Path, engine: EngineInfo, side: str) -> Place:
    """Where the engine of one side of a version keeps its rows."""
    return Place(folder / ENGINE / side, root, f"matchlight_{engine.get('uid', '')}_{side}", engine["address"])


def at_users_address(engine: EngineInfo, given: str | None) -> EngineInfo:
    """The engine at the address that the user gave; one that only a file names is never followed.

    An index may come from a stranger: its file could name their server, which would be sent a token, or any folder.
    """
    if engine["address"] is None:  # in the folder of the index itself
        return engine
    if given is None:
        raise BadInput(
            f"this index keeps its rows at {engine['address']!r}: an address in a file is not followed unasked; "
            "if it is yours, say so: --address or MATCHLIGHT_MILVUS_ADDRESS, in Python Index.load(path, address=...)"
        )
    return {**engine, "address": given}


def make_engines(
    folder: Path, root: Path, engine: EngineInfo, sides: dict[str, Side], rows: dict[str, np.ndarray]
) -> None:
    """Give each side an engine with all rows in it; items that were removed are taken out again."""
    for name, side in sides.items():
        place = place_of(root, folder, engine, name)
        side.engine = engine_class(engine["name"]).build(place, side.numbers, rows[name])
        removed = np.delete(side.numbers, side.remaining())
        if len(removed):
            side.engine.remove(removed)
        side.engine.save(place.folder)


def _engine_of(root: Path) -> tuple[Path, EngineInfo] | None:
    """The version that is still in use and its engine, if they can be read."""
    try:
        folder, _ = versions.current(root, verify=False)
        info: IndexInfo = files.read_json(folder / "index.json", "an index")
        return folder, {**info["engine"]}
    except (BadInput, KeyError, TypeError):
        return None


def _discard(replaced: tuple[Path, EngineInfo] | None, root: Path, address: str | None) -> None:
    """Take what the version that was replaced had in a database out of it; only at an address of ours."""
    if replaced is None or replaced[1]["address"] not in (None, address):
        return
    folder, engine = replaced
    try:
        kind = engine_class(engine["name"])
    except BadInput:  # of a package that is not installed any more
        return
    if not kind.in_files and "uid" in engine:
        for side in (IMAGE, TEXT):
            kind.discard(place_of(root, folder, engine, side))
