"""TinyViT: windows and their attention, weights read from an ONNX file, and networks whose weights come later."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from matchlight.core import BadInput
from matchlight.inputs.backbones import backbone
from matchlight.inputs.backbones.base import loaded_later
from matchlight.inputs.backbones.onnx_backbone import OnnxBackbone
from matchlight.inputs.backbones.tiny_vit import HEAD, TinyVit, WindowAttention, WindowBlock
from matchlight.inputs.backbones.tiny_vit_backbone import TinyVit5M
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.convert import write_tiny_vit
from matchlight.inputs.weights.known_weights import CATALOGUE
from tests.inputs.weights.servers import onnx, onnx_node, onnx_tensor


@pytest.fixture(scope="module")
def network() -> TinyVit:
    torch.manual_seed(0)
    return TinyVit().eval()


def as_exported(network: TinyVit) -> bytes:
    """An ONNX file as PyTorch's exporter names its parts: folded convolutions and transposed products lose theirs."""
    parts = []
    for number, (name, value) in enumerate(network.state_dict().items()):
        layer, _, kind = name.rpartition(".")
        exported = "model." + re.sub(r"^stages\.(\d)", r"stages_\1", layer)
        path = "/" + re.sub(r"blocks/(\d)", r"blocks/blocks.\1", exported.replace(".", "/"))
        array = value.numpy()
        if value.dim() == 4:
            bias = network.state_dict()[f"{layer}.bias"].numpy()
            names = [f"onnx::Conv_{number}", f"onnx::Conv_{number}b"]
            parts += [onnx_tensor(names[0], array), onnx_tensor(names[1], bias)]
            parts.append(onnx_node("Conv", f"{path}/conv/Conv", ["x", *names], ["y"]))
        elif value.dim() == 2 and kind == "weight":
            parts.append(onnx_tensor(f"onnx::MatMul_{number}", np.ascontiguousarray(array.T)))
            parts.append(onnx_node("MatMul", f"{path}/MatMul", ["x", f"onnx::MatMul_{number}"], ["y"]))
        elif "conv" not in layer.rpartition(".")[2]:
            parts.append(onnx_tensor(f"{exported}.{kind}" if layer else kind, array))
    return onnx(*parts)


def keep(network: TinyVit, tmp_path: Path) -> Path:
    """As `weights get` leaves the folder."""
    place = weight_store.place(CATALOGUE["tinyvit-5m"])
    place.mkdir(parents=True)
    (tmp_path / "tiny.onnx").write_bytes(as_exported(network))
    write_tiny_vit(tmp_path / "tiny.onnx", place)
    (place / weight_store.RECORD).write_text("{}")
    return place


def test_weights_come_out_of_an_exported_file_as_they_went_in(network: TinyVit, tmp_path: Path) -> None:
    keep(network, tmp_path)
    seen = backbone("tinyvit-5m")
    assert all(torch.equal(seen.network.state_dict()[name], value) for name, value in network.state_dict().items())
    pixels = torch.rand(2, 3, 64, 96) * 255
    with torch.inference_mode():
        cells = network(seen.normalise(pixels)).flatten(2).transpose(1, 2)
        assert torch.allclose(seen(pixels), cells, atol=1e-4)
    assert cells.shape == (2, seen.cells((64, 96)), seen.dim) == (2, 6, 320)


def test_a_file_of_another_network_is_one_line(network: TinyVit, tmp_path: Path) -> None:
    place = keep(network, tmp_path)
    (tmp_path / "other.onnx").write_bytes(onnx(onnx_tensor("a", np.zeros((2, 3), np.float32))))
    with pytest.raises(BadInput, match="other.onnx: not TinyViT as it is known here; it has 1 tensors"):
        write_tiny_vit(tmp_path / "other.onnx", tmp_path)
    (place / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(BadInput, match="not the weights of tinyvit-5m .*`matchlight weights remove tinyvit-5m`"):
        backbone("tinyvit-5m")


def test_without_its_file_it_is_made_only_where_weights_come_later() -> None:
    with pytest.raises(BadInput, match="tinyvit-5m is not on this machine: `matchlight weights get tinyvit-5m`"):
        backbone("tinyvit-5m")
    with loaded_later():
        assert isinstance(backbone("tinyvit-5m"), TinyVit5M)
    with pytest.raises(BadInput, match="not on this machine"):
        backbone("tinyvit-5m")


@torch.inference_mode()
def test_attention_is_within_windows_and_biased_by_distance() -> None:
    torch.manual_seed(1)
    attention = WindowAttention(2 * HEAD, 3).eval()
    attention.attention_biases.normal_()
    x = torch.randn(4, 9, 2 * HEAD)
    split = attention.qkv(attention.norm(x)).view(4, 9, 2, 3, HEAD)
    heads = []
    for head in range(2):
        query, key, value = split[:, :, head].unbind(2)
        scores = query @ key.transpose(1, 2) / math.sqrt(HEAD)
        for a in range(9):
            for b in range(9):
                apart = abs(a // 3 - b // 3) * 3 + abs(a % 3 - b % 3)
                scores[:, a, b] += attention.attention_biases[head, apart]
        heads.append(scores.softmax(-1) @ value)
    assert torch.allclose(attention(x), attention.proj(torch.cat(heads, -1)), atol=1e-5)


@torch.inference_mode()
def test_a_map_that_windows_do_not_fill_is_padded_and_cells_keep_their_places() -> None:
    torch.manual_seed(2)
    block = WindowBlock(HEAD, 4).eval()
    cells = torch.randn(1, 6, 9, HEAD)
    whole = F.pad(cells, (0, 0, 0, 3, 0, 2))
    windows = whole.view(1, 2, 4, 3, 4, HEAD)
    found = block.attended(cells)
    assert found.shape == cells.shape
    for row in range(2):
        for column in range(3):
            one = block.attn(windows[0, row, :, column].reshape(1, 16, HEAD)).view(4, 4, HEAD)
            there = found[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert torch.allclose(there, one[: there.shape[0], : there.shape[1]], atol=1e-5)


def test_written_as_onnx_it_takes_any_number_of_pictures() -> None:
    torch.manual_seed(0)
    with loaded_later():
        network = TinyVit5M().eval()
    pixels = torch.randint(0, 256, (5, 3, 64, 64)).float()
    written = OnnxBackbone(network, pixels[:2].numpy(), int8=False)
    for many in (1, 2, 5):
        with torch.inference_mode():
            assert torch.allclose(written(pixels[:many]), network(pixels[:many]), atol=1e-4)
