"""An audit with encoders, runs and vectors of the user's choice."""

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
from matchlight.auditing.item_vectors import caption_names
from matchlight.auditing.verdict import anchored, combine, share_above_mismatch
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.noise import mismatch
from matchlight.inputs.features import cache_listing
from matchlight.pairs import Pairs
from matchlight.runs.importing import import_joint_model

FAST = {"quick": False, "folds": 3, "captions": "words"}


@pytest.fixture(scope="module")
def clean() -> Pairs:
    return replace(tiny_pairs(150, 1, held=0), labels=None)


@pytest.fixture(scope="module")
def vectors(clean) -> tuple[np.ndarray, np.ndarray]:
    return joint_vectors(clean)


def moved_with_texts(clean: Pairs, texts: np.ndarray):  # noqa: ANN202 - pairs, truth and the captions' vectors
    """Mismatched pairs; the vectors of captions move along with them."""
    broken, truth = mismatch(clean, ratio=0.3, seed=1)
    place = {caption: row for row, caption in enumerate(clean.captions)}
    return broken, truth, texts[[place[caption] for caption in broken.captions]]


# ---- given vectors ---------------------------------------------------------------------------------------------------


def test_given_vectors_need_no_picture_and_find_the_wrong_pairs(clean, vectors, tmp_path):
    broken, truth, texts = moved_with_texts(clean, vectors[1])
    blind = replace(broken, features=None)
    with pytest.raises(BadInput, match="no pictures"):
        ml.audit(None, blind, tmp_path / "blind", **FAST)
    found = ml.audit(None, blind, tmp_path / "seen", truth=truth, vectors=(vectors[0], texts), **FAST)
    assert found.summary["auroc"] > 0.95
    assert {"plain_loss", "given_loss", "given_z_i2t", "free_text"} <= set(found.summary["signals"])


def test_vectors_of_two_encoders_are_compared_by_the_closed_form_alone(clean, vectors, tmp_path):
    found = ml.audit(None, clean, tmp_path / "one", vectors=(vectors[0][:, :9], vectors[1]), **FAST)
    assert "plain_loss" in found.summary["signals"] and "given_loss" not in found.summary["signals"]


def test_other_vectors_are_another_audit(clean, vectors, tmp_path):
    ml.audit(None, clean, tmp_path / "one", vectors=vectors, **FAST)
    again = ml.audit(None, clean, tmp_path / "one", vectors=vectors, **FAST)
    assert again.summary["pairs"] == 150
    with pytest.raises(BadInput, match="holds another audit .vectors differ."):
        ml.audit(None, clean, tmp_path / "one", vectors=(vectors[0] + 1e-3, vectors[1]), **FAST)
    with pytest.raises(BadInput, match="holds another audit .vectors differ."):
        ml.audit(None, clean, tmp_path / "one", **FAST)


