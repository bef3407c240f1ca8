"""An index that grows and shrinks: new shards behind the old ones, removed items barred, and all packed anew at times.

Every change is a new version of the index. What stays the same is linked from the old one, so adding a few pictures to
many costs little but the engine's file; a search that is under way finishes on the version it began with. Of several
processes that change an index, each waits for its turn and changes what the others left, so that nothing is lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.data.fingerprints import data_marks, fingerprint
from matchlight.indexing import chances, origins, picture_map, versions
from matchlight.indexing.build import ENGINE, ITEMS, MODEL, SETS, Options, catalogue_of, complete
from matchlight.indexing.candidate_vectors import all_rows
from matchlight.indexing.catalogue import Catalogue
from matchlight.indexing.choosing import MAPS, forget_rows
from matchlight.indexing.engines import Engine, engine_class
from matchlight.indexing.index_json import IndexInfo, Next
from matchlight.indexing.opening import OpenIndex
from matchlight.indexing.records import write_records
from matchlight.indexing.scorers import as_float32
from matchlight.indexing.shards import SHARD, THUMBS, Source, names, sizes_of, write_sides
from matchlight.indexing.stored_sets import Sets, write_shard
from matchlight.pairs import IMAGE, TEXT, Pairs

SPARSE = 0.25  # share of removed pictures from which on the index is packed anew
GROWN = 1.5  # times as many pictures as were measured, from which on all is measured anew
AT_ONCE = 65_536  # items given to an engine together
KNOWN = 4096  # pictures on the map that new ones are put beside


def add(index: OpenIndex, pairs: Pairs, split: str) -> list[int]:
    """New shards, longer tables, the engine with more rows; the new pictures' ids come back."""
    with versions.locked(index.root, wait=True):
        _open_newest(index)
        source = Source.of(index.model.data(pairs), split)
        plan = {"add": data_marks(pairs), "to": index.version, "split": split}
        folder, info = versions.draft(index.root, plan), index.info
        _link(index, folder, SETS)
        first = {side: len(info["shards"][side]) for side in (IMAGE, TEXT)}
        padded = index.model.keeps_padding
        new = write_sides(folder / SETS, source, first, small=info["thumbnails"], keep_padding=padded)
        if info["thumbnails"] and not new[THUMBS]:
            new[THUMBS] = _no_thumbs(folder / SETS, len(source.pictures), first[IMAGE])
        numbers = (info["next"]["id"], info["next"]["row"])
        more = catalogue_of(folder / SETS, source, new, index.folder / MODEL, first=numbers)
        shards = {kind: [*info["shards"][kind], *new[kind]] for kind in info["shards"]}
        begin: origins.Begin = {"fingerprint": fingerprint(pairs), "id": info["next"]["id"], "row": info["next"]["row"]}
        origins.write(folder, [*origins.begins_of(index.origins), begin])
        row = int(more.rows.max(initial=info["next"]["row"] - 1)) + 1
        last: Next = {"id": int(more.ids.max()) + 1, "row": row}
        catalogue = index.catalogue.with_more(more)
        grown = catalogue.alive.sum() >= GROWN * info["sides"][IMAGE]["items"]
        if grown or (new[TEXT] and not info["shards"][TEXT]):  # the first captions are to be searched too
            _complete(index, folder, catalogue, shards, last)
        else:
            _grow_engines(index, folder, new, more)
            _commit(index, folder, catalogue, {**info, "shards": shards, "next": last})
        return [int(one) for one in more.ids]


def _complete(index: OpenIndex, folder: Path, catalogue: Catalogue, shards: dict[str, list[str]], last: Next) -> None:
    """Candidate vectors, engine and number of candidates made and measured anew, with the options of the build."""
    info = index.info
    how = Options(
        info["engine"]["name"],
        index.address,
        target=info["target"],
        candidates=info["asked"]["candidates"],
        coarse=info["asked"]["coarse"],
        map=info["map"],
        seed=info["seed"],
    )
    for name in (MAPS, chances.FILE):  # links to the old version's
        (folder / name).unlink(missing_ok=True)
    index.close()  # a database folder is opened by one at a time
    complete(folder, index.root, index.model, catalogue, shards, how, padding=info["padding"], after=last)


def _grow_engines(index: OpenIndex, folder: Path, new: dict[str, list[str]], more: Catalogue) -> None:
    for side, numbers in ((IMAGE, more.ids), (TEXT, more.rows)):
        if not len(numbers):
            _carry_engine(index, folder, side)
            continue
        sets = Sets([folder / SETS / name for name in new[side]])
        rows = all_rows(index.searcher.proposer, sets, side, room=folder)
        engine = _own_engine(index, side)
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            engine.add(numbers[part], rows[part].astype(np.float32))
        engine.save(folder / ENGINE / side)
        if side == IMAGE and index.info["map"]:
            files.write_array(folder / "map.npy", _longer_map(index, rows))
        forget_rows({side: rows})


def _carry_engine(index: OpenIndex, folder: Path, side: str) -> None:
    """Nothing was added to a side: its engine goes on as it is."""
    if side in index.searcher.sides:
        _own_engine(index, side).save(folder / ENGINE / side)


