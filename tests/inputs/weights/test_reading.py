"""ONNX files are read as data, never believed, and come out as transformers' own models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from matchlight.core import BadInput
from matchlight.inputs.weights.convert import parameters, write_bert, write_dinov2
from matchlight.inputs.weights.onnx_file import Broken, fields, read_graph, varint
from tests.inputs.weights.servers import message, number, onnx, onnx_node, onnx_tensor

A = np.arange(6, dtype=np.float32).reshape(2, 3)
SMALL = onnx(onnx_tensor("a", A), onnx_node("MatMul", "/layer.0/fc/MatMul", ["x", "a"], ["y"]))


def read(tmp_path: Path, content: bytes):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return read_graph(path)


def test_tensors_nodes_and_the_weight_of_a_linear_layer(tmp_path):
    graph = read(tmp_path, SMALL)
    assert np.array_equal(graph.tensors["a"], A) and graph.nodes[0].inputs == ("x", "a")
    assert np.array_equal(parameters(graph)["layer.0.fc.weight"], A.T)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\x3a\xff\xff\xff\xff\x0f", "a length of"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\x3b", "a field of kind 3"),
        (onnx() + onnx(), "2 graphs"),
        (
            onnx(message(5, number(1 << 3) + number(9) + number(2 << 3) + number(1) + message(9, b"four"))),
            "has 4 bytes",
        ),
        (onnx(message(5, number(14 << 3) + number(1))), "in another file"),
        (onnx(message(1, message(4, b"x" * 2000))), "a name of 2000 bytes"),
        (onnx(message(1, message(4, b"\xff"))), "utf-8"),
        (onnx(number(5 << 3) + number(1)), "a number in place of bytes"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, content, why):
    with pytest.raises(BadInput, match=f"not an ONNX file that can be read .*{why}"):
        read(tmp_path, content)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_changed_or_cut_ends_in_a_graph_or_one_line(tmp_path_factory, data):
    content = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        graph = read(tmp_path_factory.getbasetemp(), bytes(content))
    except BadInput:
        return
    assert sum(array.nbytes for array in graph.tensors.values()) <= len(content)


@given(st.integers(0, 2**64 - 1))
def test_numbers_come_back(value):
    assert varint(memoryview(number(value)), 0) == (value, len(number(value)))
    with pytest.raises(Broken):
        list(fields(memoryview(number(value << 3 | 7))))


def linear(name: str, weight: np.ndarray, serial: int) -> bytes:
    """As PyTorch's exporter leaves a linear layer: the weight without its name, transposed."""
    inside, path = f"onnx::MatMul_{serial}", name.replace(".", "/").replace("/layer/", "/layer.")
    node = onnx_node("MatMul", f"/{path}/MatMul", ["x", inside], ["y"])
    return onnx_tensor(inside, np.ascontiguousarray(weight.T)) + node


def test_dinov2_comes_out_as_transformers_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=1, mlp_ratio=4, image_size=12, patch_size=4
    )
    model = transformers.Dinov2Model(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(0.3 * torch.randn_like(value) + ("norm" in name and "weight" in name))
        table = model.embeddings.position_embeddings
        table[:, 0] = model.embeddings.cls_token[0, 0]
        model.embeddings.mask_token.zero_()
    model.save_pretrained(tmp_path / "theirs")
    state = load_file(tmp_path / "theirs" / "model.safetensors")  # the names of files; a model's own may be others
    (tmp_path / "m.onnx").write_bytes(onnx(*exported_dinov2(state, layers=2)))
    write_dinov2(tmp_path / "m.onnx", tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path, use_safetensors=True).eval()
    ours = load_file(tmp_path / "model.safetensors")
    assert ours.keys() == state.keys() and all(np.array_equal(ours[name], state[name]) for name in state)
    with torch.no_grad():
        for size in (12, 20):
            pixels = torch.randn(2, 3, size, size)
            assert torch.equal(again(pixels).last_hidden_state, model(pixels).last_hidden_state)
    sizes = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert sizes["crop_size"] == {"height": 224, "width": 224}


def exported_dinov2(state: dict[str, np.ndarray], *, layers: int) -> list[bytes]:
    """What the exporter makes of DINOv2's own names."""
    plain = {
        "model.cls_token": state["embeddings.cls_token"],
        "model.patch_embed.proj.weight": state["embeddings.patch_embeddings.projection.weight"],
        "model.patch_embed.proj.bias": state["embeddings.patch_embeddings.projection.bias"],
        "model.norm.weight": state["layernorm.weight"],
        "model.norm.bias": state["layernorm.bias"],
        "onnx::Reshape_1": np.ascontiguousarray(state["embeddings.position_embeddings"][:, 1:]),
    }
    parts = [onnx_node("Reshape", "/Reshape_1", ["onnx::Reshape_1", "shape"], ["table"])]
    for k in range(layers):
        theirs, ours = f"model.blocks.{k}", f"encoder.layer.{k}"
        attention = [f"{ours}.attention.attention.{part}" for part in ("query", "key", "value")]
        plain[f"{theirs}.attn.qkv.bias"] = np.concatenate([state[f"{one}.bias"] for one in attention])
        plain[f"{theirs}.attn.proj.bias"] = state[f"{ours}.attention.output.dense.bias"]
        for n in (1, 2):
            plain[f"{theirs}.ls{n}.gamma"] = state[f"{ours}.layer_scale{n}.lambda1"]
            plain[f"{theirs}.mlp.fc{n}.bias"] = state[f"{ours}.mlp.fc{n}.bias"]
            for value in ("weight", "bias"):
                plain[f"{theirs}.norm{n}.{value}"] = state[f"{ours}.norm{n}.{value}"]
        products = {
            "attn/qkv": np.concatenate([state[f"{one}.weight"] for one in attention]),
            "attn/proj": state[f"{ours}.attention.output.dense.weight"],
            "mlp/fc1": state[f"{ours}.mlp.fc1.weight"],
            "mlp/fc2": state[f"{ours}.mlp.fc2.weight"],
        }
        for n, (layer, weight) in enumerate(products.items()):
            inside = f"onnx::MatMul_{10 * k + n}"
            parts += [onnx_tensor(inside, np.ascontiguousarray(weight.T))]
            parts += [onnx_node("MatMul", f"/blocks.{k}/{layer}/MatMul", ["x", inside], ["y"])]
    return parts + [onnx_tensor(name, value) for name, value in plain.items()]


def test_what_is_not_dinov2_is_one_line(tmp_path):
    (tmp_path / "m.onnx").write_bytes(SMALL)
    with pytest.raises(BadInput, match="not DINOv2 as it is known here"):
        write_dinov2(tmp_path / "m.onnx", tmp_path)


def test_bert_comes_out_as_transformers_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.BertModel(transformers.BertConfig(**sizes, intermediate_size=32)).eval()
    model.save_pretrained(tmp_path)
    kept = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if not k.startswith("pooler.")}
    parts = []
    for serial, (name, value) in enumerate(kept.items()):
        if name.endswith(".weight") and "Norm" not in name and "embeddings" not in name:
            parts.append(linear(name.removesuffix(".weight"), value, serial))
        else:
            parts.append(onnx_tensor(name, value))
    (tmp_path / "m.onnx").write_bytes(onnx(*parts))
    write_bert(tmp_path / "m.onnx", tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path, use_safetensors=True).eval()
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)
    (tmp_path / "m.onnx").write_bytes(onnx(*parts[1:]))
    with pytest.raises(BadInput, match="not a BERT of 2 layers"):
        write_bert(tmp_path / "m.onnx", tmp_path)