def test_a_folder_of_clip_retrieval_is_audited_by_itself(clean, vectors, tmp_path, capsys):
    folder = clip_retrieval_folder(tmp_path / "emb", clean, *vectors)
    asked = ["audit", "--vectors", str(folder), "-o", str(tmp_path / "out"), "--quick", "off", "--split", "all"]
    assert main([*asked, "--folds", "3", "--captions", "words", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["pairs"] == 150 and summary["data"]["path"] == str(folder.resolve())
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_data_set_whose_texts_are_vectors_takes_no_others(vectors, clean, tmp_path):
    labelled = replace(clean, text_features=vectors[1])
    with pytest.raises(BadInput, match="its texts are vectors already"):
        ml.audit(None, labelled, tmp_path / "one", vectors=vectors)


def test_class_labels_are_judged_by_given_vectors_too(tmp_path):
    pairs = tiny_pairs(90, 1, held=0)
    found = ml.audit(None, replace(pairs, features=None), tmp_path / "one", vectors=joint_vectors(pairs), **FAST)
    assert found.findings.labels is not None


# ---- encoders by name ------------------------------------------------------------------------------------------------


def test_names_of_sentence_encoders_are_joined_by_plus():
    assert caption_names("minilm + hf:somewhere/x+minilm") == ["minilm", "hf:somewhere/x"]
    assert caption_names("auto") == ["auto"] and caption_names("words") == ["words"]
    for wrong in ("words+minilm", "magic", "hf:", "auto+minilm", "dinov2-small"):
        with pytest.raises(BadInput, match="is no kind of caption vector; known: auto, words, or minilm"):
            caption_names(wrong)


def tiny_encoder(folder: Path, seed: int) -> str:
    """A sentence encoder of transformers with random weights."""
    transformers = pytest.importorskip("transformers")
    import torch

    from matchlight.inputs.minilm_files import minilm_folder

    torch.manual_seed(seed)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(**small)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (minilm_folder() / name).is_file():
            (folder / name).write_bytes((minilm_folder() / name).read_bytes())
    return f"hf:{folder}"


def test_a_folder_with_other_weights_is_another_encoder(clean, tmp_path):
    pytest.importorskip("tokenizers")
    named = tiny_encoder(tmp_path / "encoder", 0)
    for _ in range(2):  # the second finds the folder as the first left it
        found = ml.audit(None, clean, tmp_path / "one", **{**FAST, "captions": named})
    assert found.summary["pairs"] == 150
    tiny_encoder(tmp_path / "encoder", 1)
    with pytest.raises(BadInput, match="holds another audit .encoders differ."):
        ml.audit(None, clean, tmp_path / "one", **{**FAST, "captions": named})


def test_named_networks_alone_are_run_over_the_pictures_and_each_once(tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14, "image_size": 28}
    transformers.Dinov2Model(transformers.Dinov2Config(**shape)).save_pretrained(tmp_path / "dino")
    seen = {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}
    transformers.BitImageProcessor(**seen).save_pretrained(tmp_path / "dino")
    pairs = replace(tiny_pictures(60, 1, held=0), labels=None)
    named = {**FAST, "pictures": f"hf:{tmp_path / 'dino'}"}
    found = ml.audit(None, pairs, tmp_path / "one", **named)
    assert found.summary["pairs"] == 60
    kept = [entry["what"] for entry in cache_listing() if entry["what"].startswith("features")]
    assert kept == [f"features hf:{tmp_path / 'dino'} pooled 28x28 of 60 pictures"]
    sized = ml.audit(None, pairs, tmp_path / "two", **named | {"pictures": f"{named['pictures']}@42"})
    assert not np.array_equal(sized.findings.score, found.findings.score)


# ---- further runs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joint(tmp_path_factory) -> ml.Run:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("joint")
    return import_joint_model(f"hf:{make('clip', folder / 'model')}", folder / "clip")


def test_a_joint_model_is_asked_with_no_training(joint, tmp_path, capsys):
    pairs = replace(tiny_pictures(60, 1, held=0), labels=None)
    formats.write(pairs, tmp_path / "data")
    asked = ["audit", "--data", str(tmp_path / "data"), "--split", "all", "-o", str(tmp_path / "out"), "--with"]
    images, texts = joint_vectors(pairs)
    np.savez(tmp_path / "vectors.npz", images=images, texts=texts)
    more = ["--vectors", str(tmp_path / "vectors.npz"), "--quick", "off", "--folds", "3", "--json"]
    assert main([*asked, str(joint.folder), *more, "--captions", "words"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {"also0_loss", "also0_rank", "also0_text"} <= set(summary["signals"])
    assert any(str(joint.folder) in note and "manufactured mismatch" in note for note in summary["notes"])
    assert main([*asked, str(tmp_path / "data"), *more]) == 2
    assert "not a run folder" in capsys.readouterr().err
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["also"][0]["name"] == "dual" and settings["vectors"]


def test_a_run_that_was_trained_on_the_pairs_is_no_further_run(tmp_path):
    pairs = replace(tiny_pairs(40, 1, held=0), labels=None)
    run = ml.train("vse++", pairs, tmp_path / "run", epochs=1, dim=8, word_dim=8, device="cpu")
    with pytest.raises(BadInput, match=r"--with .*run: it was trained on 40 of these 40 pairs; `matchlight audit"):
        ml.audit(None, pairs, tmp_path / "out", also=[run], **FAST)
    assert not (tmp_path / "out").exists()


def test_a_further_run_counts_as_far_as_it_tells_manufactured_pairs():
    rng = np.random.default_rng(0)
    count = 600
    bad = np.arange(count) < 180

    def model(strength: float) -> dict[str, np.ndarray]:
        own, made = (rng.normal(size=count) + strength * wrong for wrong in (bad, np.ones(count)))
        parts = {f"{way}{end}": loss for way in ("i2t", "t2i") for end, loss in (("", own), ("_wrong", made))}
        for end, loss in (("", own), ("_wrong", made)):
            parts |= {f"{way}_z{end}": -loss for way in ("i2t", "t2i")}
            parts |= {f"{way}_rank{end}": 1 / (1 + np.exp(-loss)) for way in ("i2t", "t2i")}
        return parts

    rows = np.arange(count)
    known = {"rows": rows, "fold": rows % 5, "wrong": np.roll(rows, 1), "picture": rows, "decoy": rows < 0}
    known |= {"free_sibling_rows": np.full((count, 1), -1)}
    known |= {f"plain_{name}": value for name, value in model(1.5).items()}
    useful, useless = ({f"also0_{n}": v for n, v in model(strength).items()} for strength in (3.0, 0.0))
    assert (
        share_above_mismatch(useful, "also0_") > 0.8 > 0.6 > share_above_mismatch(useless, "also0_") > 0.4
    )  # three in ten are wrong themselves

    def auroc(found: dict[str, np.ndarray]) -> float:
        score = combine(found, siblings=False).score
        return float(np.mean(score[~bad][:, None] > score[bad][None]))

    alone, helped, unharmed = auroc(known), auroc(known | useful), auroc(known | useless)
    assert helped > alone + 0.05 and unharmed > alone - 0.02
    assert "also0_loss" in anchored(known | useful, np.ones(count))[0]
