"""Building an index: shards first, then what searches them, measured, and at last the new version takes over.

What `plan.json` of a draft says (model, data, split) must agree for a build to go on with the shards of one that was
stopped. Everything behind the shards is done by one process in a minute or so and is simply done again.
"""

from __future__ import annotations

import secrets
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from matchlight import files
from matchlight.console import VERSION, BadInput, say
from matchlight.data.camera_notes import read_notes
from matchlight.data.fingerprints import data_marks, digest, fingerprint
from matchlight.indexing import chances, origins, picture_map, processes, versions
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.choosing import COARSE, Choice, forget_rows, pick_proposer
from matchlight.indexing.engines import Place, engine_class
from matchlight.indexing.given_model import GivenModel
from matchlight.indexing.index_json import EngineInfo, IndexInfo, Next
from matchlight.indexing.index_model import IndexModel
from matchlight.indexing.models import model_of
from matchlight.indexing.scorers import DotProduct, as_float32
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS, Source, sizes_of, write_sides
from matchlight.indexing.stored_sets import Sets
from matchlight.indexing.tuning import Measured, Truth, measure, true_best, unmeasured
from matchlight.inputs.given_vectors import Given, read_vectors
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.pairs import IMAGE, TEXT, Pairs
from matchlight.runs.given_recipe import given_recipe
from matchlight.runs.seen import trained_on

if TYPE_CHECKING:
    from matchlight.runs.folder import Run

SETS, MODEL, ITEMS, ENGINE = "sets", "model", "items", "engine"
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
    onnx_words: bool


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
    onnx_words: bool = False  # keep what reads words as ONNX too, so that searches by words begin without torch

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


def build(run: Run | OnnxTowers | None, pairs: Pairs, out: str | Path | None, options: Options) -> Path:
    """Build an index folder; the first process does what shards do not need all for."""
    options.check()
    model, reader, data = _models(run, pairs, options)
    for one in (model, reader):
        one.start()
    root = Path(out if out is not None else processes.broadcast(tempfile.mkdtemp(prefix="matchlight-index-")))
    first = processes.rank() == 0
    if first:
        versions.check_free(root)
    with versions.locked(root) if first else nullcontext():
        source = Source.of(reader.data(data), options.split)
        plan = _plan(model, source, options)
        folder = Path(processes.broadcast(str(versions.draft(root, plan)) if first else ""))
        zero, padded = {IMAGE: 0, TEXT: 0}, reader.keeps_padding
        shards = write_sides(folder / SETS, source, zero, small=options.thumbnails, keep_padding=padded)
        if first:
            catalogue = catalogue_of(folder / SETS, source, shards, model.folder, first=(0, 0))
            model.copy_to(folder / MODEL)
            if options.onnx_words:
                model.keep_words(folder / MODEL)
            origins.write(folder, [{"fingerprint": fingerprint(pairs), "id": 0, "row": 0}])
            complete(folder, root, model, catalogue, shards, options, padding=source.data.padding(source.rows))
        processes.barrier()
    return root


def _models(run: Run | OnnxTowers | None, pairs: Pairs, options: Options) -> tuple[IndexModel, IndexModel, Pairs]:
    """What answers questions, what reads the data, and the data: given vectors are read as they are."""
    if options.vectors is None:
        if run is None:
            raise BadInput("an index is built with a run, or of vectors that were made already")
        model = model_of(run)
        return model, model, pairs
    data = read_vectors(options.vectors, pairs).in_place_of_both(pairs)
    given = GivenModel(given_recipe(data))
    if run is None:
        say("vectors without a model: the index shows what resembles what; questions need --model RUN")
        return given, given, data
    _check_made_by(made := model_of(run), data)
    return made, given, data


