"""Files that are odd rather than broken: shapes nobody means, recipes that lack a part, versions still to come."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import matchlight as ml
from matchlight import files
from matchlight.console import VERSION
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.formats import labelled
from matchlight.data.formats.safety import load_npy
from matchlight.indexing import versions
from matchlight.measuring.referee import evaluate_file
from matchlight.runs.folder import Run
from tests.tiny import tiny_pairs

DEEP = "[" * 100_000 + "]" * 100_000


def with_shape(path: Path, shape: str, values: int = 120) -> Path:
    """A .npy file whose header says any shape."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(4 * values))
    return path


@pytest.mark.parametrize(("shape", "values"), [("()", 1), ("(-2, -3)", 6), ("(-6,)", 6), ("(True, 4)", 4)])
def test_an_array_of_a_shape_that_nobody_means_is_one_clear_line(tmp_path: Path, shape: str, values: int) -> None:
    path = with_shape(tmp_path / "train_ims.npy", shape, values)
    with pytest.raises(BadInput, match="train_ims.npy: .*shape"):
        load_npy(path)
    (tmp_path / "train_caps.txt").write_text("a\n" * 5)
    with pytest.raises(BadInput, match="train_ims.npy"):
        formats.read(tmp_path)
    with pytest.raises(BadInput, match="train_ims.npy"):
        evaluate_file(path, tiny_pairs())


