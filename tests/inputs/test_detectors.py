"""Regions by a detector, with tiny random ones that the library makes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import matchlight as ml
from matchlight.cli import main
from matchlight.core import BadInput
from matchlight.data import formats
from matchlight.inputs.features.detectors import SURE, Detector, Looked, best_regions, detect, packed
from matchlight.pairs import BadPicture
from tests.tiny import Painted, tiny_pictures

transformers = pytest.importorskip("transformers")
PREPROCESSOR = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def saved(model: Any, folder: Path, size: int) -> str:
    model.save_pretrained(folder)
    says = {**PREPROCESSOR, "size": {"height": size, "width": size}}
    (folder / "preprocessor_config.json").write_text(json.dumps(says))
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def detr(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A DETR of ten queries, three classes and random weights."""
    torch.manual_seed(0)
    shape = {"embedding_size": 4, "hidden_sizes": [4, 4, 4, 8], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    sees = transformers.ResNetConfig(**shape, out_features=["stage4"])
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 10, "num_labels": 3}
    sizes |= {
        f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("attention_heads", 2), ("ffn_dim", 8))
    }
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=sees, **sizes
    )
    return saved(transformers.DetrForObjectDetection(config), tmp_path_factory.mktemp("detr"), 64)


@pytest.fixture(scope="module")
def owl(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An OWLv2 of 4 x 4 patches and random weights."""
    torch.manual_seed(0)
    tower = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Owlv2Config(
        text_config={**tower, "vocab_size": 20, "max_position_embeddings": 8},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=8,
    )
    return saved(transformers.Owlv2ForObjectDetection(config), tmp_path_factory.mktemp("owl"), 32)


def test_the_rule_of_the_paper_is_the_best_either_way() -> None:
    """Those above 0.5 where there are enough, else the best whatever they score."""
    rng = np.random.default_rng(0)
    for high in (0.4, 1.0):
        scores = high * rng.random(12)
        looked = Looked(
            torch.arange(12.0).view(1, 12, 1),
            torch.zeros(1, 12, 4),
            torch.tensor(scores)[None],
            torch.zeros(1, 12, dtype=torch.long),
        )
        sure = [k for k in np.argsort(-scores) if scores[k] > SURE]
        by_rule = sure[:4] if len(sure) >= 4 else list(np.argsort(-scores)[:4])
        assert best_regions(looked, 4).features[0, :, 0].tolist() == by_rule


def test_boxes_are_corners_and_area_inside_the_picture() -> None:
    looked = Looked(
        torch.ones(1, 2, 3),
        torch.tensor([[[0.5, 0.5, 0.5, 0.25], [0.9, 0.1, 0.4, 0.4]]]),
        torch.ones(1, 2),
        torch.tensor([[2, 0]]),
    )
    row = packed(looked)[0]
    assert row[0, 3:].tolist() == pytest.approx([0.25, 0.375, 0.75, 0.625, 0.125, 2, 1])
    assert row[1, 3:8].tolist() == pytest.approx([0.7, 0, 1, 0.3, 0.09])


def test_a_detr_gives_the_states_boxes_and_classes_of_its_surest_queries(detr: str) -> None:
    pairs = tiny_pictures(6, held=1)
    found = detect(pairs, detr, device="cpu", regions=4)
    assert found.features.shape == (6, 4, 8) and found.boxes.shape == (6, 4, 5)
    network = Detector(detr)
    assert pairs.pictures is not None
    pixels = torch.tensor(network.preprocessing.pixels(pairs.pictures.open(2)))[None]
    out = network.network(pixel_values=(pixels.float() - 127.5) / 127.5)
    likely = out.logits.softmax(-1)[0, :, :-1]  # the last class is "nothing"
    order = likely.max(-1).values.argsort(descending=True)[:4]
    np.testing.assert_allclose(found.scores[2], likely.max(-1).values[order].detach().numpy(), rtol=1e-3)
    assert found.objects[2].tolist() == likely.argmax(-1)[order].tolist()
    np.testing.assert_allclose(found.features[2], out.last_hidden_state[0, order].detach().numpy(), atol=5e-3)


def test_an_owl_gives_patches_and_no_classes(owl: str) -> None:
    found = detect(tiny_pictures(6, held=1), owl, device="cpu", regions=36)
    assert found.features.shape == (6, 16, 8)  # it has 16 patches, fewer than are wanted
    assert (found.objects == -1).all() and (np.diff(found.scores, axis=1) <= 0).all()


def test_regions_become_a_data_set_that_semantic_sharing_reads(detr: str, tmp_path: Path) -> None:
    folder = formats.write(tiny_pictures(), tmp_path / "photos", to="jsonl")
    out = tmp_path / "regions"
    options = ["--detector", detr, "--regions", "5", "--device", "cpu"]
    assert main(["data", "features", str(folder), "-o", str(out), *options]) == 0
    pairs = ml.Pairs.read(out)
    assert pairs.features is not None and pairs.features.shape == (24, 5, 8)
    assert pairs.boxes is not None and pairs.boxes.shape == (24, 5, 5) and pairs.objects is not None
    settings = {
        "preset": "small",
        "dim": 16,
        "depth": 1,
        "heads": 2,
        "hidden": 8,
        "objects": 8,
        "batch": 8,
        "epochs": 1,
    }
    run = ml.train("semantic_sharing", pairs, tmp_path / "run", device="cpu", word_dim=8, **settings)
    assert run.info["sizes"]["regions"] == 5


class WithAGap(Painted):
    """The second picture cannot be read."""

    def open(self, index: int) -> Image.Image:
        if index == 1:
            raise BadPicture("gone")
        return super().open(index)


def test_a_picture_that_cannot_be_read_has_blank_regions_of_no_class(detr: str) -> None:
    pairs = tiny_pictures(6, held=1)
    assert isinstance(pairs.pictures, Painted)
    found = detect(replace(pairs, pictures=WithAGap(pairs.pictures.shown)), detr, device="cpu", regions=3)
    assert not found.features[1].any() and not found.boxes[1].any() and (found.objects[1] == -1).all()
    assert found.features[[0, 2, 3, 4, 5]].any((1, 2)).all()


@pytest.mark.parametrize(("name", "hint"), [("detr", "hf:NAME"), ("hf:/nowhere/at/all", "no detector that can be had")])
def test_what_is_no_detector_is_one_clear_line(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=hint):
        detect(tiny_pictures(6, held=1), name, device="cpu")
