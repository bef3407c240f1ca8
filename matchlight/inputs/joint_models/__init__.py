"""Joint models: CLIP, SigLIP and SigLIP2, whose two towers put pictures and captions into one space.

    model = joint_model("hf:FOLDER")        # or hf:NAME, from the hub
    ids = model.pieces.token_ids(captions)  # by its own tokenizer, its own length and filling
    pixels = model.preprocessing.pixels(picture)
    towers = model.towers()                 # the two networks; `methods/dual.py` gives them their weights

In reading order:

    shapes.py          what a configuration says of the towers
    towers.py          the towers
    weight_names.py    published weights under the towers' names
    picture_strips.py  pictures that keep their shape (SigLIP2)
    model_files.py     where the files are: a folder, or the hub
    word_pieces.py     captions by the model's own tokenizer
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from matchlight.core import BadInput
from matchlight.inputs.joint_models.model_files import CONFIG, OPEN_CONFIG, Source, of_folder, source
from matchlight.inputs.joint_models.picture_strips import strips
from matchlight.inputs.joint_models.shapes import Shape, open_clip_shape, shape_of
from matchlight.inputs.joint_models.towers import Towers
from matchlight.inputs.joint_models.word_pieces import WordPieces
from matchlight.inputs.preprocessing import Preprocessing, stated

__all__ = ["OWN", "JointModel", "Preprocessing", "Shape", "Source", "Towers", "at_home", "joint_model", "own_copy"]

OWN = "pretrained"  # the folder of a run that holds its model's configuration and tokenizer
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class JointModel:
    """A joint model's files, understood."""

    source: Source
    shape: Shape

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How it wants its pictures: as its own files say."""
        if self.source.is_open_clip:
            return open_clip_preprocessing(self.source.json(OPEN_CONFIG), self.shape.picture.image)
        config = self.source.json("preprocessor_config.json") or _nested(self.source.json("processor_config.json"))
        if not config:
            raise BadInput(f"{self.source.name}: no preprocessor_config.json that says how it wants its pictures")
        made = stated(config)
        if self.shape.picture.flexible:
            most = config.get("max_num_patches", 256)
            return strips(made, self.shape.picture.patch, most if isinstance(most, int) else 256)
        side = self.shape.picture.image
        if made.size != (side, side):
            sizes = f"{made.size[0]} x {made.size[1]} pixels, and its towers {side} x {side}"
            raise BadInput(f"{self.source.name}: its preprocessor makes {sizes}")
        return made

    @cached_property
    def pieces(self) -> WordPieces:
        """How it reads captions."""
        return WordPieces(self.source, self.shape)

    def towers(self) -> Towers:
        """Both towers, their weights random still."""
        return Towers(self.shape)


def joint_model(name: str) -> JointModel:
    """`hf:NAME`, `hf:FOLDER`, or the folder of a run's own copy."""
    found = source(name) if name.startswith("hf:") else own_copy(Path(name))
    try:
        shape = open_clip_shape(found.json(OPEN_CONFIG)) if found.is_open_clip else shape_of(found.json(CONFIG))
    except BadInput as problem:
        raise BadInput(f"{name}: {problem}") from None
    return JointModel(found, shape)


def at_home(name: str, home: Path | None) -> str:
    """The model of that name, or a run's own copy of its files where the run has one."""
    return str(home / OWN) if home is not None and (home / OWN).is_dir() else name


def own_copy(folder: Path) -> Source:
    """A run's own copy of its model's files."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; a joint model is hf:NAME of the hub, or hf:FOLDER")
    return of_folder(str(folder), folder, own=True)


def _nested(config: dict[str, object]) -> dict[str, object]:
    """What newer files say of pictures beside what they say of captions."""
    inner = config.get("image_processor")
    return inner if isinstance(inner, dict) else {}


def open_clip_preprocessing(config: dict[str, object], side: int) -> Preprocessing:
    """What an `open_clip_config.json` says: the shorter side and the middle, or the whole picture squashed."""
    found = config.get("preprocess_cfg")
    said = found if isinstance(found, dict) else {}
    made = stated(
        {
            "size": {"height": side, "width": side},
            "resample": 2 if said.get("interpolation") == "bilinear" else 3,
            "image_mean": said.get("mean", CLIP_MEAN),
            "image_std": said.get("std", CLIP_STD),
        }
    )
    mode = said.get("resize_mode", "shortest")
    if mode not in ("shortest", "squash"):
        raise BadInput(f"open_clip models whose pictures are resized by {mode!r:.40} cannot be read")
    return made if mode == "squash" else replace(made, shorter=side, even=True)
