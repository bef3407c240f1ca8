"""A run as one ONNX file: both towers, from pixels and word ids to vectors, checked against torch before it is kept.

Batches and captions may have any length. The picture tower begins at pixels wherever the run reads pictures: a frozen
backbone becomes part of it. An ensemble of dual encoders is one dual encoder whose vectors are the members' side by
side. With int8, matrix products are rounded; convolutions are not, since that costs much accuracy
(docs/integrations.md has the figures).
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from matchlight import files
from matchlight.console import VERSION
from matchlight.core import IMAGE, TEXT, BadInput, Items, Matcher
from matchlight.data.tokenising import MOST_WORDS
from matchlight.inputs.backbones import Backbone, backbone
from matchlight.inputs.backbones.base import first_line
from matchlight.inputs.backbones.vision_transformer import EVERY_CELL
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.onnx_files import (
    INSTALL,
    MATRICES,
    OPSET,
    SAME,
    has_any,
    is_installed,
    round_matrices,
    write_network,
)
from matchlight.inputs.onnx_towers import (
    DOT,
    FORMAT,
    KEY,
    MASK,
    NO_PICTURES,
    READ,
    SEEN,
    TOKENS,
    CaptionInfo,
    OnnxTowers,
    PictureInfo,
    TowersInfo,
)
from matchlight.inputs.sentence_encoders import sentence_encoder
from matchlight.pairs import Pairs
from matchlight.parts.layers import FAR, GeneralizedPooling
from matchlight.parts.similarities import Dot
from matchlight.runs.embeddings import joined
from matchlight.runs.folder import Run

COMPARED = 32  # real pictures and captions that are compared with torch
PIECES = 512  # the most word pieces that any encoder reads


@dataclass(frozen=True)
class Exported:
    """What was written, and how near it is to torch."""

    file: str
    bytes: int
    opset: int
    int8: bool
    dim: int
    random: float  # largest difference on random inputs, as a share of the largest number
    real: float | None  # the same on pictures and captions of the data that was given
    cosine: float  # of int8: the mean cosine with torch's vectors, on the real ones where there are some


# ---- what is written -------------------------------------------------------------------------------------------------


class Tabled(nn.Module):
    """Generalised pooling by a table of its weights, which depend on a set's size alone."""

    def __init__(self, pooling: GeneralizedPooling, most: int):
        super().__init__()
        self.table: Tensor
        sizes = torch.arange(1, most + 1)
        rows = torch.cat([pooling.weights(part, most) for part in sizes.split(64)])
        self.register_buffer("table", torch.cat([rows[:1], rows]))  # row = size; none has no size

    def forward(self, x: Tensor, mask: Tensor | None, sizes: Tensor | None = None) -> Tensor:
        """(N, K, D) -> (N, D)."""
        real = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        count = real.long().sum(1)
        ordered = x.masked_fill(~real[..., None], FAR).sort(dim=1, descending=True).values
        weights = self.table[count][:, : x.shape[1]]
        within = torch.arange(x.shape[1])[None] < count[:, None]
        return torch.einsum("nk,nkd->nd", weights, ordered * within[..., None])


class Both(nn.Module):
    """Both towers as one function of three arrays."""

    def __init__(self, matcher: Matcher, seen: Backbone | None, *, pooled: bool, most: dict[str, int]):
        super().__init__()
        self.matcher, self.seen, self.pooled = _traceable(matcher, most), seen, pooled

    def forward(self, pictures: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3, H, W) pixels or features, (M, L) ids and mask -> (N, K, D), (M, K, D)."""
        if self.seen is not None:
            pictures = self.seen.grid(self.seen.normalise(pictures))
            pictures = self.seen.pool(pictures) if self.pooled else pictures
        return self._embed(IMAGE, pictures, None), self._embed(TEXT, tokens, mask)

    def _embed(self, side: str, x: Tensor, mask: Tensor | None) -> Tensor:
        return joined(self.matcher.embed(side, Items(x, mask, torch.zeros(1, dtype=torch.int64))))


class Words(nn.Module):
    """The tower of captions alone."""

    def __init__(self, matcher: Matcher, *, most: dict[str, int]):
        super().__init__()
        self.matcher = _traceable(matcher, most)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(M, L) ids and mask -> (M, K, D)."""
        return joined(self.matcher.embed(TEXT, Items(tokens, mask, torch.zeros(1, dtype=torch.int64))))


