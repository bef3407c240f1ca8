"""A run with one vector a side as a module of sentence-transformers: captions and pictures in, vectors out.

    model = sentence_transformer(run)                    # a SentenceTransformer
    model.encode(["a dog on a beach"]) @ model.encode([Image.open("a.jpg")]).T
    model.save_pretrained("my_model")                    # SentenceTransformer("my_model", trust_remote_code=True)

What is saved is the run itself: safetensors and JSON, read by `Run.load`. sentence-transformers asks for trust before
it imports a class of any other package; with a stranger's folder, `ml.load("my_model/0_RunModule/run")` needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Items
from matchlight.indexing.query_encoder import QueryEncoder
from matchlight.parts.similarities import Dot
from matchlight.runs.embeddings import joined
from matchlight.runs.folder import Run
from matchlight.runs.hub_runs import write_shareable

Features = dict[str, Tensor]


class RunModule(InputModule):  # type: ignore[misc]  # of a package whose types are not asked for
    """Both towers of a run."""

    save_in_root = False

    def __init__(self, run: Run):
        super().__init__()
        if not all(isinstance(one.similarity, Dot) for one in run.matcher.each()):
            raise BadInput(
                f"{run.folder}: {run.method} compares sets of vectors; sentence-transformers holds one an item"
            )
        self.matcher = run.matcher  # a part of this module: `to` and `parameters` know it
        self.encoder = QueryEncoder(run)

    @property
    def modalities(self) -> list[str]:
        """What it reads."""
        return ["text", "image"] if self.encoder.sees else ["text"]

    def preprocess(self, inputs: Sequence[str | Image.Image], prompt: str | None = None, **_: object) -> Features:
        """Word ids of captions, or pixels (or features) of pictures; a batch is of one kind."""
        pictures = [self.encoder.opened(one) for one in inputs if isinstance(one, Image.Image)]
        if pictures:
            return {"pixel_values": self.encoder.image_items(pictures).x}
        items = self.encoder.text_items([self.encoder.tokens(f"{prompt or ''}{text}")[0] for text in inputs])
        assert items.mask is not None
        return {"input_ids": items.x, "attention_mask": items.mask}

    def forward(self, features: Features, **_: object) -> dict[str, Any]:
        """`sentence_embedding`, (N, dim)."""
        if "pixel_values" in features:
            vectors = self._vectors(IMAGE, features["pixel_values"], None)
        else:
            vectors = self._vectors(TEXT, features["input_ids"], features["attention_mask"].bool())
        return {**features, "sentence_embedding": vectors}

    def _vectors(self, side: str, x: Tensor, mask: Tensor | None) -> Tensor:
        extra = {} if mask is None else {"length": mask.sum(1).cpu()}
        return joined(self.matcher.embed(side, Items(x, mask, torch.arange(len(x), device=x.device), extra)))[:, 0]

    def get_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        with torch.inference_mode():
            return int(self(self._moved(self.preprocess(["a"])))["sentence_embedding"].shape[1])

    def _moved(self, features: Features) -> Features:
        return {name: value.to(self.encoder.run.device) for name, value in features.items()}

    def save(self, output_path: str, *_: object, **__: object) -> None:
        """The run's own files."""
        write_shareable(self.encoder.run.folder, Path(output_path) / "run")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **given: Any) -> RunModule:
        """From the folder that `save` wrote."""
        wanted = {"token", "cache_folder", "revision", "local_files_only"}
        options = {name: value for name, value in given.items() if name in wanted}
        return cls(Run.load(Path(cls.load_dir_path(model_name_or_path, subfolder, **options)) / "run"))


def sentence_transformer(run: Run) -> SentenceTransformer:
    """A run as a SentenceTransformer."""
    return SentenceTransformer(modules=[RunModule(run)], device=str(run.device))
