"""Vectors that were made already are evaluated and searched like those of any model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given import clip_retrieval_folder, joint_vectors
from joint import make
from tiny import tiny_pairs, tiny_pictures

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.indexing import Index
from matchlight.runs.embeddings import export
from matchlight.runs.evaluation import split_scores
from matchlight.runs.importing import import_joint_model


@pytest.fixture(scope="module")
def pairs() -> ml.Pairs:
    return replace(tiny_pairs(30, 2), features=None, labels=None)


@pytest.fixture(scope="module")
def vectors(pairs) -> tuple[np.ndarray, np.ndarray]:
    return joint_vectors(pairs)


def test_scores_are_the_cosines_of_the_vectors(pairs, vectors):
    run, data = ml.Run.of_vectors(vectors, pairs, device="cpu")
    images, texts = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in vectors)
    test = images[pairs.pictures_of("test")] @ texts[pairs.rows("test")].T
    np.testing.assert_allclose(split_scores(run, data, "test"), test, atol=1e-6)
    assert ml.evaluate(run, data, "test")["rsum"] > 400  # out of 600: the vectors were made to fit


def test_the_command_line_evaluates_vectors_and_keeps_their_scores(pairs, vectors, tmp_path, capsys):
    folder = clip_retrieval_folder(tmp_path / "emb", pairs, *vectors)
    asked = ["evaluate", "--vectors", str(folder), "--split", "all", "--json"]
    assert main([*asked, "--scores", str(tmp_path / "scores.npy")]) == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == 60  # a row is a picture there
    assert np.load(tmp_path / "scores.npy").shape == (60, 60)
    for more, said in ((["runs/x"], "one of them"), (["--from-scores", "x.npy"], "one of them")):
        assert main([*asked, *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["evaluate", "runs/x"]) == 2
    assert "--data is missing" in capsys.readouterr().err
    np.savez(tmp_path / "two.npz", images=vectors[0][pairs.picture, :5], texts=vectors[1])
    assert main(["evaluate", "--vectors", str(tmp_path / "two.npz"), "--data", str(folder)]) == 2
    assert "both must be vectors of one joint model" in capsys.readouterr().err


def test_an_index_of_vectors_alone_knows_neighbours_and_says_what_questions_need(pairs, vectors, tmp_path, capsys):
    folder = clip_retrieval_folder(tmp_path / "emb", pairs, *vectors)
    assert main(["index", "--vectors", str(folder), "-o", str(tmp_path / "index"), "--device", "cpu"]) == 0
    assert "questions need --model RUN" in capsys.readouterr().err
    with Index.load(tmp_path / "index", device="cpu") as index:
        assert len(index) == 60 and len(index.neighbours(6, top=4)) == 4
        best = [hit.row for hit in index.captions(6, top=6)]
        assert {6, 7} & set(best)  # of the same photo
    for question in (["a dog"], ["--image", str(tmp_path / "none.jpg")]):
        assert main(["search", str(tmp_path / "index"), *question, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "no model that makes such vectors of a question" in said


def test_an_index_of_vectors_with_the_model_that_made_them_answers_as_the_models_own(tmp_path, capsys):
    pytest.importorskip("transformers")
    pictures = replace(tiny_pictures(30, 2), labels=None)
    formats.write(pictures, tmp_path / "data")
    data = ml.Pairs.read(tmp_path / "data")
    run = import_joint_model(f"hf:{make('clip', tmp_path / 'model')}", tmp_path / "clip")
    export(run, data, tmp_path / "vectors.npz")
    asked = ["index", "--data", str(tmp_path / "data"), "--device", "cpu", "-o"]
    vectors = ["--vectors", str(tmp_path / "vectors.npz"), "--model"]
    assert main([*asked, str(tmp_path / "given"), *vectors, str(tmp_path / "clip")]) == 0
    assert main([*asked, str(tmp_path / "own"), str(tmp_path / "clip")]) == 0
    found = []
    for name in ("given", "own"):
        with Index.load(tmp_path / name, device="cpu") as index:
            found.append([(hit.id, round(hit.score, 4)) for hit in index.search("cat near dog", top=30).hits])
    assert found[0] == found[1]
    other = import_joint_model(f"hf:{make('clip', tmp_path / 'other', seed=5)}", tmp_path / "another")
    capsys.readouterr()
    assert main([*asked, str(tmp_path / "x"), *vectors, str(other.folder)]) == 2
    assert "the run that made them is needed" in capsys.readouterr().err
    for wrong in ([str(tmp_path / "clip"), *vectors[:2]], ["--data", str(tmp_path / "data")], [*asked[3:5]]):
        assert main([*asked, str(tmp_path / "x"), *wrong]) == 2
        assert "index takes a run folder, or --vectors" in capsys.readouterr().err


def test_a_model_of_other_vectors_or_of_none_is_refused(pairs, vectors, tmp_path: Path):
    small = tiny_pairs(30, 2)
    run = ml.train("vse++", small, tmp_path / "run", epochs=1, dim=8, word_dim=8, device="cpu")
    with pytest.raises(BadInput, match="it makes vectors of 8 numbers, and those given have 16"):
        Index.build(run, pairs, tmp_path / "index", vectors=vectors)
    with pytest.raises(BadInput, match="built with a run, or of vectors"):
        Index.build(None, pairs, tmp_path / "index")