def _longer_map(index: OpenIndex, rows: np.ndarray) -> np.ndarray:
    """The old map, and the new pictures beside those that they resemble."""
    old = np.load(index.folder / "map.npy", allow_pickle=False)
    some = np.linspace(0, len(old) - 1, min(KNOWN, len(old))).astype(np.int64)
    known = as_float32(index.searcher.proposer.rows(index.searcher.sides[IMAGE].sets.take(some), IMAGE)).mean(1)
    return np.concatenate([old, picture_map.beside(rows, known, old[some])])


def _no_thumbs(folder: Path, count: int, first: int) -> list[str]:
    """Empty thumbnails, for features without pictures in an index that has some."""
    made = names(THUMBS, count, first=first)
    for number, name in enumerate(made):
        many = min(SHARD, count - number * SHARD)
        files.write_array(sizes_of(folder / name), np.zeros((many, 2), dtype=np.int64))
        write_records(folder / name, [b""] * many)
    return made


def remove(index: OpenIndex, ids: list[int]) -> None:
    """Bar these pictures and their captions; pack the index anew once a quarter of it is barred."""
    with versions.locked(index.root, wait=True):
        _open_newest(index)
        places = np.array([index.catalogue.place(one) for one in ids], dtype=np.int64)
        catalogue = index.catalogue.without(places)
        if not catalogue.alive.any():
            raise BadInput("nothing would be left in the index; delete the folder instead")
        folder = versions.draft(index.root, {"remove": ids, "from": index.version})
        origins.write(folder, origins.begins_of(index.origins))
        last_captions = TEXT in index.searcher.sides and not catalogue.alive[catalogue.picture].any()
        if last_captions or 1 - catalogue.alive.mean() > SPARSE:
            _pack(index, folder, catalogue)
            return
        texts = index.catalogue.rows[np.isin(index.catalogue.picture, places)]
        gone = {IMAGE: index.catalogue.ids[places], TEXT: texts}
        _link(index, folder, SETS)
        engines = {side: _own_engine(index, side) for side in index.searcher.sides}
        in_files = engine_class(index.info["engine"]["name"]).in_files
        if in_files:  # a database forgets them after the switch: the old version has them
            _forget(engines, gone, folder)
        if index.info["map"]:
            files.write_array(folder / "map.npy", np.load(index.folder / "map.npy", allow_pickle=False))
        _commit(index, folder, catalogue, index.info)
        if not in_files:
            _forget(engines, gone, folder)


def _forget(engines: dict[str, Engine], gone: dict[str, np.ndarray], folder: Path) -> None:
    for side, engine in engines.items():
        engine.remove(gone[side])
        engine.save(folder / ENGINE / side)


def _pack(index: OpenIndex, folder: Path, catalogue: Catalogue) -> None:
    """All that is left, written anew, with an engine and candidates of its own."""
    catalogue, pictures, texts = catalogue.packed()
    kept = {IMAGE: pictures, TEXT: texts}
    shards = {side: names(side, len(kept[side])) for side in kept}
    for side, own_side in index.searcher.sides.items():
        sets, places = own_side.sets, kept[side]
        for number, name in enumerate(shards[side]):
            part = sets.take(places[number * SHARD : (number + 1) * SHARD])
            write_shard(folder / SETS / name, part, keep_padding=index.model.keeps_padding)
    shards[THUMBS] = names(THUMBS, len(pictures)) if index.thumbs is not None else []
    for number, name in enumerate(shards[THUMBS]):
        own = pictures[number * SHARD : (number + 1) * SHARD]
        files.write_array(sizes_of(folder / SETS / name), index.catalogue.size[own])
        assert index.thumbs is not None
        write_records(folder / SETS / name, (index.thumbs[place] for place in own.tolist()))
    versions.link_tree(index.folder / MODEL, folder / MODEL)
    _complete(index, folder, catalogue, shards, index.info["next"])


def _link(index: OpenIndex, folder: Path, *parts: str) -> None:
    """What the new version shares with the old one."""
    for part in (MODEL, *parts):
        versions.link_tree(index.folder / part, folder / part)
    for name in (MAPS, chances.FILE):
        if (index.folder / name).exists():
            versions.link_file(index.folder / name, folder / name)


def _own_engine(index: OpenIndex, side: str) -> Engine:
    """An engine to change: one in files is opened once more, so that searches under way keep theirs."""
    if engine_class(index.info["engine"]["name"]).in_files:
        return index.open_engine(side)
    engine = index.searcher.sides[side].engine
    if engine is None:
        raise BadInput("this index is closed")
    return engine


def _commit(index: OpenIndex, folder: Path, catalogue: Catalogue, info: IndexInfo) -> None:
    counts = {"pictures": int(catalogue.alive.sum()), "captions": int(catalogue.alive[catalogue.picture].sum())}
    catalogue.save(folder / ITEMS)
    files.write_json(folder / "index.json", {**info, **counts})
    versions.finish(folder, index.root)


def _open_newest(index: OpenIndex) -> None:
    """Open what another process made of the index meanwhile: a change is made to the newest version."""
    if versions.named(index.root)[0].name != index.version:
        index.close()
        index.open_newest(verify=True)
