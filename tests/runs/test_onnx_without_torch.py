"""An index of an exported dual encoder is built, searched, changed and served where torch cannot be imported.

What it finds is compared with torch's scores of the same vectors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from indexed import pairs as indexed_pairs
from indexed import trained
from tiny import pairs_for, tiny_settings

import matchlight as ml
from matchlight.core import IMAGE, TEXT, BadInput, Embedding, Matcher
from matchlight.indexing import Index
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import as_embeddings, comparing
from matchlight.indexing.query_encoder import QueryEncoder
from matchlight.indexing.scorers import DotProduct
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.methods.dual import ScaledCosine
from matchlight.pairs import Pairs
from matchlight.parts.similarities import Dot
from matchlight.runs.folder import Run
from matchlight.runs.onnx_export import export_onnx
from matchlight.training.registry import find

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

BLOCKED = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Blocked())
"""
TORCH = ("torch", "accelerate", "transformers", "timm")
RUN = "import json\nfrom matchlight.cli import main\nsys.exit(max(main(one) for one in json.loads(sys.argv[1])))"


def without(blocked: tuple[str, ...], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process in which these packages cannot be imported."""
    whole = BLOCKED.format(blocked=blocked) + code
    return subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True)


def commands(*asked: list[object]) -> subprocess.CompletedProcess[str]:
    """Some commands, one after the other, without torch."""
    return without(TORCH, RUN, json.dumps([[str(part) for part in one] for one in asked]))


def searched(index: Path, *questions: list[object]) -> list[dict[str, Any]]:
    """What searches without torch print."""
    done = commands(*(["search", index, *question, "--json"] for question in questions))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def model(collection: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(Run.load(collection[0].parent / "run", device="cpu"), path)
    return path


@pytest.fixture(scope="module")
def built(model: Path, collection: tuple[Path, Path]) -> Path:
    """An index that was built without torch."""
    out = model.parent / "index"
    done = commands(["index", "--model", model, "--data", collection[1], "-o", out, "--json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "onnx"
    return out


def test_words_find_what_torch_finds(built: Path, model: Path) -> None:
    """Ids, their order and scores are those of torch's dot products of the same vectors."""
    (results,) = searched(built, ["a red ball on white", "--exact", "--no-fold", "--top", 24])
    run = ml.load(model)
    with Index.load(built) as index:
        stored = as_embeddings(index.searcher.sides[IMAGE].sets.take(np.arange(24)))
        ids = index.ids
    with torch.inference_mode():
        query = as_embeddings(QueryEncoder(run).words("a red ball on white")[0])
        scores = run.matcher.score(stored, query)[:, 0].numpy()
    order = np.argsort(-scores, kind="stable")
    assert [hit["id"] for hit in results["results"]] == ids[order].tolist()
    np.testing.assert_allclose([hit["score"] for hit in results["results"]], scores[order], atol=1e-5)


def test_every_kind_of_question_is_answered_as_in_a_process_with_torch(
    built: Path, collection: tuple[Path, Path]
) -> None:
    picture = collection[1] / "images" / "blue_box.png"
    asked: list[tuple[list[object], dict[str, Any]]] = [
        (["the box +blue -ball"], {"words": "the box +blue -ball"}),
        (["--image", picture], {"image": picture}),
        (["red", "--image", picture], {"words": "red", "image": picture}),
        (["--like", 3], {"like": 3}),
        (["a ring", "--where", "label=ring", "--top", 2], {"words": "a ring", "where": {"label": ["ring"]}, "top": 2}),
        (["a ring", "--find", "text"], {"words": "a ring", "find": "text"}),
        (["ein Schiff im Sturm"], {"words": "ein Schiff im Sturm"}),
    ]
    found = searched(built, *(arguments for arguments, _ in asked))
    with Index.load(built) as index:
        for (arguments, settings), results in zip(asked, found, strict=True):
            wanted = index.search(**settings)
            assert [hit["id"] for hit in results["results"]] == [hit.id for hit in wanted.hits], arguments
            for name in ("score", "chance"):
                values = [hit[name] for hit in results["results"]]
                assert values == pytest.approx([getattr(hit, name) for hit in wanted.hits], abs=1e-5), arguments
            assert results["nothing_fits"] == wanted.nothing_fits and results["unknown"] == wanted.unknown
    assert found[-1]["unknown"] == ["ein", "schiff", "im", "sturm"]


CHANGE = """
import json
from matchlight.indexing import Index
from matchlight.pairs import Pairs
with Index.load(sys.argv[1]) as index:
    added = index.add(Pairs.read(sys.argv[2]))
    index.remove(added[1:])
    words = index.explain(0, "a red ball")["weights"]
    print(json.dumps([len(index), index.search("a red ball", top=1).hits[0].image, len(words), len(words[0])]))
"""


def test_it_grows_shrinks_and_explains_without_torch(
    model: Path, collection: tuple[Path, Path], tmp_path: Path
) -> None:
    Index.build(OnnxTowers.open(model), Pairs.read(collection[1]), tmp_path / "index", map=False).close()
    done = without(TORCH, CHANGE, str(tmp_path / "index"), str(collection[1]))
    assert done.returncode == 0, done.stderr
    pictures, _, words, tiles = json.loads(done.stdout)
    assert (pictures, words, tiles) == (25, 3, 16)


SERVE = """
import json
from starlette.testclient import TestClient
from matchlight.serve import create
with TestClient(create(sys.argv[1]), base_url="http://127.0.0.1:8000") as client:
    found = client.get("/api/search", params={"q": "a red ball", "top": 3}).json()["results"]
    told = client.get(f"/api/items/{found[0]['id']}/explain", params={"q": "a red ball"})
print(json.dumps([[hit["id"] for hit in found], told.status_code]))
"""


def test_it_is_served_without_torch(built: Path) -> None:
    pytest.importorskip("fastapi")
    done = without(TORCH, SERVE, str(built))
    assert done.returncode == 0, done.stderr
    ids, explained = json.loads(done.stdout.splitlines()[-1])
    (found,) = searched(built, ["a red ball", "--top", 3])
    assert ids == [hit["id"] for hit in found["results"]] and explained == 200


def test_an_index_may_keep_the_words_of_a_run_as_onnx_and_is_then_asked_without_torch(
    collection: tuple[Path, Path], tmp_path: Path
) -> None:
    """Words and items of the index are; a picture of one's own is not, which one line says."""
    run, pairs = Run.load(collection[0].parent / "run", device="cpu"), Pairs.read(collection[1])
    Index.build(run, pairs, tmp_path / "index", onnx_words=True).close()
    with Index.load(collection[0], device="cpu") as plain, Index.load(tmp_path / "index", device="cpu") as kept:
        for asked in ({"words": "a red ball +ring"}, {"image": collection[1] / "images" / "blue_box.png"}):
            one, other = plain.search(**asked), kept.search(**asked)
            assert [hit.id for hit in one.hits] == [hit.id for hit in other.hits]
            assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=1e-5)
        wanted = kept.search("the ring is blue", top=5)
    words, like = searched(tmp_path / "index", ["the ring is blue", "--top", 5], ["--like", 3])
    assert [hit["id"] for hit in words["results"]] == [hit.id for hit in wanted.hits] and like["results"]
    done = commands(["search", tmp_path / "index", "--image", collection[1] / "images" / "blue_box.png"])
    assert done.returncode == 2 and "a model of vse_infty needs torch" in done.stderr


