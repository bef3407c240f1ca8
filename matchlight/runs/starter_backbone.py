"""The picture network of `starter-small` as a backbone: TinyViT, tuned to tell captions apart, and frozen."""

from __future__ import annotations

from matchlight.inputs.backbones.base import loaded_later
from matchlight.inputs.backbones.tiny_vit_backbone import TinyVit5M
from matchlight.runs.starters import SMALL
from matchlight.training.checkpoints import load_weights

HOLDS = "encoders.image.backbone."  # what its weights are called in the starter's file


class StarterPictures(TinyVit5M):
    """What `starter-small` sees of a picture, cell by cell; its weights come with the package."""

    name = SMALL.name

    def __init__(self) -> None:
        with loaded_later():
            super().__init__()
        weights = load_weights(SMALL.folder / "model.safetensors")
        own = {name.removeprefix(HOLDS): value for name, value in weights.items() if name.startswith(HOLDS)}
        self.load_state_dict(own)
