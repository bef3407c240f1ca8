"""Both towers of an exported run, computed by ONNX Runtime: pictures and captions in, vectors out, with NumPy alone.

    towers = OnnxTowers.open("model.onnx")
    scores = towers.pictures([Image.open("a.jpg")])[:, 0] @ towers.captions(["a dog on a beach"])[:, 0].T

One file holds everything: the two networks (inputs `pixels` or `features`, `tokens` and `mask`; outputs `image` and
`text`, (N, vectors, dim) each) and, as JSON in its metadata under `matchlight`, how pictures become pixels and captions
tokens. An input whose output is not asked for may be left out.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.inputs.onnx_files import INSTALL, is_installed, open_part, takes_weights_elsewhere
from matchlight.inputs.preprocessing import Preprocessing, as_size, known_resample
from matchlight.inputs.text.captions import pad
from matchlight.inputs.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession
    from PIL import Image

KEY, FORMAT = "matchlight", 1
TOKENS, MASK, SEEN, READ = "tokens", "mask", "image", "text"
SIDES = (SEEN, READ)
DOT = "dot"
NO_PICTURES = "none"  # the input of pictures in a file that reads words alone


class PictureInfo(TypedDict):
    """How a picture becomes the input of its tower."""

    input: str  # "pixels" in 0..255, "features" that came with the data, or none at all
    size: list[int]  # of pixels: height, width;  of features: regions, numbers each
    shorter: NotRequired[int | None]
    resample: NotRequired[str]
    reducing: NotRequired[bool]
    even: NotRequired[bool]


class CaptionInfo(TypedDict):
    """How a caption becomes numbers: words of an own vocabulary, or pieces by a tokenizer of the package tokenizers."""

    words: NotRequired[dict[str, int]]
    ids: NotRequired[int]
    tokenizer: NotRequired[str]
    longest: NotRequired[int]
    fills: NotRequired[bool]  # SigLIP: filled up to the longest, of lower-case letters


class TowersInfo(TypedDict):
    """What the file says of itself."""

    format: int
    version: str
    method: str
    dim: int
    vectors: int  # a picture; 1 and a dot product: a dual encoder
    similarity: str
    scale: float  # scores are scale * dot product + bias
    bias: float
    int8: bool
    opset: int
    picture: PictureInfo
    caption: CaptionInfo


@dataclass
class OnnxTowers:
    """An exported run, open."""

    path: Path
    info: TowersInfo
    threads: int
    model: ModelProto | None  # what the file holds, until both towers are open
    _towers: dict[str, InferenceSession] = field(default_factory=dict)  # by output, opened when they are first needed
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def open(path: str | Path, *, threads: int | None = None) -> OnnxTowers:
        """Open what `matchlight export` wrote; `threads` None: OMP_NUM_THREADS, or all cores."""
        path = Path(path)
        if not path.is_file():
            raise BadInput(f"{path}: no such file; `matchlight export RUN -o {path.name}` writes one")
        if not is_installed():
            raise BadInput(f"{path}: needs the packages onnx and onnxruntime: {INSTALL}")
        with _damage_told(path):
            model = _read(path)
            return OnnxTowers(path, _checked(path, model), threads or _threads(), model)

    @property
    def is_dual(self) -> bool:
        """Whether a picture and a caption are one vector each, compared by their dot product."""
        return self.info["vectors"] == 1 and self.info["similarity"] == DOT

    def check_dual(self) -> None:
        """Refuse any other: nothing but the vectors of the file is known, and a dot product compares those."""
        if not self.is_dual:
            what = f"{self.info['vectors']} vectors a picture, compared by {self.info['similarity']}"
            raise BadInput(
                f"{self.path}: {what}; only dual encoders (one vector, a dot product) can be used as ONNX alone"
            )

    # ---- reading -----------------------------------------------------------------------------------------------------

    @cached_property
    def preprocessing(self) -> Preprocessing | None:
        """How pictures become pixels; None where it reads ready-made features."""
        said = self.info["picture"]
        if said["input"] != "pixels":
            return None
        return Preprocessing(
            as_size(said["size"]),
            said.get("shorter"),
            known_resample(said.get("resample", "bilinear")),
            reducing=said.get("reducing", True),
            even=said.get("even", False),
        )

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """Its words; None where captions are cut into pieces."""
        said = self.info["caption"]
        return Vocabulary(said["words"], size=said.get("ids")) if "words" in said else None

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each caption, with what stands around them."""
        if self.vocabulary is not None:
            return [self.vocabulary.encode(text) for text in texts]
        lower = self.info["caption"].get("fills", False)
        found = self._tokenizer.encode_batch([text.lower() if lower else text for text in texts])
        return [list(one.ids) for one in found]

    def piece(self, number: int) -> str:
        """What a piece of its tokenizer is called."""
        return self._tokenizer.id_to_token(number) or ""

    @cached_property
    def _tokenizer(self):  # noqa: ANN202 - of a package that brings no types
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise BadInput(f"{self.path}: reads captions by the package tokenizers: {INSTALL}") from None
        said = self.info["caption"]
        tokenizer, longest = Tokenizer.from_str(said["tokenizer"]), said.get("longest", 512)
        tokenizer.enable_truncation(longest)
        if not said.get("fills"):
            tokenizer.no_padding()
        return tokenizer

    # ---- computing ---------------------------------------------------------------------------------------------------

    def image(self, pictures: np.ndarray) -> np.ndarray:
        """(N, 3, H, W) pixels in 0..255, or features, -> (N, vectors, dim)."""
        return self._run(SEEN, {self.info["picture"]["input"]: pictures.astype(np.float32)})

    def text(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(N, L) word ids and which are real -> (N, vectors, dim)."""
        return self._run(READ, {TOKENS: tokens.astype(np.int64), MASK: mask.astype(bool)})

    def _run(self, wanted: str, given: dict[str, np.ndarray]) -> np.ndarray:
        return cast(np.ndarray, self._tower(wanted).run([wanted], given)[0])

    def _tower(self, wanted: str) -> InferenceSession:
        """One tower; a question in words does not wait for that of pictures."""
        with self._lock, _damage_told(self.path):
            if wanted not in self._towers:
                assert self.model is not None
                inputs = [self.info["picture"]["input"]] if wanted == SEEN else [TOKENS, MASK]
                self._towers[wanted] = open_part(self.model, inputs, wanted, threads=self.threads)
                self.model = None if len(self._towers) == len(SIDES) else self.model
            return self._towers[wanted]

    def pictures(self, pictures: Sequence[Image.Image]) -> np.ndarray:
        """Pictures of any size -> (N, vectors, dim)."""
        if self.preprocessing is None:
            raise BadInput(f"{self.path}: reads ready-made features; a picture cannot be turned into them here")
        return self.image(np.stack([self.preprocessing.pixels(one) for one in pictures]))

    def captions(self, texts: Sequence[str]) -> np.ndarray:
        """Captions -> (N, vectors, dim)."""
        tokens, mask, _ = pad(self.token_ids(texts))
        return self.text(tokens, mask)


def _threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else os.cpu_count() or 1


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """One line for each way to be broken: ONNX and ONNX Runtime have exceptions of their own for every one of them."""
    try:
        yield
    except BadInput:
        raise
    except Exception as problem:
        why = " ".join(str(problem).split())[:120]
        raise BadInput(f"{path}: not an ONNX file that can be opened ({why})") from None


def _read(path: Path) -> ModelProto:
    """The file, weights and all."""
    import onnx

    model = onnx.load(os.fspath(files.regular(path)), load_external_data=False)
    if takes_weights_elsewhere(model):
        raise BadInput(f"{path}: keeps its weights in other files, which are not read; `matchlight export` does not")
    return model


def _checked(path: Path, model: ModelProto) -> TowersInfo:
    """What a file says of itself, if it is what `matchlight export` writes."""
    said = {one.key: one.value for one in model.metadata_props}
    if KEY not in said:
        raise BadInput(f"{path}: an ONNX file of another tool; `matchlight export RUN` writes those that are read here")
    try:
        info = json.loads(said[KEY])
        known = info["format"] == FORMAT and isinstance(info["picture"], dict) and isinstance(info["caption"], dict)
        numbers = all(isinstance(info[name], int | float) for name in ("dim", "vectors", "scale", "bias", "opset"))
    except (ValueError, KeyError, TypeError) as problem:
        raise BadInput(f"{path}: its metadata is not as `matchlight export` writes it ({problem})") from None
    if not (known and numbers):
        raise BadInput(f"{path}: written by another version of Matchlight; export the run again")
    return cast(TowersInfo, info)
