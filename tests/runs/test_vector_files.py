"""What `embed` writes is what FAISS, LanceDB, clip-retrieval's readers and sentence-transformers work with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny import SETTINGS, tiny_pairs

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.pairs import Pairs
from matchlight.runs.embeddings import export
from matchlight.runs.evaluation import split_scores
from matchlight.runs.folder import Run

SMALL = {name: SETTINGS[name] for name in ("dim", "hidden", "word_dim", "batch")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return ml.train("vse_infty", tiny_pairs(), tmp_path_factory.mktemp("runs") / "one", epochs=1, **SMALL)


@pytest.fixture(scope="module")
def scores(run: Run) -> np.ndarray:
    return split_scores(run, tiny_pairs(), "all")


def test_an_npz_holds_pictures_and_captions_in_file_order(run: Run, scores: np.ndarray, tmp_path: Path) -> None:
    export(run, tiny_pairs(), tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as kept:
        assert kept["image"].shape == (24, 1, 16) and kept["text"].shape == (48, 1, 16)
        assert kept["image"].dtype == kept["text"].dtype == np.float32
        np.testing.assert_allclose(kept["image"][:, 0] @ kept["text"][:, 0].T, scores, atol=1e-6)


@pytest.mark.full
def test_an_ensemble_of_dual_encoders_has_one_vector_whose_product_is_the_mean_score(tmp_path: Path) -> None:
    pairs = tiny_pairs()
    run = ml.train("ncr", pairs, tmp_path / "run", scorer="vse_infty", epochs=1, warm=1, **SMALL)
    export(run, pairs, tmp_path / "v.npz")
    with np.load(tmp_path / "v.npz") as kept:
        product = kept["image"][:, 0] @ kept["text"][:, 0].T
    np.testing.assert_allclose(product, split_scores(run, pairs, "all"), atol=1e-5)


def test_faiss_finds_what_the_model_finds(run: Run, scores: np.ndarray, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    export(run, tiny_pairs(), tmp_path / "out", to="faiss")
    index, texts = (faiss.read_index(str(tmp_path / "out" / f"{side}.faiss")) for side in ("image", "text"))
    found, places = index.search(texts.reconstruct_n(0, texts.ntotal), 3)
    np.testing.assert_allclose(found, -np.sort(-scores.T, axis=1)[:, :3], atol=1e-5)
    items = json.loads((tmp_path / "out" / "items.json").read_text())
    assert items["names"][:2] == ["p0", "p1"] and items["captions"] == tiny_pairs().captions
    assert items["picture"][:4] == [0, 0, 1, 1] and places.shape == (48, 3)


def test_clip_retrievals_folder_is_read_back_with_the_same_scores(run: Run, scores: np.ndarray, tmp_path: Path) -> None:
    export(run, tiny_pairs(), tmp_path / "out", to="clip-retrieval")
    images = np.load(tmp_path / "out" / "img_emb" / "img_emb_0.npy")
    texts = np.load(tmp_path / "out" / "text_emb" / "text_emb_0.npy")
    np.testing.assert_allclose((images @ texts.T)[::2], scores, atol=1e-5)  # a picture stands there for each caption
    again = Pairs.read(tmp_path / "out")
    assert again.format == "clip-retrieval" and again.captions == tiny_pairs().captions


def test_what_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    sets = ml.train("scan", tiny_pairs(), tmp_path / "scan", epochs=1, dim=16, word_dim=8, batch=8)
    with pytest.raises(BadInput, match="sets of vectors"):
        export(sets, tiny_pairs(), tmp_path / "out", to="faiss")
    with pytest.raises(BadInput, match=r"written as \.npz; --to faiss"):
        export(run, tiny_pairs(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    with pytest.raises(BadInput, match="not empty"):
        export(run, tiny_pairs(), tmp_path / "full", to="faiss")
    assert main(["embed", str(run.folder), "--data", "x", "-o", "y", "--to", "fais"]) == 2


@pytest.mark.full
def test_lancedb_finds_what_the_model_finds(run: Run, scores: np.ndarray, tmp_path: Path) -> None:
    lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")
    export(run, tiny_pairs(), tmp_path / "out", to="lancedb")
    database = lancedb.connect(str(tmp_path / "out"))
    asked = database.open_table("captions").to_arrow().to_pylist()[5]
    assert asked["caption"] == tiny_pairs().captions[5] and asked["name"] == "p2"
    found = database.open_table("images").search(asked["vector"]).metric("dot").limit(3).to_list()
    best = np.argsort(-scores[:, 5])[:3]
    assert [one["name"] for one in found] == [f"p{k}" for k in best]


@pytest.mark.full
def test_a_run_is_a_sentence_transformer_and_is_saved_as_one(collection: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers import SentenceTransformer

    from matchlight.indexing.sentence_module import sentence_transformer

    run, pairs = Run.load(collection[0].parent / "run", device="cpu"), Pairs.read(collection[1])
    assert pairs.pictures is not None
    model = sentence_transformer(run)
    pictures = model.encode([pairs.pictures.open(k) for k in range(4)])
    captions = model.encode(pairs.captions[:6])
    wanted = split_scores(run, pairs, "all")[:4, :6]
    np.testing.assert_allclose(pictures @ captions.T, wanted, atol=2e-3)  # stored features are of half precision
    model.save_pretrained(str(tmp_path / "model"))
    again = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(pairs.captions[:6]), captions)
    plain = sentence_transformer(ml.load(tmp_path / "model" / "0_RunModule" / "run", device="cpu"))
    np.testing.assert_array_equal(plain.encode(pairs.captions[:6]), captions)
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".bin", ".pt", ".pkl", ".py")]


@pytest.mark.full
def test_a_model_of_sets_is_no_sentence_transformer(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from matchlight.indexing.sentence_module import sentence_transformer

    sets = ml.train("scan", tiny_pairs(), tmp_path / "scan", epochs=1, dim=16, word_dim=8, batch=8)
    with pytest.raises(BadInput, match="compares sets of vectors"):
        sentence_transformer(sets)
