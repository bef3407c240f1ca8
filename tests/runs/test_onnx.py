"""A run as ONNX gives what torch gives, for batches and captions of any length, and is a run again by itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import pairs_for, tiny_pairs, tiny_settings

import matchlight as ml
from matchlight.cli import main
from matchlight.core import TEXT, BadInput, Items
from matchlight.inputs.onnx_towers import KEY, OnnxTowers
from matchlight.pairs import Pairs
from matchlight.runs import embeddings
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run
from matchlight.runs.onnx_export import export_onnx
from matchlight.runs.onnx_vectors import export_vectors
from matchlight.training.registry import find

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def trained(name: str, folder: Path, **given: object) -> Run:
    settings = given if given else {**tiny_settings(find(name).defaults), "epochs": 1}
    return ml.train(name, pairs_for(name), folder, **settings)


@pytest.fixture(scope="module")
def collected(collection: tuple[Path, Path]) -> tuple[Run, Pairs]:
    """A run of a frozen backbone, whose picture tower begins at pixels, and its data."""
    index, data = collection
    return Run.load(index.parent / "run", device="cpu"), Pairs.read(data)


@pytest.fixture(scope="module")
def exported(collected: tuple[Run, Pairs], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(collected[0], path, pairs=collected[1])
    return path


OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in ("vse++", "vsrn", "dive")]


@pytest.mark.parametrize("name", ["vse_infty", "dual", "scan", *OTHERS])
def test_towers_give_what_torch_gives(name: str, tmp_path: Path) -> None:
    """Pictures and captions in other numbers, and of other lengths, than the file was written with."""
    run = trained(name, tmp_path / "run")
    made = export_onnx(run, tmp_path / "a.onnx", pairs=pairs_for(name))
    assert made.real is not None and max(made.random, made.real) < 1e-5 and made.cosine > 0.99999
    assert (made.opset, made.bytes) == (17, (tmp_path / "a.onnx").stat().st_size)


def test_a_caption_shorter_than_the_values_that_are_averaged_is_read(tmp_path: Path) -> None:
    run = trained("vse_infty", tmp_path / "run", pooling="top", top_words=3, dim=16, hidden=8, word_dim=8, epochs=1)
    export_onnx(run, tmp_path / "a.onnx")
    short = OnnxTowers.open(tmp_path / "a.onnx").text(np.array([[5]]), np.ones((1, 1), bool))
    items = Items(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, dtype=torch.int64))
    with torch.inference_mode():
        np.testing.assert_allclose(short, run.matcher.eval().embed(TEXT, items).members[0].vectors, atol=1e-6)


def test_int8_is_near_and_said_to_be_so(tmp_path: Path) -> None:
    made = export_onnx(trained("vse_infty", tmp_path / "run"), tmp_path / "a.onnx", int8=True, pairs=tiny_pairs())
    assert made.int8 and 1e-5 < made.random < 0.1 and 0.99 < made.cosine < 1
    assert OnnxTowers.open(tmp_path / "a.onnx").info["int8"]


def test_an_ensemble_of_dual_encoders_is_one(tmp_path: Path) -> None:
    run = trained("ncr", tmp_path / "run", scorer="vse_infty", dim=16, hidden=8, word_dim=8, batch=8, epochs=1, warm=1)
    assert len(run.matcher.each()) == 2
    export_onnx(run, tmp_path / "a.onnx")
    scores = [split_scores(one, tiny_pairs(), "test") for one in (run, ml.load(tmp_path / "a.onnx"))]
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_an_exported_joint_model_scores_as_its_run(tmp_path: Path) -> None:
    """Its scale and bias, its preprocessing and its tokenizer are in the file."""
    run = trained("dual", tmp_path / "run")
    export_onnx(run, tmp_path / "a.onnx")
    again, pairs = ml.load(tmp_path / "a.onnx"), pairs_for("dual")
    np.testing.assert_allclose(split_scores(again, pairs, "test"), split_scores(run, pairs, "test"), rtol=1e-4)


def test_a_frozen_backbone_becomes_part_of_the_file(exported: Path, collected: tuple[Run, Pairs]) -> None:
    """The run reads features that were stored in half precision; the file computes them from pixels."""
    run, pairs = collected
    towers = OnnxTowers.open(exported)
    assert towers.info["picture"]["input"] == "pixels" and towers.is_dual
    near = split_scores(ml.load(exported), pairs, "test") - split_scores(run, pairs, "test")
    assert np.abs(near).max() < 2e-3


def test_an_index_of_an_exported_model_is_built_and_searched_without_the_run(
    exported: Path, collection: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, out = collection[0], tmp_path / "index"
    assert main(["index", "--model", str(exported), "--data", str(collection[1]), "-o", str(out)]) == 0
    exported.rename(moved := exported.with_name("moved.onnx"))  # the index has a copy of its own
    try:
        found = [_search(folder, capsys) for folder in (index, out)]
    finally:
        moved.rename(exported)
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=2e-3)


def _search(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[float]]:
    capsys.readouterr()
    assert main(["search", str(folder), "a red ball on white", "--exact", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    return [one["image"] for one in results[:3]], [one["score"] for one in results[:3]]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
from matchlight.cli import main
from matchlight.inputs.onnx_towers import OnnxTowers
assert main(["embed", {model!r}, "--data", {data!r}, "-o", {out!r}, "--to", "faiss"]) == 0
import faiss
asked = OnnxTowers.open({model!r}).captions(["a red ball on white"])[:, 0]
print(*faiss.read_index({out!r} + "/image.faiss").search(asked, 3)[1][0])
"""