def _check_made_by(model: IndexModel, data: Pairs) -> None:
    """Refuse a model that did not make the vectors of the captions: its questions would be answered at random."""
    assert data.text_features is not None
    if not isinstance(model.scorer, DotProduct):
        raise BadInput(f"--model {model.folder}: it makes no single vectors; a joint model (`matchlight import`) does")
    said = [row for row in range(len(data)) if data.captions[row].strip()][:COMPARED]
    if not said:
        raise BadInput(f"{data.root}: no caption has words, so that --model {model.folder} cannot be checked")
    reader = model.reader()
    made = np.stack([reader.words(data.captions[row])[0].vectors[0, 0] for row in said])
    given = as_float32(data.text_features[said])
    if made.shape[1] != given.shape[1]:
        widths = f"it makes vectors of {made.shape[1]} numbers, and those given have {given.shape[1]}"
        raise BadInput(f"--model {model.folder}: {widths}; the run that made them is needed")
    cosine = (made * given).sum(1) / np.maximum(np.linalg.norm(made, axis=1) * np.linalg.norm(given, axis=1), 1e-12)
    if np.median(cosine) < SAME:
        agree = f"its vectors of captions have a cosine of {np.median(cosine):.2f} with those given"
        raise BadInput(f"--model {model.folder}: {agree}; the run that made them is needed")


def _plan(model: IndexModel, source: Source, options: Options) -> dict[str, object]:
    return {
        "model": model.mark(),
        "data": data_marks(source.data.pairs),
        "pictures": digest(source.pictures),
        "rows": digest(source.rows),
        "thumbnails": options.thumbnails,
        "format": versions.FORMAT,
    }


def catalogue_of(
    folder: Path, source: Source, shards: dict[str, list[str]], run: Path, *, first: tuple[int, int]
) -> Catalogue:
    """The table of a source whose shards are written; `run` is the folder of the model, which knows its own pairs."""
    pairs, sizes = source.data.pairs, np.zeros((len(source.pictures), 2), dtype=np.int64)
    if shards[THUMBS]:
        sizes = np.concatenate([np.load(sizes_of(folder / name), allow_pickle=False) for name in shards[THUMBS]])
    made = Catalogue.of(pairs, source.pictures, source.rows, sizes, first=first)
    seen = trained_on(run, pairs, source.rows) if (run / "recipe.json").is_file() else np.zeros(len(source.rows), bool)
    return replace(made.with_notes(read_notes(pairs.pictures, source.pictures)), seen=seen)


# ---- what searches ---------------------------------------------------------------------------------------------------


def complete(
    folder: Path,
    root: Path,
    model: IndexModel,
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
    searcher = Searcher(model.scorer, model.own_vectors, sides)
    asking = [IMAGE, TEXT] if TEXT in sides else []  # pictures alone leave nothing to ask with
    truths = {truth.wanted: truth for truth in (true_best(searcher, given, seed=options.seed) for given in asking)}
    for left in folder.glob("rows-*.npy"):  # by a build that was killed
        left.unlink()
    how = Choice(options.coarse, options.target, options.seed, room=folder)
    rows = pick_proposer(searcher, model.own_vectors, truths, how)
    engine, replaced = new_engine(options), _engine_of(root)
    make_engines(folder, root, engine, sides, rows)
    measured = {side: _measured(searcher, truths.get(side), side, options) for side in sides}
    if options.map:
        if len(rows[IMAGE]) >= picture_map.PLACED:
            say("placing pictures on the map, which takes some ten seconds")
        files.write_array(folder / "map.npy", picture_map.points(rows[IMAGE], seed=options.seed))
    likely = chances.measured_chances(searcher, catalogue, folder / MODEL, model.reader(padding))
    likely.save(folder / chances.FILE, numbers)
    catalogue.save(folder / ITEMS)
    info = describe(model, catalogue, shards, options, padding=padding, proposer=searcher.proposer.name)
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
    model: IndexModel,
    catalogue: Catalogue,
    shards: dict[str, list[str]],
    options: Options,
    *,
    padding: int | None,
    proposer: str,
) -> IndexInfo:
    """What `index.json` says; `sides` are filled in once they are measured."""
    return {
        "method": model.method,
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
