"""Building an index: shards first, then what searches them, measured, and at last the new version takes over.

What `plan.json` of a draft says (model, data, split) must agree for a build to go on with the shards of one that was
stopped. Everything behind the shards is done by one process in a minute or so and is simply done again.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from matchlight import devices, files
from matchlight.console import VERSION, say
from matchlight.core import IMAGE, TEXT, BadInput
from matchlight.data.fingerprints import fingerprint
from matchlight.devices import start_processes
from matchlight.indexing import distil, picture_map, versions
from matchlight.indexing.candidate_vectors import Plain, Proposer, all_rows
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.engines import Engine, check_engine
from matchlight.indexing.engines.faiss import Faiss, load_faiss
from matchlight.indexing.engines.milvus import Milvus, connect
from matchlight.indexing.query_encoder import usual_padding
from matchlight.indexing.searcher import Searcher, Side
from matchlight.indexing.shards import THUMBS, Source, sizes_of, write_sides
from matchlight.indexing.stored_sets import Sets
from matchlight.indexing.tuning import Measured, Truth, measure, needed, true_best
from matchlight.pairs import Pairs
from matchlight.runs.folder import Run
from matchlight.training import checkpoints
from matchlight.training.mining import digest

SETS, MODEL, ITEMS, ENGINE, MAPS = "sets", "model", "items", "engine", "coarse.safetensors"
SHARE = 0.05  # of the items may be candidates before vectors are distilled
WORTH = 400  # items below which scoring everything is as quick as anything
COARSE = ("auto", "plain", "distilled")


@dataclass(frozen=True)
class Options:
    """How an index is built."""

    engine: str = "faiss"
    address: str | None = None
    split: str = "all"
    target: float = 0.99
    candidates: int | None = None
    thumbnails: bool = True
    map: bool = True
    seed: int = 0
    coarse: str = "auto"

    def check(self) -> None:
        """One clear line for what cannot be."""
        check_engine(self.engine)
        if not 0 < self.target <= 1:
            raise BadInput(f"target={self.target}: a share of the true best ten, above 0 and up to 1")
        if self.candidates is not None and self.candidates < 1:
            raise BadInput(f"candidates={self.candidates}: at least 1")
        if self.address is not None and self.engine != "milvus":
            raise BadInput(f"--address {self.address}: only --engine milvus has an address")
        if self.coarse not in COARSE:
            raise BadInput(f"coarse={self.coarse}: {', '.join(COARSE)}")
        if self.engine == "faiss":
            load_faiss()  # told before anything slow is done


def build(run: Run, pairs: Pairs, out: str | Path | None, options: Options) -> Path:
    """Build an index folder; the first process does what shards do not need all for."""
    options.check()
    run.matcher.to(start_processes(run.device))  # under torchrun each process has a device of its own
    root = Path(out if out is not None else devices.broadcast(tempfile.mkdtemp(prefix="matchlight-index-")))
    first = devices.rank() == 0
    if first:
        versions.check_free(root)
    with versions.locked(root) if first else nullcontext():
        source = Source.of(run.inputs(pairs).table, options.split)
        plan = _plan(run, source, options)
        folder = Path(devices.broadcast(str(versions.draft(root, plan)) if first else ""))
        zero = {IMAGE: 0, TEXT: 0}
        shards = write_sides(folder / SETS, run.matcher, source, zero, small=options.thumbnails)
        if first:
            catalogue = catalogue_of(folder / SETS, source, shards, first=(0, 0))
            _copy_model(run, folder / MODEL)
            complete(folder, root, run, catalogue, shards, options, padding=padding_of(run, source))
        devices.barrier()
    return root


def _plan(run: Run, source: Source, options: Options) -> dict[str, Any]:
    weights = digest(*(value.cpu().numpy() for value in run.matcher.state_dict().values()))
    return {
        "model": weights,
        "data": fingerprint(source.table.pairs),
        "pictures": digest(source.pictures),
        "rows": digest(source.rows),
        "thumbnails": options.thumbnails,
        "format": versions.FORMAT,
    }


def padding_of(run: Run, source: Source) -> int | None:
    """How far questions are padded, for a model that depends on it."""
    if not run.matcher.depends_on_padding or source.table.captions is None:
        return None
    return usual_padding(source.table.captions.lengths[source.rows], run.matcher.encode_batch)


def catalogue_of(folder: Path, source: Source, shards: dict[str, list[str]], *, first: tuple[int, int]) -> Catalogue:
    """The table of a source whose shards are written."""
    sizes = np.zeros((len(source.pictures), 2), dtype=np.int64)
    if shards[THUMBS]:
        sizes = np.concatenate([np.load(sizes_of(folder / name), allow_pickle=False) for name in shards[THUMBS]])
    return Catalogue.of(source.table.pairs, source.pictures, source.rows, sizes, first=first)


def _copy_model(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "recipe.json", run.info)
    checkpoints.save_weights(folder / "model.safetensors", run.matcher.state_dict())
    if run.vocabulary is not None:
        run.vocabulary.save(folder / "vocab.json")
    for name in ("labels.json", "metrics.json"):  # what its outputs mean, and how well it was measured
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
    after: dict[str, int] | None = None,
) -> Path:
    """From shards to a version in use: what proposes, the engine, how many candidates, the map; then the switch."""
    numbers, alive = {IMAGE: catalogue.ids, TEXT: catalogue.rows}, catalogue.alive_sides()
    sides = {
        side: Side(Sets([folder / SETS / name for name in shards[side]]), numbers[side], None, 0, alive=alive[side])
        for side in (IMAGE, TEXT)
    }
    searcher = Searcher(run.matcher, Plain(run.matcher), sides, run.device)
    truths = {
        truth.wanted: truth for truth in (true_best(searcher, given, seed=options.seed) for given in (IMAGE, TEXT))
    }
    rows = pick_proposer(searcher, truths, options)
    if isinstance(searcher.proposer, distil.Distilled):
        searcher.proposer.save(folder / MAPS)
    uid, old = secrets.token_hex(6), _engine_of(root)
    gone = {side: np.delete(numbers[side], one.remaining()) for side, one in sides.items()}
    engines = make_engines(folder, root, numbers, rows, options, uid, gone)
    measured = {}
    for side, engine in engines.items():
        sides[side].engine = engine
        measured[side] = measure(searcher, truths[side], options.target, options.candidates)
    if options.map:
        files.write_array(
            folder / "map.npy", picture_map.points(rows[IMAGE].astype(np.float32).mean(1), seed=options.seed)
        )
    catalogue.save(folder / ITEMS)
    about = describe(run, catalogue, shards, options, padding=padding, proposer=searcher.proposer.name)
    about |= {"sides": {side: {**one.plain(), **_shape(rows[side])} for side, one in measured.items()}}
    about["next"] = after or about["next"]
    about["engine"] |= {"uid": uid} if options.engine == "milvus" else {}
    files.write_json(folder / "index.json", about)
    final = versions.finish(folder, root)
    for engine in engines.values():
        engine.close()
    _drop(old, root, uid)
    _report(measured)
    return final


def _shape(rows: np.ndarray) -> dict[str, int]:
    return {"each": rows.shape[1], "dim": rows.shape[2]}


def describe(
    run: Run,
    catalogue: Catalogue,
    shards: dict[str, list[str]],
    options: Options,
    *,
    padding: int | None,
    proposer: str,
) -> dict[str, Any]:
    """What `index.json` says besides what was measured."""
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
        "next": {"id": int(catalogue.ids.max()) + 1, "row": int(catalogue.rows.max()) + 1},
        "map": options.map,
        "thumbnails": bool(shards[THUMBS]),
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": VERSION,
        "seed": options.seed,
    }


def _report(measured: dict[str, Measured]) -> None:
    one = measured[IMAGE]
    say(f"{one.candidates} of {one.items} pictures are scored for a question: {one.recall:.1%} of the true best ten")


def pick_proposer(searcher: Searcher, truths: dict[str, Truth], options: Options) -> dict[str, np.ndarray]:
    """The model's own vectors where they propose well enough, else distilled ones where those do better."""
    plain = searcher.proposer
    assert isinstance(plain, Plain)
    known = all(plain.known(truth.queries.take(slice(0, 1)), truth.given) for truth in truths.values())
    if not known and options.coarse == "plain":
        raise BadInput("this model has no vectors that propose candidates; coarse=auto distils some")
    own = _rows(searcher, plain) if known else None
    cost = _cost(truths, plain, own, options.target) if own else {}
    sizes = {side: len(searcher.sides[side].sets) for side in searcher.sides}
    good = all(cost[side] <= max(SHARE * sizes[side] / 2, 10) for side in cost)
    if own and (options.coarse == "plain" or (options.coarse == "auto" and (good or sizes[IMAGE] < WORTH))):
        return own
    unseen = {truth.given: truth.places for truth in truths.values()}
    learned: Proposer = distil.distilled(searcher, seed=options.seed, unseen=unseen)
    rows = _rows(searcher, learned)
    found = _cost(truths, learned, rows, options.target)
    if own and options.coarse == "auto" and sum(found.values()) >= sum(cost.values()):
        return own
    searcher.proposer = learned
    return rows