def test_a_collection_is_embedded_and_searched_where_torch_is_not_installed(
    exported: Path, collection: tuple[Path, Path], tmp_path: Path
) -> None:
    code = WITHOUT_TORCH.format(model=str(exported), data=str(collection[1]), out=str(tmp_path / "vectors"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with ml.Index.load(collection[0]) as index:
        wanted = [hit.image for hit in index.search("a red ball on white", top=3, exact=True).hits]
    names = json.loads((tmp_path / "vectors" / "items.json").read_text())["names"]
    assert [names[int(place)] for place in done.stdout.splitlines()[-1].split()] == wanted


def test_vectors_without_torch_are_those_with_it_and_leave_out_what_cannot_be_read(
    exported: Path, collection: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(collection[1], data := tmp_path / "data")
    name = Pairs.read(data).names[2]
    (data / name if (data / name).is_file() else data / "images" / name).write_bytes(b"no picture")
    pairs = Pairs.read(data)
    export_vectors(exported, pairs, tmp_path / "a.npz")
    assert f"1 of {len(pairs.names)} pictures could not be read" in capsys.readouterr().err
    embeddings.export(ml.load(exported), pairs, tmp_path / "b.npz")
    ours, theirs = (dict(np.load(tmp_path / file)) for file in ("a.npz", "b.npz"))
    assert ours.keys() == theirs.keys() and len(ours["names"]) == len(pairs.names) - 1
    for key in ("names", "picture", "row"):
        assert (ours[key] == theirs[key]).all()
    for side in ("image", "text"):
        np.testing.assert_allclose(ours[side], theirs[side], atol=1e-5)


def test_vectors_of_an_exported_model_of_features_are_made_of_the_datas_own(tmp_path: Path) -> None:
    run = trained("vse_infty", tmp_path / "run")
    export_onnx(run, tmp_path / "a.onnx")
    export_vectors(tmp_path / "a.onnx", tiny_pairs(), tmp_path / "a.npz", split="test")
    embeddings.export(run, tiny_pairs(), tmp_path / "b.npz", split="test")
    ours, theirs = (np.load(tmp_path / file) for file in ("a.npz", "b.npz"))
    for side in ("image", "text"):
        np.testing.assert_allclose(ours[side], theirs[side], atol=1e-5)
    with pytest.raises(BadInput, match="reads ready-made features"):
        export_vectors(tmp_path / "a.onnx", replace(tiny_pairs(), features=None), tmp_path / "c.npz")
    of_vectors = replace(tiny_pairs(), text_features=np.zeros((len(tiny_pairs()), 3), np.float32))
    with pytest.raises(BadInput, match="has text vectors only"):
        export_vectors(tmp_path / "a.onnx", of_vectors, tmp_path / "c.npz")


ALONE = """
import sys
sys.path.insert(0, {root!r})
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession({path!r})
tokens = np.array([[1, 5, 2]])
text, = session.run(["text"], {{"tokens": tokens, "mask": np.ones((1, 3), bool)}})
image, = session.run(["image"], {{"pixels": np.zeros((2, 3, *{size}), np.float32)}})
print(text.shape, image.shape)
"""


def test_either_tower_runs_alone_in_any_program(exported: Path) -> None:
    """With nothing but ONNX Runtime; the other tower's inputs may be left out."""
    towers = OnnxTowers.open(exported)
    code = ALONE.format(root=str(Path.cwd()), path=str(exported), size=tuple(towers.info["picture"]["size"]))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    dim = towers.info["dim"]
    assert said.split("\n")[0] == f"(1, 1, {dim}) (2, 1, {dim})"


def test_pictures_and_captions_go_in_as_they_are(exported: Path, collected: tuple[Run, Pairs]) -> None:
    towers, pairs = OnnxTowers.open(exported), collected[1]
    assert pairs.pictures is not None
    scores = (
        towers.pictures([pairs.pictures.open(k) for k in range(3)])[:, 0] @ towers.captions(pairs.captions[:4])[:, 0].T
    )
    run = split_scores(collected[0], pairs, "all")[:3, :4]
    np.testing.assert_allclose(scores, run, atol=2e-3)


# ---- what cannot be --------------------------------------------------------------------------------------------------


def test_what_cannot_be_exported_is_one_line_and_leaves_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match="a model of pcme cannot be written as ONNX"):
        export_onnx(trained("pcme", tmp_path / "one"), tmp_path / "a.onnx")
    with pytest.raises(BadInput, match="an ensemble whose scores are no dot products"):
        export_onnx(trained("sgraf", tmp_path / "two"), tmp_path / "a.onnx")
    with pytest.raises(BadInput, match="written as .onnx"):
        export_onnx(trained("scan", tmp_path / "three"), tmp_path / "a.pt")
    assert not list(tmp_path.glob("a.*")) and not capfd.readouterr().out


def test_a_model_of_sets_is_exported_but_is_no_run_by_itself(tmp_path: Path) -> None:
    export_onnx(trained("scan", tmp_path / "run"), tmp_path / "a.onnx")
    with pytest.raises(BadInput, match="only dual encoders"):
        ml.load(tmp_path / "a.onnx")
    with pytest.raises(BadInput, match="only dual encoders"):
        export_vectors(tmp_path / "a.onnx", pairs_for("scan"), tmp_path / "a.npz")


def test_files_that_are_not_ours_are_one_line(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "b.onnx").write_bytes(b"no network at all")
    model = onnx.load(str(exported))
    (kept,) = [entry for entry in model.metadata_props if entry.key == KEY]
    info = json.loads(kept.value)
    for name, value in {"c": '{"format": 9}', "d": json.dumps(info | {"dim": "x"}), "e": "[", "f": None}.items():
        kept.value = value or ""
        kept.key = KEY if value else "other"
        onnx.save(model, str(tmp_path / f"{name}.onnx"))
    for name in "abcdef":
        with pytest.raises(BadInput, match=rf"{name}\.onnx: "):
            OnnxTowers.open(tmp_path / f"{name}.onnx")


def test_weights_in_files_elsewhere_are_not_followed(exported: Path, tmp_path: Path) -> None:
    onnx.save(onnx.load(str(exported)), str(tmp_path / "a.onnx"), save_as_external_data=True, location="weights.bin")
    with pytest.raises(BadInput, match="keeps its weights in other files"):
        OnnxTowers.open(tmp_path / "a.onnx")


@pytest.mark.full
def test_the_command_says_how_near_it_is(
    collection: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = collection[0].parent / "run", tmp_path / "m.onnx"
    assert main(["export", str(run), "-o", str(out), "--data", str(collection[1]), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["real"] < 1e-4 and said["opset"] == 17 and Path(said["file"]) == out
