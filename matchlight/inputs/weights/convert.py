"""Tensors of an ONNX file in the layout of transformers (config.json, model.safetensors), or of our own networks.

PyTorch's exporter keeps the names of biases, norms and tables. The weight of a linear layer becomes the second input of
a matrix product, without its name and transposed; the product's node has the layer's name. A convolution keeps its
weights as they are, but under no name; a batch norm behind it is folded into them.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from matchlight.core import BadInput
from matchlight.files import write_json
from matchlight.inputs.weights.onnx_file import Graph, read_graph

Tensors = dict[str, np.ndarray]
HEAD = 64  # numbers a head of attention has, in every DINOv2
TINY_VIT_TENSORS = 184
DINOV2_NAMES = {
    "cls_token": "embeddings.cls_token",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "attn.proj": "attention.output.dense",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
}
PREPROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def parameters(graph: Graph) -> Tensors:
    """Every parameter under its own name: those that kept it, and the weights of linear layers."""
    found = dict(graph.tensors)
    for node in graph.nodes:
        if node.kind == "Identity" and node.inputs and node.inputs[0] in found:  # equal parameters are kept once
            found.update(dict.fromkeys(node.outputs, found[node.inputs[0]]))
        elif node.kind == "MatMul" and len(node.inputs) == 2 and node.inputs[1] in graph.tensors:
            layer = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            found[f"{layer}.weight"] = graph.tensors[node.inputs[1]].T
    return {name.removeprefix("model."): array for name, array in found.items() if "::" not in name}


def write_dinov2(onnx: Path, folder: Path) -> None:
    """DINOv2 as `Dinov2Model` reads it; the mask token, which only training uses, is zero."""
    graph = read_graph(onnx)
    try:
        tensors = _dinov2(parameters(graph)) | {"embeddings.position_embeddings": _positions(graph)}
        config = _dinov2_config(tensors)
    except (KeyError, ValueError, IndexError) as problem:
        raise BadInput(f"{onnx.name}: not DINOv2 as it is known here ({problem})") from None
    _save(tensors, folder)
    write_json(folder / "config.json", config)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)


def _dinov2(found: Tensors) -> Tensors:
    tensors = {"embeddings.mask_token": np.zeros((1, found["cls_token"].shape[-1]), np.float32)}
    for name, array in found.items():
        block = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
        before, rest = (f"encoder.layer.{block[1]}.", block[2]) if block else ("", name)
        if rest.startswith("attn.qkv."):
            for part, piece in zip(("query", "key", "value"), np.split(array, 3), strict=True):
                tensors[f"{before}attention.attention.{part}.{rest.removeprefix('attn.qkv.')}"] = piece
        elif block or name.startswith(("cls_token", "patch_embed.proj.", "norm.")):
            tensors[before + _renamed(rest)] = array
    return tensors


def _renamed(name: str) -> str:
    layer, _, value = name.rpartition(".")
    return DINOV2_NAMES.get(name) or f"{DINOV2_NAMES.get(layer, layer)}.{value}"


def _positions(graph: Graph) -> np.ndarray:
    """(1, 1 + cells, dim): the exporter kept the class token's own place as equal to the class token."""
    first = graph.tensors["model.cls_token"]
    inputs = (graph.tensors.get(node.inputs[0]) for node in graph.nodes if node.kind == "Reshape" and node.inputs)
    tables = [array for array in inputs if array is not None and array.ndim == 3 and array.shape[2] == first.shape[2]]
    if len(tables) != 1:
        raise ValueError(f"{len(tables)} tables of positions")
    return np.concatenate([first, tables[0]], axis=1)


def _dinov2_config(tensors: Tensors) -> dict[str, object]:
    wide, _, patch, _ = tensors["embeddings.patch_embeddings.projection.weight"].shape
    side = math.isqrt(tensors["embeddings.position_embeddings"].shape[1] - 1)
    layers = {name.split(".")[2] for name in tensors if name.startswith("encoder.layer.")}
    return {
        "architectures": ["Dinov2Model"],
        "model_type": "dinov2",
        "hidden_size": wide,
        "num_hidden_layers": len(layers),
        "num_attention_heads": wide // HEAD,
        "mlp_ratio": tensors["encoder.layer.0.mlp.fc1.bias"].shape[0] // wide,
        "image_size": side * patch,
        "patch_size": patch,
        "num_channels": 3,
        "qkv_bias": True,
        "use_swiglu_ffn": False,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "layerscale_value": 1.0,
    }


def write_bert(onnx: Path, folder: Path) -> None:
    """BERT as `BertModel` reads it, beside its config.json; the pooler, which nobody here asks, is zero."""
    found = parameters(read_graph(onnx))
    tensors = {name: array for name, array in found.items() if name.startswith(("embeddings.", "encoder."))}
    tensors.pop("embeddings.position_ids", None)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wide, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    if len(tensors) != 5 + 16 * layers:
        raise BadInput(f"{onnx.name}: not a BERT of {layers} layers; it has {len(tensors)} tensors")
    tensors["pooler.dense.weight"] = np.zeros((wide, wide), np.float32)
    tensors["pooler.dense.bias"] = np.zeros(wide, np.float32)
    _save(tensors, folder)


def write_tiny_vit(onnx: Path, folder: Path) -> None:
    """TinyViT as `backbones/tiny_vit.py` reads it."""
    graph = read_graph(onnx)
    found = parameters(graph)
    for node in graph.nodes:
        if node.kind == "Conv" and len(node.inputs) == 3:
            layer = node.name.strip("/").removesuffix("/conv/Conv").replace("/", ".").removeprefix("model.")
            for value, name in zip(("weight", "bias"), node.inputs[1:], strict=True):
                if name in graph.tensors:
                    found[f"{layer}.{value}"] = graph.tensors[name]
    tensors = {_of_tiny_vit(name): array for name, array in found.items()}
    if len(tensors) != TINY_VIT_TENSORS:
        raise BadInput(f"{onnx.name}: not TinyViT as it is known here; it has {len(tensors)} tensors")
    _save(tensors, folder)


def _of_tiny_vit(name: str) -> str:
    """stages_2.blocks.blocks.0.attn.proj.bias -> stages.2.blocks.0.attn.proj.bias."""
    return re.sub(r"^stages_(\d)", r"stages.\1", name.removeprefix("model.")).replace("blocks.blocks.", "blocks.")


def _save(tensors: Tensors, folder: Path) -> None:
    single = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    (folder / "model.safetensors").write_bytes(save(single, metadata={"format": "pt"}))