@pytest.mark.parametrize("text", [DEEP, '{"a": ' * 100_000, "9" * 5000, "{"])
def test_json_that_is_nested_deeply_or_broken_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(BadInput, match="recipe.json: not valid JSON"):
        files.read_json(tmp_path / "recipe.json", "a test")
    with pytest.raises(BadInput, match="recipe.json"):
        Run.load(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return ml.train("vse++", tiny_pairs(), out, device="cpu", epochs=1, preset="small", dim=8, word_dim=8)


def changed(path: Path, **more: object) -> None:
    """A JSON file with some values changed; None takes one out."""
    value = {**json.loads(path.read_text()), **more}
    gone = {name for name, one in more.items() if one is None}
    path.write_text(json.dumps({name: one for name, one in value.items() if name not in gone}))


@pytest.fixture
def copied(run: Run, tmp_path: Path) -> Path:

    return Path(shutil.copytree(run.folder, tmp_path / "run"))


@pytest.mark.parametrize("view", [None, {}, [], "grid"])
def test_a_recipe_without_a_view_is_refused_when_the_run_is_opened(copied: Path, view: object) -> None:
    changed(copied / "recipe.json", view=view)
    with pytest.raises(BadInput, match="recipe.json: not a recipe as `matchlight train` writes it"):
        Run.load(copied)


@pytest.mark.parametrize("later", ["99.0.0", "0.10.0", "0.1.1", f"{VERSION}.1"])
def test_a_run_of_a_later_version_is_refused_and_both_versions_are_named(copied: Path, later: str) -> None:
    changed(copied / "recipe.json", version=later)
    with pytest.raises(BadInput, match=f"made by Matchlight {later}, and this is {VERSION}; upgrade"):
        Run.load(copied)


@pytest.mark.parametrize("earlier", [None, "0.0.9", VERSION, f"{VERSION}rc1", "unknown"])
def test_a_run_of_this_or_an_earlier_version_opens(copied: Path, earlier: str | None) -> None:
    changed(copied / "recipe.json", version=earlier)
    assert Run.load(copied).method == "vse++"


@pytest.mark.parametrize("arguments", [{"dim": -4}, {"dim": 16, "dropout": 7}])
def test_a_recipe_that_no_model_can_have_is_one_clear_line(copied: Path, arguments: dict[str, float]) -> None:
    known = json.loads((copied / "recipe.json").read_text())["arguments"]
    changed(copied / "recipe.json", arguments={**known, **arguments})
    with pytest.raises(BadInput, match="recipe.json: "):
        Run.load(copied)


@pytest.fixture(scope="module")
def index(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("indexes") / "index"
    ml.Index.build(run, tiny_pairs(), root).close()
    return root


def sealed(index: Path, out: Path, change: Callable[[Path], object]) -> Path:
    """A copy whose version was changed before its checksums were taken, as a stranger's may be."""
    root = Path(shutil.copytree(index, out))
    folder, _ = versions.named(root)
    change(folder)
    versions.finish(folder.rename(folder.with_name(f"{folder.name}.partial")), root)
    return root


def test_an_index_of_a_later_version_is_refused_and_both_versions_are_named(index: Path, tmp_path: Path) -> None:
    root = sealed(index, tmp_path / "index", lambda folder: changed(folder / "index.json", version="7.1.0"))
    with pytest.raises(BadInput, match=f"index: made by Matchlight 7.1.0, and this is {VERSION}; upgrade"):
        ml.Index.load(root)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def retyped(path: Path, kind: str) -> None:
    np.save(path, np.load(path).view(kind))


def shortened(path: Path) -> None:
    np.save(path, np.load(path)[:, 1:])


SHARD = "sets/image-00000/shard.json"
DAMAGE: dict[str, Callable[[Path], object]] = {
    "engine": lambda folder: changed(folder / "index.json", engine=[]),
    "shards": lambda folder: changed(folder / "index.json", shards={}),
    "shard of no name": lambda folder: changed(folder / "index.json", shards={"image": [3]}),
    "sides": lambda folder: changed(folder / "index.json", sides={}),
    "padding": lambda folder: changed(folder / "index.json", padding="x"),
    "items": lambda folder: changed(folder / SHARD, items=1),
    "no parts": lambda folder: changed(folder / SHARD, parts=[]),
    "parts": lambda folder: changed(folder / SHARD, parts=[{"arrays": {}, "follows": []}]),
    "names": lambda folder: cut(folder / "items" / "names.npy"),
    "ids that are dates": lambda folder: retyped(folder / "engine" / "image" / "ids.npy", "M8[s]"),
    "effort": lambda folder: changed(folder / "engine" / "image" / "engine.json", effort={}),
    "kind": lambda folder: changed(folder / "engine" / "image" / "engine.json", kind="cells of another kind"),
    "too few ids": lambda folder: shortened(folder / "engine" / "image" / "ids.npy"),
    "ids": lambda folder: cut(folder / "engine" / "image" / "ids.npy"),
    "map": lambda folder: (folder / "map.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': (1, 2\n"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_an_index_whose_checksums_hold_and_whose_files_do_not_is_one_clear_line(
    index: Path, tmp_path: Path, kind: str
) -> None:
    root = sealed(index, tmp_path / "index", DAMAGE[kind])
    with pytest.raises(BadInput, match="build the index again") as told, ml.Index.load(root, device="cpu") as opened:
        opened.search("a cat", top=1)
    assert str(root) in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("entry", [None, [], {}, {"bytes": "3", "sha256": 4}])
def test_a_list_of_files_without_sizes_and_checksums_is_one_clear_line(
    index: Path, tmp_path: Path, entry: object
) -> None:
    root = Path(shutil.copytree(index, tmp_path / "index"))
    folder, _ = versions.named(root)
    (folder / "manifest.json").write_text(json.dumps({"format": 1, "files": {"index.json": entry}}))
    with pytest.raises(BadInput, match="manifest.json: damaged"):
        ml.Index.load(root)


@pytest.mark.parametrize(("column", "texts"), [("caption", ["a", None, "c"]), ("captions", [["a"], None, ["c", None]])])
def test_a_null_caption_in_parquet_is_skipped_and_counted(tmp_path: Path, column: str, texts: list[object]) -> None:
    names = [f"{i}.png" for i in range(3)]
    pq.write_table(pa.table({"image": names, column: texts, "split": ["test"] * 3}), tmp_path / "a.parquet")
    pairs = formats.read(tmp_path)
    assert list(pairs.captions) == ["a", "c"] and list(pairs.names) == ["0.png", "2.png"]
    empty = {one.kind: one for one in pairs.problems}["empty"]
    assert empty.count == np.sum([1, column == "captions"]) and "row 1: 1.png" in empty.examples[0]


def test_a_header_that_ends_in_the_middle_of_a_statement_is_one_clear_line(tmp_path: Path) -> None:
    head = b"{'descr': '<f4', 'shape': (2, \n"  # NumPy's tokenizer fails on it with an error of its own
    for name in ("train_ims.npy", "scores.npy"):
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(BadInput, match="its header is damaged"):
        load_npy(tmp_path / "train_ims.npy")
    with pytest.raises(BadInput, match="not a readable .npy matrix"):
        evaluate_file(tmp_path / "scores.npy", tiny_pairs())


@pytest.mark.parametrize("word", ["9" * 5_000, "-1", "art", "1.5", ""])
def test_a_class_that_is_no_whole_number_is_told_with_its_line(tmp_path: Path, word: str) -> None:
    with pytest.raises(BadInput, match="a.list line 2: the last column must be the class, a whole number"):
        labelled._classes([["text", "image", "3"], ["text", "image", word]], tmp_path / "a.list")