def _rows(searcher: Searcher, proposer: Proposer) -> dict[str, np.ndarray]:
    return {side: all_rows(proposer, own.sets, side, searcher.device) for side, own in searcher.sides.items()}


def _cost(truths: dict[str, Truth], proposer: Proposer, rows: dict[str, np.ndarray], target: float) -> dict[str, int]:
    return {side: needed(truth, proposer, rows[side], target) for side, truth in truths.items()}


def make_engines(
    folder: Path,
    root: Path,
    numbers: dict[str, np.ndarray],
    rows: dict[str, np.ndarray],
    options: Options,
    uid: str,
    gone: dict[str, np.ndarray],
) -> dict[str, Engine]:
    """An engine a side, with all rows in it; items that are `gone` are taken out again."""
    made: dict[str, Engine]
    if options.engine == "faiss":
        made = {side: Faiss.build(numbers[side], rows[side]) for side in rows}
    else:
        client = connect(options.address or str(root / versions.DATABASE))
        made = {side: Milvus.build(client, f"matchlight_{uid}_{side}", numbers[side], rows[side]) for side in rows}
    for side, engine in made.items():
        if len(gone[side]):
            engine.remove(gone[side])
        engine.save(folder / ENGINE / side)
    return made


def _engine_of(root: Path) -> dict[str, Any] | None:
    """The engine of the version that is still in use, if it is readable."""
    try:
        folder, _ = versions.current(root, verify=False)
        return dict(files.read_json(folder / "index.json", "an index")["engine"])
    except (BadInput, KeyError, TypeError):
        return None


def _drop(old: dict[str, Any] | None, root: Path, uid: str) -> None:
    """Collections of the version that was replaced."""
    if not old or old.get("name") != "milvus" or old.get("uid") in (None, uid):
        return
    try:
        client = connect(old["address"] or str(root / versions.DATABASE))
    except BadInput:
        return
    for side in (IMAGE, TEXT):
        if client.has_collection(name := f"matchlight_{old['uid']}_{side}"):
            client.drop_collection(name)
    client.close()
