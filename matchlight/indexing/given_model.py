"""Vectors that somebody made already as the model of an index: it compares them, and reads no questions."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
from PIL import Image

from matchlight import files
from matchlight.console import BadInput
from matchlight.data.fingerprints import digest
from matchlight.indexing.index_model import Info, OneVector
from matchlight.indexing.item_sets import EXTRA, VECTORS, ItemSets
from matchlight.indexing.query_reader import NO_MODEL, QueryReader
from matchlight.indexing.scorers import DotProduct, as_float32
from matchlight.pairs import IMAGE, Pairs
from matchlight.runs import given_recipe


class GivenModel(OneVector):
    """An `IndexModel` of given vectors, compared by their cosine."""

    def __init__(self, info: Info, folder: Path | None = None):
        self.info, self.folder = info, folder or Path(given_recipe.VECTORS)
        self.scorer = self.own_vectors = DotProduct()

    def mark(self) -> str:
        """Nothing of it can change."""
        return digest()

    def data(self, pairs: Pairs) -> GivenData:
        """Data whose pictures and captions are such vectors."""
        dim = 0 if pairs.text_features is None else pairs.text_features.shape[1]
        if dim != (wanted := self.info["sizes"]["text_dim"]):
            given = f"text vectors of {dim}" if dim else "words"
            raise BadInput(f"{pairs.root}: captions are {given}, those of this index are text vectors of {wanted}")
        return GivenData(pairs)

    def reader(self, padding: int | None = None) -> NoReader:
        """What refuses to read questions."""
        return NoReader()

    def copy_to(self, folder: Path) -> None:
        """What it is called, and how long its vectors are."""
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(folder / "recipe.json", self.info)


class GivenData:
    """Data that is vectors of pictures and captions."""

    broken = np.zeros(0, np.int64)

    def __init__(self, pairs: Pairs):
        if pairs.features is None or pairs.text_features is None:
            raise BadInput(f"{pairs.root}: this index is of ready-made vectors, and this set has pictures only")
        self.pairs, self.images, self.texts = pairs, pairs.features, pairs.text_features
        if self.images.shape[-1] != (wanted := self.texts.shape[1]):
            raise BadInput(f"{pairs.root}: pictures have {self.images.shape[-1]} features each, captions {wanted}")

    def encode(self, side: str, places: np.ndarray) -> ItemSets:
        """The vectors, brought to one length."""
        given = as_float32(self.images.gather(places) if side == IMAGE else self.texts[places])
        vectors = given / np.maximum(np.linalg.norm(given, axis=1, keepdims=True), 1e-12)
        return ItemSets(({VECTORS: vectors[:, None], f"{EXTRA}id": np.asarray(places, dtype=np.int64)},))

    def padding(self, rows: np.ndarray) -> int | None:
        """None: there is nothing to pad."""
        return None


class NoReader(QueryReader):
    """Refuses questions: nothing is known that would make such vectors of them."""

    sees = False

    def tokens(self, words: str) -> NoReturn:
        """Refused."""
        raise BadInput(NO_MODEL)

    def texts(self, sequences: list[list[int]]) -> NoReturn:
        """Refused."""
        raise BadInput(NO_MODEL)

    def pictures(self, pictures: list[Image.Image]) -> NoReturn:
        """Refused."""
        raise BadInput(NO_MODEL)
