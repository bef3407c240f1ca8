"""The published weights of joint models, as the encoders and the similarity of `dual.py` name them.

Safetensors are read as they are. Pickles (pytorch_model.bin) go through our own reader, which runs nothing of them.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from matchlight.core import BadInput
from matchlight.inputs.joint_models import JointModel
from matchlight.inputs.joint_models.model_files import PICKLES
from matchlight.inputs.joint_models.weight_names import Weights, ours
from matchlight.training import checkpoints
from matchlight.training.foreign import read_checkpoint

PLACES = {"pictures.": "encoders.image.tower.", "texts.": "encoders.text.tower.", "": "similarity."}


def published_weights(model: JointModel) -> Weights:
    """The weights of a joint model's files under the names of a matcher."""
    found: dict[str, Tensor] = {}
    for path in model.source.weights:
        found |= _read(path)
    try:
        towers = ours(found, model.shape, open_clip=model.source.is_open_clip)
    except (BadInput, RuntimeError) as problem:
        raise BadInput(f"{model.source.name}: {problem}") from None
    return {_place(name): value for name, value in towers.items()}


def _place(name: str) -> str:
    side = next(side for side in PLACES if name.startswith(side))
    return PLACES[side] + name.removeprefix(side)


def _read(path: Path) -> dict[str, Tensor]:
    if path.name not in PICKLES:
        return checkpoints.load_weights(path)
    content = read_checkpoint(path)
    state = content.get("state_dict", content)
    pairs = state.items() if isinstance(state, dict) else ()
    return {key.removeprefix("module."): value for key, value in pairs if isinstance(value, Tensor)}


def take(module: nn.Module, weights: Weights, name: str) -> None:
    """Give a module the weights that are its own; what it has beside them (sets, adapters) stays as it began."""
    own = module.state_dict()
    here = {key: value for key, value in weights.items() if key in own or not key.startswith("similarity.")}
    wrong = next((key for key, value in here.items() if key in own and own[key].shape != value.shape), None)
    if wrong is not None:
        shapes = f"{tuple(here[wrong].shape)}, and its configuration asks for {tuple(own[wrong].shape)}"
        raise BadInput(f"{name}: the weight {wrong!r} is {shapes}")
    left = module.load_state_dict(here, strict=False)
    missing = [key for key in left.missing_keys if ".tower." in key or key.startswith("similarity.scale")]
    if missing or left.unexpected_keys:
        odd = (missing or left.unexpected_keys)[0]
        raise BadInput(f"{name}: the weight {odd!r} is {'missing' if missing else 'unknown'}; is the file whole?")
