"""Damaged checkpoints, run folders and indexes: read, or refused in one line; nothing in them is ever run.

An index is damaged in three ways: any of its files; a field of its JSON with checksums made to fit, as a stranger's may
be; an array with checksums made to fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tests.faults import children
from tests.faults.damage import WAYS, Bomb, damaged, odd_array, owned, replaced
from tests.faults.ledger import Case, Outcome
from tests.faults.stages import World, training_words

TAMPERED = 4  # of each way, or of each file
FIELDS, ARRAYS = 150, 120
BYTES = (*list(WAYS)[:8], "a named pipe", "a folder")
QUESTION = "a cat near dog"


def tampered(world: World, *, each: int = TAMPERED) -> Iterator[Case]:
    """All of them."""
    yield from _checkpoints(world, each)
    yield from _runs(world, each)
    yield from _indexes(world, each)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def _checkpoints(world: World, each: int) -> Iterator[Case]:
    for kind in ("zip", "legacy", "inner pickle"):
        for column, way in enumerate(BYTES):
            for number in range(each if kind != "inner pickle" or way in BYTES[:6] else 0):
                run = partial(_imported, world, kind, way, 100 * column + number)
                yield Case("checkpoints", kind, way, number, run)
    for number in range(24):
        yield Case("checkpoints", "code inside", "a call", number, partial(_evil, world, number))


def _imported(world: World, kind: str, way: str, seed: int, folder: Path) -> Outcome:
    base = world.has(f"checkpoints/{kind}", partial(_write_checkpoint, kind))
    shutil.copytree(base, folder / "given")
    damaged(folder / "given", way, np.random.default_rng(seed))
    if kind == "inner pickle":
        _repacked(folder / "given")
    return _import(folder, folder / "given" / "model.pth")


def _import(folder: Path, checkpoint: Path) -> Outcome:
    (folder / "vocab.json").write_text(json.dumps({"word2idx": {"a": 0}, "idx2word": {"0": "a"}, "idx": 1}))
    words = ["import", checkpoint, "--method", "scan", "--vocab", folder / "vocab.json", "-o", folder / "run"]
    ended = children.run(words, cache=folder / "cache")
    if owned(folder).exists():
        return Outcome(False, "code was run", ended.err[-200:], ended.peak)
    if (complaint := ended.complaint) is not None:
        return Outcome(False, "import", complaint, ended.peak)
    return Outcome(True, "one line" if ended.code else "read", ended.line, ended.peak)


def _write_checkpoint(kind: str, path: Path) -> None:
    from tests.training.test_foreign_fuzz import inner_pickle, sound

    path.mkdir()
    if kind == "inner pickle":
        (path / "model.pth").write_bytes(inner_pickle())
    else:
        (path / "model.pth").write_bytes(sound(kind == "zip"))


def _repacked(folder: Path) -> None:
    path = folder / "model.pth"
    if path.is_file():

        def pack() -> None:
            from tests.training.test_foreign_fuzz import with_pickle

            path.write_bytes(with_pickle(path.read_bytes()))

        children.do(pack)


def _evil(world: World, number: int, folder: Path) -> Outcome:
    def write() -> None:
        from tests.reference.foreign_files import BOXES, packed
        from tests.training.test_foreign_refusals import evil_things

        things, box = evil_things(owned(folder)), ("zip", "legacy")[number % 2]
        thing = list(things.values())[number // 2 % len(things)]
        BOXES[box](folder / "model.pth", packed({"model": thing, "opt": Bomb(owned(folder))}, legacy=box == "legacy"))

    children.do(write)
    return _import(folder, folder / "model.pth")


# ---- run folders -----------------------------------------------------------------------------------------------------


def _runs(world: World, each: int) -> Iterator[Case]:
    for column, way in enumerate(WAYS):
        for number in range(each):
            yield Case("run folders", "evaluate, resume", way, number, partial(_run, world, way, 100 * column + number))


def _run(world: World, way: str, seed: int, folder: Path) -> Outcome:
    run = Path(shutil.copytree(world.run, folder / "run"))
    hit = damaged(run, way, np.random.default_rng(seed))
    if not hit:
        return Outcome(True, "no such file", count=0)
    words: list[object] = ["evaluate", run, "--data", world.given, "--device", "cpu"]
    if seed % 2:
        words = [*training_words(["vse++"], world.given, run), "--resume"]
    ended = children.run(words, cache=folder / "cache")
    if owned(run).exists():
        return Outcome(False, "code was run", hit, ended.peak)
    if (complaint := ended.complaint) is not None:
        return Outcome(False, str(words[0]), f"{hit}: {complaint}", ended.peak)
    return Outcome(True, "one line" if ended.code else "read", ended.line, ended.peak)


# ---- indexes ---------------------------------------------------------------------------------------------------------


def _indexes(world: World, each: int) -> Iterator[Case]:
    for column, way in enumerate(WAYS):
        for number in range(2 * each):
            yield Case("index files", "search", way, number, partial(_file, world, way, 100 * column + number))
    for number in range(FIELDS):
        yield Case("index fields", "search", "wrong value, sums fit", number, partial(_field, world, number))
    for number in range(ARRAYS):
        yield Case("index arrays", "search", "wrong array, sums fit", number, partial(_array, world, number))


def _index(world: World, folder: Path) -> Path:
    run, data = world.run, world.given
    base = world.has("index", lambda path: world.command(["index", run, "--data", data, "-o", path]))
    return Path(shutil.copytree(base, folder / "index"))


def _file(world: World, way: str, seed: int, folder: Path) -> Outcome:
    root = _index(world, folder)
    hit = damaged(root, way, np.random.default_rng(seed))
    return _searched(root, folder, hit) if hit else Outcome(True, "no such file", count=0)


def _field(world: World, seed: int, folder: Path) -> Outcome:
    root, chance = _index(world, folder), np.random.default_rng(seed)
    found = sorted(path for path in (root / "v0001").rglob("*.json") if path.name != "manifest.json")
    path = found[seed % len(found)]
    path.write_text(json.dumps(replaced(json.loads(path.read_text()), chance)))
    _seal(root)
    return _searched(root, folder, path.name)


def _array(world: World, seed: int, folder: Path) -> Outcome:
    root, chance = _index(world, folder), np.random.default_rng(seed)
    found = sorted((root / "v0001").rglob("*.npy"))
    path = found[seed % len(found)]
    path.write_bytes(odd_array(np.load(path), chance, owned(folder)))
    _seal(root)
    return _searched(root, folder, path.name)


def _seal(root: Path) -> None:
    """Sizes and checksums that fit the files as they are now."""
    folder = root / "v0001"
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        raw = (folder / name).read_bytes()
        manifest["files"][name] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    (root / "CURRENT").write_text(f"v0001 {digest}\n")


def _searched(root: Path, folder: Path, hit: str) -> Outcome:
    def token() -> None:
        os.environ["MATCHLIGHT_MILVUS_TOKEN"] = "a token that must not leave"

    ended = children.run(["search", root, QUESTION, "--device", "cpu"], cache=folder / "cache", before=token)
    if owned(folder).exists() or any(path.name == "owned" for path in root.rglob("owned")):
        return Outcome(False, "code was run", hit, ended.peak)
    if (complaint := ended.complaint) is not None:
        return Outcome(False, "search", f"{hit}: {complaint}", ended.peak)
    return Outcome(True, "one line" if ended.code else "read", ended.line, ended.peak)
