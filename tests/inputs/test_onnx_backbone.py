"""Backbones by ONNX Runtime: the same features in float, close ones in int8, and what cannot be written so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from matchlight.core import BadInput
from matchlight.inputs import features
from matchlight.inputs.backbones import Backbone, backbone
from matchlight.inputs.backbones.onnx_backbone import OnnxBackbone
from matchlight.inputs.features import runtimes
from tests.tiny import tiny_pictures

transformers = pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DINOv2 of two narrow layers."""
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**shape, image_size=28)).save_pretrained(folder)
    transformers.BitImageProcessor(size={"height": 28, "width": 28}, do_center_crop=False).save_pretrained(folder)
    return folder


def network(folder: Path) -> Backbone:
    return backbone(f"hf:{folder}")


class Narrow(Backbone):
    """A CNN of two layers."""

    name, dim = "narrow", 6

    def __init__(self) -> None:
        super().__init__((127.5,) * 3, (127.5,) * 3)
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU6(), nn.Conv2d(8, 6, 3, 2))

    def grid(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.layers(pixels).flatten(2).transpose(1, 2)


def test_onnx_runtime_gives_the_same_features(dino: Path, tmp_path: Path) -> None:
    pairs = tiny_pictures(8, held=2)
    plain, other = (network(dino) for _ in range(2))
    plain.runtime, other.runtime = "torch", "onnx"
    for kind in ("grid", "pooled"):
        made = [
            features.extract(pairs, backbone=one, kind=kind, device="cpu", out=tmp_path / f"{kind}-{one.runtime}")
            for one in (plain, other)
        ]
        assert made[0].stamp() == made[1].stamp()  # found under one key: they may stand for each other
        assert np.abs(made[0].array - made[1].array).max() < 2e-3


def test_a_vision_transformer_is_computed_by_onnx_where_pictures_are_many(
    dino: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tiny_pictures(8, held=2)
    source, made = pairs.pictures, network(dino).preprocessing((28, 28))
    assert source is not None
    few, many = runtimes.MANY_OF_TRANSFORMERS - 1, runtimes.MANY_OF_TRANSFORMERS
    assert not isinstance(runtimes.computed_by(network(dino), source, made, left=few), OnnxBackbone)
    assert isinstance(runtimes.computed_by(network(dino), source, made, left=many), OnnxBackbone)
    monkeypatch.setattr(runtimes, "SAME", 0.0)  # numbers of another machine: torch is used, and nothing is said
    assert not isinstance(runtimes.computed_by(network(dino), source, made, left=many), OnnxBackbone)
    assert not runtimes.onnx_pays(Narrow(), 10**6)


def test_the_pictures_of_the_small_starter_are_read_by_onnx_where_they_are_many_with_the_same_numbers() -> None:
    from matchlight.runs.starter_backbone import StarterPictures

    plain = StarterPictures().eval()
    assert runtimes.onnx_pays(plain, runtimes.MANY_OF_TRANSFORMERS)
    assert not runtimes.onnx_pays(plain, runtimes.MANY_OF_TRANSFORMERS - 1)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 64, 64), dtype=np.uint8)
    assert OnnxBackbone(plain, pixels, int8=False).difference(pixels) < runtimes.SAME


def test_int8_features_are_close_and_kept_apart(dino: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pairs, plain, small = tiny_pictures(8, held=2), network(dino), network(dino)
    small.runtime = "onnx-int8"
    whole = features.extract(pairs, backbone=plain, kind="pooled", device="cpu", out=tmp_path / "float")
    rounded = features.extract(pairs, backbone=small, kind="pooled", device="cpu", out=tmp_path / "int8")
    one, other = (store.array.astype(np.float32) for store in (whole, rounded))
    assert whole.stamp() != rounded.stamp() and "cosine" in capsys.readouterr().err
    assert (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other) > 0.98


def test_bfloat16_features_are_close_and_kept_apart(dino: Path, tmp_path: Path, monkeypatch) -> None:
    pairs = tiny_pictures(8, held=2)
    whole = features.extract(pairs, backbone=network(dino), device="cpu", out=tmp_path / "float")
    monkeypatch.setenv("MATCHLIGHT_RUNTIME", "torch-bf16")
    rounded = features.extract(pairs, backbone=network(dino), device="cpu", out=tmp_path / "bf16")
    one, other = (store.array.astype(np.float32) for store in (whole, rounded))
    assert whole.stamp() != rounded.stamp() and rounded.meta["runtime"] == "torch-bf16"
    assert np.abs(one - other).max() > 0 and (one * other).sum() / np.linalg.norm(one) / np.linalg.norm(other) > 0.999
    monkeypatch.setenv("MATCHLIGHT_RUNTIME", "tourch")
    with pytest.raises(BadInput, match="'tourch' is no runtime; known: auto, torch, torch-bf16"):
        features.extract(pairs, backbone=network(dino), device="cpu", out=tmp_path / "none")


def test_a_cnn_in_int8_takes_its_ranges_from_pictures() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
    for int8, least in ((False, 0.9999), (True, 0.9)):
        assert OnnxBackbone(Narrow().eval(), pixels, int8=int8).likeness(pixels) > least


def exponential(self: Narrow, pixels: torch.Tensor) -> torch.Tensor:
    found = self.layers(pixels)[..., :6, :6].contiguous()
    return torch.matrix_exp(found).reshape(len(pixels), 36, 6)


def test_what_cannot_be_written_as_onnx_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, odd = tiny_pictures(8, held=2), Narrow()
    monkeypatch.setattr(Narrow, "grid", exponential)
    odd.runtime = "onnx"
    with pytest.raises(BadInput, match="backbone=narrow cannot be written as ONNX .*torch would work"):
        features.extract(pairs, backbone=odd, size=32, device="cpu")
