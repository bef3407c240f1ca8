"""Damaged data of every format and layout: `data info` on it and, where that reads it, `data convert` and back.

A clear line and exit 2, or read with what is wrong counted: never a traceback, a file outside the folder shown, or code
run. What was converted has as many captions when it is read again as `data info` counted before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tests.data.layouts import LAYOUTS
from tests.faults import children
from tests.faults.children import Ended
from tests.faults.damage import SECRET, WAYS, damaged, owned
from tests.faults.ledger import Case, Outcome
from tests.faults.stages import World

EACH = 1  # of each way, for each format
TARGETS = ("jsonl", "csv", "parquet", "webdataset")


def malformed(world: World, *, each: int = EACH) -> Iterator[Case]:
    """Every way of damage to every layout."""
    for row, (name, make) in enumerate(sources().items()):
        for column, way in enumerate(WAYS):
            for number in range(each):
                seed = 10_000 * row + 100 * column + number
                run = partial(_looked_at, world, row, make, way, seed)
                yield Case("data sets", name, way, number, run)


def sources() -> dict[str, Callable[[Path], Path]]:
    """Name -> what makes a valid data set in a folder and says which path is read."""
    layouts = {_short(name): make for name, make in LAYOUTS.items()}
    return {**layouts, **{name: partial(_written, name) for name in WRITTEN}, **ARRAYS}


def _short(name: str) -> str:
    return name.replace("`", "").replace("/", "|")[:40].strip()


def _looked_at(world: World, row: int, make: Callable[[Path], Path], way: str, seed: int, folder: Path) -> Outcome:
    base = world.has(f"layouts/{row}", lambda path: _made(make, path))
    below = folder / "a" / "b"
    data = Path(shutil.copytree(base / "data", below / "data"))
    (folder / "secret.txt").write_text(SECRET)
    (below / "secret.txt").write_text(SECRET)
    place = data / json.loads((base / "read.json").read_text())
    hit = damaged(data, way, np.random.default_rng(seed))
    if not hit or place.is_symlink():  # a link that a person names is theirs to follow
        return Outcome(True, "no such file", count=0)
    ended = children.run(["data", "info", place], cache=folder / "cache")
    if (complaint := _complaint(ended, folder)) is not None:
        return Outcome(False, "info", f"{hit}: {complaint}", ended.peak)
    how = "one line" if ended.code else "counted" if "problem: " in ended.out else "read"
    if ended.code:
        return Outcome(True, how, ended.line, ended.peak)
    return _converted(place, folder, how, TARGETS[seed // 100 % len(TARGETS)], hit)


def _converted(place: Path, folder: Path, how: str, to: str, hit: str) -> Outcome:
    before = children.run(["data", "info", place, "--json"], cache=folder / "cache")
    facts = json.loads(before.out)
    to = "npz" if facts["features"] else to
    ended = children.run(["data", "convert", place, "-o", folder / "copy", "--to", to], cache=folder / "cache")
    if (complaint := _complaint(ended, folder)) is not None:
        return Outcome(False, "convert", f"{hit}: {complaint}", ended.peak)
    if ended.code:
        left = (folder / "copy").exists()
        return Outcome(not left, "one line of convert" if not left else "half a copy", ended.line, ended.peak)
    after = children.run(["data", "info", folder / "copy", "--json"], cache=folder / "cache")
    if after.code:
        return Outcome(False, "copy cannot be read", f"{hit}: {after.err[-300:]}", ended.peak)
    counts = [sum(split["captions"] for split in json.loads(one)["splits"].values()) for one in (before.out, after.out)]
    skipped = sum(int(word.replace(",", "")) for word in ended.err.split() if word.replace(",", "").isdigit())
    if counts[0] != counts[1] and not skipped:
        return Outcome(False, "copy lost captions", f"{hit}: {counts} {ended.err[-300:]}", ended.peak)
    if any(SECRET.encode() in path.read_bytes() for path in (folder / "copy").rglob("*") if path.is_file()):
        return Outcome(False, "a secret copied", hit, ended.peak)
    return Outcome(True, f"{how}, converted", "", max(ended.peak, before.peak))


def _complaint(ended: Ended, folder: Path) -> str | None:
    if (complaint := ended.complaint) is not None:
        return complaint
    if SECRET in ended.out + ended.err or "root:" in ended.out + ended.err:
        return "a file outside the folder is shown"
    return "code was run" if any(owned(path).exists() for path in (folder, *folder.rglob("data"))) else None


# ---- valid data ------------------------------------------------------------------------------------------------------


def _made(make: Callable[[Path], Path], path: Path) -> None:
    (path / "data").mkdir(parents=True)
    read = make(path / "data").relative_to(path / "data").as_posix()
    (path / "read.json").write_text(json.dumps(read))


WRITTEN = ("jsonl", "csv", "parquet", "webdataset", "npz", "scan")


def _written(name: str, folder: Path) -> Path:
    from matchlight.data import formats
    from tests.tiny import tiny_pairs, tiny_pictures

    pairs = tiny_pairs() if name in ("npz", "scan") else tiny_pictures(16, held=3)
    return formats.write(pairs, folder, to=name)


def _karpathy(folder: Path) -> Path:
    from tests.data.layouts import put

    said = [{"raw": "a dog"}, {"tokens": ["a", "b"]}]
    about = {"filepath": "val2014", "split": "train", "sentences": said}
    images = [{"filename": f"{k}.png", **about} for k in range(6)]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    return put(folder, *(f"images/val2014/{k}.png" for k in range(6)))


def _regions(folder: Path) -> Path:
    from scipy.io import savemat

    np.save(folder / "train_preim.npy", np.ones((3, 2, 4), np.float32))
    savemat(folder / "train_tag.mat", {"feat": np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32)})
    savemat(folder / "train_label.mat", {"feat": np.array([[1, 0], [0, 1], [1, 1]], np.int32)})
    (folder / "common_tags.txt").write_text("sky 12\nsea 9\nsun 4\n")
    return folder


def _labelled(suffix: str, folder: Path) -> Path:
    import h5py
    from scipy.io import savemat

    rng, path = np.random.default_rng(0), folder / f"set.{suffix}"
    found: dict[str, np.ndarray] = {}
    for part, rows in (("train", 6), ("test", 4)):
        found |= {f"{part}_imgs_deep": rng.random((rows, 5)), f"{part}_text": rng.random((rows, 3))}
        found[f"{part}_imgs_labels"] = np.arange(rows) % 3 + 1
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            file.update(found)
    else:
        savemat(path, found) if suffix == "mat" else np.savez(path, **found)
    return folder


def _wikipedia(folder: Path) -> Path:
    from scipy.io import savemat

    sizes, rng = {"tr": 6, "te": 4}, np.random.default_rng(0)
    arrays = {f"{side}_{part}": rng.random((sizes[part], 3)) for side in "IT" for part in sizes}
    savemat(folder / "raw_features.mat", arrays)
    for part, name in (("tr", "train"), ("te", "test")):
        lines = [f"text{name}{i}\timage{name}{i}\t{i % 3 + 1}\n" for i in range(sizes[part])]
        (folder / f"{name}set_txt_img_cat.list").write_text("".join(lines))
    (folder / "categories.list").write_text("art\nmusic\nwar\n")
    return folder


def _relevance(folder: Path) -> Path:
    from scipy.sparse import csr_matrix, save_npz

    from matchlight.pairs import Pairs

    pairs = Pairs.read(_written("jsonl", folder))
    save_npz(folder / "relevance.npz", csr_matrix(np.eye(len(pairs.names))[pairs.picture]))
    return folder


ARRAYS: dict[str, Callable[[Path], Path]] = {
    "karpathy": _karpathy,
    "roi": _regions,
    "labelled h5": partial(_labelled, "h5"),
    "labelled mat": partial(_labelled, "mat"),
    "labelled npz": partial(_labelled, "npz"),
    "wikipedia": _wikipedia,
    "jsonl, relevance": _relevance,
}