def test_words_of_a_model_of_sets_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="kept as ONNX of dual encoders alone"):
        Index.build(trained("scan"), indexed_pairs(), tmp_path / "index", onnx_words=True)


def test_an_index_of_another_model_says_in_one_line_that_it_needs_torch(collection: tuple[Path, Path]) -> None:
    done = commands(["search", collection[0], "a red ball"])
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "a model of vse_infty needs torch, which is not installed" in done.stderr


def test_without_onnx_runtime_one_line_says_what_to_install(built: Path, model: Path, tmp_path: Path) -> None:
    for arguments in (["search", built, "a ball"], ["index", "--model", model, "--data", "x", "-o", tmp_path / "i"]):
        code = f"sys.modules['onnxruntime'] = None\n{RUN}"
        done = without(TORCH, code, json.dumps([[str(one) for one in arguments]]))
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert "needs the packages onnx and onnxruntime: pip install 'matchlight[onnx]'" in done.stderr


def test_a_model_of_sets_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    settings = {**tiny_settings(find("scan").defaults), "epochs": 1}
    export_onnx(ml.train("scan", pairs_for("scan"), tmp_path / "run", **settings), tmp_path / "scan.onnx")
    done = commands(["index", "--model", tmp_path / "scan.onnx", "--data", tmp_path, "-o", tmp_path / "index"])
    assert done.returncode == 2 and "only dual encoders" in done.stderr and not (tmp_path / "index").exists()


def test_a_dot_product_by_numpy_is_torchs() -> None:
    """Plain, and with a scale and a bias; vectors in half precision, as they are stored."""
    draw = np.random.default_rng(0)
    images, texts = (draw.standard_normal((n, 1, 8)).astype(np.float16) for n in (5, 7))
    sides = [ItemSets(({"vectors": side},)) for side in (images, texts)]
    for similarity in (Dot(), ScaledCosine(bias=True), ScaledCosine(bias=False)):
        scorer, own = comparing(Matcher({}, similarity), torch.device("cpu"))
        assert isinstance(scorer, DotProduct) and own is scorer
        with torch.inference_mode():
            wanted = similarity(*(Embedding(torch.from_numpy(side).float()) for side in (images, texts)))
        np.testing.assert_allclose(scorer.scores(*sides), wanted, rtol=1e-5, atol=1e-5)
        assert (own.rows(sides[1], TEXT) == texts).all()