def _traceable(matcher: Matcher, most: dict[str, int]) -> Matcher:
    """A copy whose poolings have no loop over sizes, which ONNX could not write down; `most` by side is the largest."""
    whole = copy.deepcopy(matcher).cpu().float().eval()
    sides = [(side, encoder) for member in whole.each() for side, encoder in member.encoders.items()]
    for side, encoder in sides:
        for part in list(encoder.modules()):
            for name, inner in part.named_children():
                if isinstance(inner, GeneralizedPooling):
                    setattr(part, name, Tabled(inner, most[side]))
    return whole


@dataclass
class Export:
    """A run on its way to a file."""

    run: Run
    pairs: Pairs | None = None

    @cached_property
    def backbone(self) -> Backbone | None:
        """The frozen network before the run's own picture tower; None where pixels or features enter it directly."""
        view = self.run.view
        if view.kind not in ("grid", "pooled"):
            return None
        return backbone(view.backbone, view.size, choice=view.choice or EVERY_CELL).for_inference()

    @cached_property
    def network(self) -> Both:
        """What is traced."""
        return Both(self.run.matcher, self.backbone, pooled=self.run.view.kind == "pooled", most=self.most)

    @property
    def most(self) -> dict[str, int]:
        """Vectors that a set of each side has at most."""
        words = MOST_WORDS + 2 if self.run.vocabulary is not None else PIECES
        regions = int(self.run.info["sizes"].get("regions") or 1)
        return {IMAGE: PIECES if self.run.view.kind == "pixels" else regions, TEXT: words}

    @cached_property
    def picture(self) -> PictureInfo:
        """How pictures enter."""
        view, sizes = self.run.view, self.run.info["sizes"]
        if view.kind == "given":
            one = [sizes["image_dim"]] if sizes["image"] == "vector" else [sizes["regions"], sizes["image_dim"]]
            return {"input": "features", "size": one}
        made = view.preprocessing
        said: PictureInfo = {"input": "pixels", "size": list(made.size), "shorter": made.shorter}
        return said | {"resample": made.resample, "reducing": made.reducing, "even": made.even}

    @cached_property
    def caption(self) -> CaptionInfo:
        """How captions enter."""
        run, view = self.run, self.run.view
        if run.vocabulary is not None:
            return {"words": run.vocabulary.ids, "ids": len(run.vocabulary)}
        if view.joint:
            model = view.joint_model
            inner, longest = model.pieces.tokenizer, model.shape.text.length
            fills = model.shape.family != "clip"
        else:
            inner, fills = sentence_encoder(view.sentences)._tokenizer, False
            longest = getattr(inner, "model_max_length", 256)
        fast = getattr(inner, "backend_tokenizer", inner)
        if not hasattr(fast, "to_str"):
            raise BadInput(f"{run.folder}: its tokenizer has no form that other programs read (a tokenizer.json)")
        return {"tokenizer": fast.to_str(), "longest": min(int(longest), PIECES), "fills": fills}

    def info(self, vectors: int, dim: int, *, int8: bool) -> TowersInfo:
        """What the file says of itself."""
        members = self.run.matcher.each()
        first = members[0].similarity
        dot = all(isinstance(one.similarity, Dot) for one in members)
        learnt = {name: float(value.detach()) for name, value in first.named_parameters()} if dot else {}
        return {
            "format": FORMAT,
            "version": VERSION,
            "method": self.run.method,
            "dim": dim,
            "vectors": vectors,
            "similarity": DOT if dot else type(first).__name__,
            "scale": math.exp(learnt.get("scale", 0.0)),
            "bias": learnt.get("bias", 0.0),
            "int8": int8,
            "opset": OPSET,
            "picture": self.picture,
            "caption": self.caption,
        }

    # ---- inputs ------------------------------------------------------------------------------------------------------

    def random(self, pictures: int, captions: int, length: int) -> dict[str, np.ndarray]:
        """Inputs of these sizes, the captions of all lengths up to this one."""
        rng = np.random.default_rng(0)
        shape = (pictures, 3, *self.picture["size"]) if self._pixels else (pictures, *self.picture["size"])
        seen = rng.integers(0, 256, shape) if self._pixels else rng.normal(size=shape)
        mask = np.arange(length)[None] < rng.integers(1, length + 1, (captions, 1))
        mask[0] = True
        tokens = np.where(mask, rng.integers(1, self._ids, mask.shape), 0)
        return {self.picture["input"]: seen.astype(np.float32), TOKENS: tokens.astype(np.int64), MASK: mask}

    @property
    def _pixels(self) -> bool:
        return self.picture["input"] == "pixels"

    @cached_property
    def _ids(self) -> int:
        view = self.run.view
        if self.run.vocabulary is not None:
            return len(self.run.vocabulary)
        return view.joint_model.shape.text.vocabulary if view.joint else 1000

    @cached_property
    def real(self) -> dict[str, np.ndarray] | None:
        """Some pictures and captions of the data that was given."""
        if self.pairs is None:
            return None
        made = self.run.view.preprocessing if self._pixels else None
        if made is not None and self.pairs.pictures is not None:
            pictures = next(decoded(self.pairs.pictures, 0, made, COMPARED))[0]
        elif made is None and self.pairs.features is not None:
            pictures = self.pairs.features.gather(np.arange(min(COMPARED, len(self.pairs.names))))
        else:
            raise BadInput(
                f"{self.pairs.root}: {self.run.folder} reads {self.picture['input']}, which it does not have"
            )
        table = self.run.inputs(self.pairs.select(np.arange(len(pictures)), self._rows(len(pictures)))).table
        items = table.items(TEXT, np.arange(len(table.pairs)))
        assert items.mask is not None
        seen = {self.picture["input"]: pictures.astype(np.float32)}
        return seen | {TOKENS: items.x.numpy(), MASK: items.mask.numpy()}

    def _rows(self, pictures: int) -> np.ndarray:
        assert self.pairs is not None
        return np.flatnonzero(self.pairs.picture < pictures)[:COMPARED]

    def by_torch(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the run itself makes of inputs."""
        pictures, tokens, mask = given.values()
        return {SEEN: self.seen_by_torch(pictures), READ: self.read_by_torch(tokens, mask)}

    @torch.inference_mode()
    def seen_by_torch(self, pictures: np.ndarray) -> np.ndarray:
        """(N, K, D) of pixels or features."""
        x = torch.from_numpy(pictures)
        if self.backbone is not None:
            x = self.backbone.pooled(x) if self.run.view.kind == "pooled" else self.backbone(x)
        items = Items(x.to(self.run.device), None, torch.arange(len(x)))
        return joined(self.run.matcher.eval().embed(IMAGE, items)).cpu().numpy()

    @torch.inference_mode()
    def read_by_torch(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(N, K, D) of word ids and which are real."""
        x, real = torch.from_numpy(tokens), torch.from_numpy(mask)
        items = Items(x, real, torch.arange(len(x)), {"length": real.sum(1)}).to(self.run.device)
        return joined(self.run.matcher.eval().embed(TEXT, items)).cpu().numpy()


# ---- writing and checking --------------------------------------------------------------------------------------------


def export_onnx(run: Run, out: str | Path, *, int8: bool = False, pairs: Pairs | None = None) -> Exported:
    """Write FILE.onnx; what is not the same as torch (or with int8 alike) is not left behind."""
    path = Path(out)
    if path.suffix != ".onnx":
        raise BadInput(f"{path}: towers are written as .onnx")
    if not is_installed():
        raise BadInput(f"exporting needs the packages onnx and onnxruntime: {INSTALL}")
    if run.info["sizes"].get("text_dim"):
        raise BadInput(f"{run.folder}: it reads text vectors, not words; there is no caption tower to export")
    if len(run.matcher.each()) > 1 and not all(isinstance(one.similarity, Dot) for one in run.matcher.each()):
        raise BadInput(f"{run.folder}: an ensemble whose scores are no dot products cannot be written as two towers")
    work = Export(run, pairs)
    with tempfile.TemporaryDirectory(prefix="matchlight-onnx-") as folder:
        plain = Path(folder, "towers.onnx")
        _write(work, plain)
        made = plain.with_name("int8.onnx") if int8 and has_any(plain, MATRICES) else plain
        if made != plain:
            round_matrices(plain, made)
        vectors = work.by_torch(work.random(1, 1, 3))[SEEN]
        _finish(made, work.info(vectors.shape[1], vectors.shape[2], int8=int8), work.random(1, 1, 2))
        towers = OnnxTowers.open(made, threads=torch.get_num_threads())
        report = _compared(towers, work, path, int8=int8)
        with files.replaced(path) as draft:
            shutil.copyfile(made, draft)
    return report


def _write(work: Export, path: Path) -> None:
    seen = work.picture["input"]
    example = {name: torch.from_numpy(value) for name, value in work.random(2, 3, 5).items()}
    free = {seen: {0: "pictures"}, SEEN: {0: "pictures"}, TOKENS: {0: "captions", 1: "length"}}
    free |= {MASK: {0: "captions", 1: "length"}, READ: {0: "captions", 1: "vectors"}}
    try:
        write_network(work.network, example, path, outputs=[SEEN, READ], free=free)
    except BadInput:
        raise
    except Exception as error:  # whatever a network holds that ONNX has no word for
        raise BadInput(
            f"{work.run.folder}: a model of {work.run.method} cannot be written as ONNX ({first_line(error)})"
        ) from None


def export_words(run: Run, path: Path) -> None:
    """Write the tower of captions of a dual encoder alone; what is not the same as torch is not left behind."""
    work = Export(run)
    inputs = (TOKENS, MASK)
    example = {name: torch.from_numpy(value) for name, value in work.random(1, 3, 5).items() if name in inputs}
    free = {**dict.fromkeys(inputs, {0: "captions", 1: "length"}), READ: {0: "captions"}}
    with tempfile.TemporaryDirectory(prefix="matchlight-onnx-") as folder:
        made = Path(folder, path.name)
        try:
            write_network(Words(run.matcher, most=work.most), example, made, outputs=[READ], free=free)
            tokens, mask = (work.random(1, 7, 12)[name] for name in inputs)
            wanted = work.read_by_torch(tokens, mask)
            _finish(
                made, {**work.info(1, wanted.shape[2], int8=False), "picture": {"input": NO_PICTURES, "size": []}}, {}
            )
            far = np.abs(OnnxTowers.open(made).text(tokens, mask) - wanted).max() / np.abs(wanted).max()
        except BadInput:
            raise
        except Exception as error:  # whatever a network holds that ONNX has no word for
            why = first_line(error)
            raise BadInput(f"{run.folder}: its reader of words cannot be written as ONNX ({why})") from None
        if far > SAME:
            raise BadInput(f"{run.folder}: as ONNX its reader of words differs by {far:.1g} from torch")
        with files.replaced(path) as draft:
            shutil.copyfile(made, draft)


def _finish(path: Path, info: TowersInfo, left_out: dict[str, np.ndarray]) -> None:
    """Put the metadata in, and values for inputs that are left out: one tower can then be run without the other."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(os.fspath(path))
    for name, value in left_out.items():
        model.graph.initializer.append(numpy_helper.from_array(np.zeros_like(value), name))
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(info)
    onnx.save(model, os.fspath(path))


def _compared(towers: OnnxTowers, work: Export, out: Path, *, int8: bool) -> Exported:
    """Sizes other than those it was written with, and real items, against torch."""
    random, _ = _difference(towers, work, work.random(3, 7, 12))
    real, cosine = (None, 1.0) if work.real is None else _difference(towers, work, work.real)
    if work.real is None:
        cosine = _difference(towers, work, work.random(3, 7, 12))[1]
    if not int8 and max(random, real or 0.0) > SAME:
        worst = max(random, real or 0.0)
        raise BadInput(f"{work.run.folder}: as ONNX it differs by {worst:.1g} from torch; nothing was written")
    size = towers.path.stat().st_size
    return Exported(str(out), size, OPSET, int8, towers.info["dim"], random, real, cosine)


def _difference(towers: OnnxTowers, work: Export, given: dict[str, np.ndarray]) -> tuple[float, float]:
    """The largest difference as a share of the largest number, and the mean cosine, over both sides."""
    seen = next(iter(given.values()))
    try:
        own = {SEEN: towers.image(seen), READ: towers.text(given[TOKENS], given[MASK])}
    except Exception as error:  # sizes that were fixed while it was written
        why = first_line(error)
        raise BadInput(f"{work.run.folder}: a model of {work.run.method} cannot be written as ONNX ({why})") from None
    plain, far, near = work.by_torch(given), 0.0, []
    for side, wanted in plain.items():
        far = max(far, float(np.abs(own[side] - wanted).max() / max(np.abs(wanted).max(), 1e-12)))
        length = np.linalg.norm(own[side], axis=-1) * np.linalg.norm(wanted, axis=-1)
        real = length > 0  # vectors of padded places are 0
        near.append(float(((own[side] * wanted).sum(-1)[real] / length[real]).mean()))
    return far, float(np.mean(near))
