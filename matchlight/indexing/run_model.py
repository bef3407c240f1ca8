"""A run as the model of an index: torch reads data and questions, and compares what a dot product does not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from matchlight import files
from matchlight.console import say
from matchlight.core import IMAGE, BadInput, Embeddings, Matcher, Parts
from matchlight.data.fingerprints import digest
from matchlight.devices import start_processes
from matchlight.indexing.attention_maps import inside
from matchlight.indexing.index_model import WORDS, Info, copy_kept
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import as_item_sets, comparing
from matchlight.indexing.query_encoder import QueryEncoder, usual_padding
from matchlight.indexing.scorers import DotProduct, OwnVectors, Scorer
from matchlight.indexing.slot_attention import keep_slot_attention, keeping_slot_attention, slot_shares
from matchlight.inputs.batches import Table
from matchlight.inputs.joint_models import OWN
from matchlight.inputs.onnx_files import INSTALL, is_installed
from matchlight.pairs import Pairs
from matchlight.runs.evaluation import products_in
from matchlight.runs.folder import Run
from matchlight.scoring.encode import encode
from matchlight.training import checkpoints


@dataclass
class RunModel:
    """An `IndexModel` of a run."""

    run: Run

    @staticmethod
    def open(folder: Path, device: str) -> RunModel:
        """The run in an index, whose sets of slots are explained."""
        run = Run.load(folder, device=device)
        keep_slot_attention(run.matcher)
        return RunModel(run)

    @property
    def folder(self) -> Path:
        """Where it came from."""
        return self.run.folder

    @property
    def info(self) -> Info:
        """What recipe.json holds."""
        return self.run.info

    @property
    def method(self) -> str:
        """The recipe's name."""
        return self.run.method

    @property
    def keeps_padding(self) -> bool:
        """Whether its scores depend on the padding of captions."""
        return self.run.matcher.depends_on_padding

    @property
    def scorer(self) -> Scorer:
        """What compares as it does."""
        return self._comparing[0]

    @property
    def own_vectors(self) -> OwnVectors:
        """Its own vectors that propose candidates."""
        return self._comparing[1]

    @cached_property
    def _comparing(self) -> tuple[Scorer, OwnVectors]:
        return comparing(self.run.matcher, self.run.device)

    def mark(self) -> str:
        """Changes when its weights do."""
        return digest(*(value.cpu().numpy() for value in self.run.matcher.state_dict().values()))

    def start(self) -> None:
        """Join the other processes of a build; under torchrun each has a device of its own."""
        self.run.matcher.to(start_processes(self.run.device))

    def data(self, pairs: Pairs) -> RunData:
        """A data set, as it reads it."""
        return RunData(self.run.matcher, self.run.inputs(pairs).table)

    def reader(self, padding: int | None = None) -> QueryEncoder:
        """What reads questions."""
        return QueryEncoder(self.run, padding)

    def inside(self, image: ItemSets, text: ItemSets) -> tuple[str, np.ndarray] | None:
        """What its attention or its slots say of a picture and words."""
        return inside(self.run.matcher, self.run.device, image, text)

    def copy_to(self, folder: Path) -> None:
        """Weights, words, and what else it needs to be opened."""
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(folder / "recipe.json", self.info)
        checkpoints.save_weights(folder / "model.safetensors", self.run.matcher.state_dict())
        if self.run.vocabulary is not None:
            self.run.vocabulary.save(folder / "vocab.json")
        if (self.folder / OWN).is_dir():
            shutil.copytree(self.folder / OWN, folder / OWN, dirs_exist_ok=True)
        copy_kept(self.folder, folder)

    def keep_words(self, folder: Path) -> None:
        """The tower of captions of a dual encoder as ONNX, with a line about its size."""
        if not isinstance(self.scorer, DotProduct) or self.keeps_padding or self.info["sizes"].get("text_dim"):
            raise BadInput(f"{self.folder}: words are kept as ONNX of dual encoders alone (one vector, a dot product)")
        if not is_installed():
            raise BadInput(f"keeping words as ONNX needs the packages onnx and onnxruntime: {INSTALL}")
        from matchlight.runs.onnx_export import export_words

        export_words(self.run, folder / WORDS)
        say(f"words are read without torch: {(folder / WORDS).stat().st_size / 1e6:.1f} MB more")


class RunData:
    """A data set as a run reads it."""

    def __init__(self, matcher: Matcher, table: Table):
        self.matcher, self.table = matcher, table
        self.pairs, self.broken = table.pairs, table.broken
        self._boxes = _boxes(table)

    def encode(self, side: str, places: np.ndarray) -> ItemSets:
        """The sets of these pictures or captions, as they are to be stored."""
        device = next(self.matcher.parameters()).device
        with keeping_slot_attention(self.matcher), products_in("fp32", device):
            made = encode(self.matcher, self.table, side, places, quiet=False)
        boxes = self._boxes[places].astype(np.float32) if self._boxes is not None and side == IMAGE else None
        return as_item_sets(_kept(made, side, boxes))

    def padding(self, rows: np.ndarray) -> int | None:
        """How far questions are padded, for a model that depends on it."""
        if not self.matcher.depends_on_padding or self.table.captions is None or not len(rows):
            return None
        return usual_padding(self.table.captions.lengths[rows], self.matcher.encode_batch)


def _boxes(table: Table) -> np.ndarray | None:
    """(N, R, 4) where regions are in parts of the picture, where that is known of ready-made features."""
    known = table.pairs.boxes
    if known is None or table.pixels or len(table.images.shape) != 3 or known.shape[1] != table.images.shape[1]:
        return None
    corners = known[..., :4]
    return corners if corners.min() >= -0.01 and corners.max() <= 1.01 else None


def _kept(embedding: Embeddings, side: str, boxes: np.ndarray | None) -> Embeddings:
    """What is stored: slots' shares of a picture in short form, and where its regions are."""
    out = []
    for part in embedding.members:
        extra = {name: value for name, value in part.extra.items() if name not in ("attention", "residual")}
        shares = slot_shares(part)
        if side == IMAGE and shares is not None:
            extra["shares"] = shares
        out.append(replace(part, extra=extra))
    if boxes is not None:
        out[0] = replace(out[0], extra={**out[0].extra, "box": torch.from_numpy(boxes)})
    return out[0] if len(out) == 1 else Parts(tuple(out))
