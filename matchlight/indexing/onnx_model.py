"""An exported dual encoder as the model of an index: ONNX Runtime computes its vectors, NumPy compares them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from matchlight import files
from matchlight.console import BadInput, track
from matchlight.indexing.index_model import Info, OneVector, copy_kept
from matchlight.indexing.item_sets import EXTRA, VECTORS, ItemSets
from matchlight.indexing.query_reader import NO_FEATURES, TowerReader
from matchlight.indexing.scorers import DotProduct
from matchlight.inputs.features import PixelStore, PixelStream, pixel_stream, pixels, store_of_pixels
from matchlight.inputs.features.stream import is_too_large
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.inputs.text.captions import Captions
from matchlight.pairs import IMAGE, FeatureSource, Pairs
from matchlight.runs.onnx_recipe import onnx_recipe
from matchlight.runs.onnx_vectors import BATCH, CAPTIONS


class OnnxModel(OneVector):
    """An `IndexModel` of an exported run."""

    def __init__(self, towers: OnnxTowers, info: Info | None = None):
        self.towers, self.folder = towers, towers.path.parent
        self.info = onnx_recipe(towers) if info is None else info
        self.scorer = self.own_vectors = DotProduct(towers.info["scale"], towers.info["bias"])

    def mark(self) -> str:
        """Changes when its weights do."""
        with open(files.regular(self.towers.path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def data(self, pairs: Pairs) -> OnnxData:
        """A data set, as it reads it."""
        return OnnxData(self.towers, pairs)

    def reader(self, padding: int | None = None) -> OnnxReader:
        """What reads questions."""
        return OnnxReader(self.towers)

    def copy_to(self, folder: Path) -> None:
        """The file itself, and what else a run folder of it has."""
        folder.mkdir(parents=True, exist_ok=True)
        files.write_json(folder / "recipe.json", self.info)
        shutil.copyfile(self.towers.path, folder / self.towers.path.name)
        if self.towers.vocabulary is not None:
            self.towers.vocabulary.save(folder / "vocab.json")
        copy_kept(self.folder, folder)


class OnnxData:
    """A data set as an exported run reads it."""

    def __init__(self, towers: OnnxTowers, pairs: Pairs):
        if pairs.text_features is not None:
            given = f"captions are text vectors of {pairs.text_features.shape[1]}"
            raise BadInput(f"{pairs.root}: {given}, {towers.path} was trained on words")
        self.towers, self.pairs = towers, pairs
        self.images = _images(towers, pairs)
        lost = self.images.broken if isinstance(self.images, PixelStore | PixelStream) else []
        self.broken = np.asarray(sorted(lost), dtype=np.int64)
        if (words := towers.vocabulary) is not None:
            self.captions = Captions.encode(pairs.captions, words)
        else:
            self.captions = Captions.from_tokens(towers.token_ids(pairs.captions))

    def encode(self, side: str, places: np.ndarray) -> ItemSets:
        """One vector each."""
        vectors = self._pictures(places) if side == IMAGE else self._texts(places)
        return ItemSets(({VECTORS: vectors, f"{EXTRA}id": np.asarray(places, dtype=np.int64)},))

    def _pictures(self, places: np.ndarray) -> np.ndarray:
        starts = track(range(0, len(places), BATCH), "encoding images")
        return np.concatenate([self.towers.image(self.images.gather(places[k : k + BATCH])) for k in starts])

    def _texts(self, places: np.ndarray) -> np.ndarray:
        """Captions of one length together, so that little is padding."""
        order = np.argsort(self.captions.lengths[places], kind="stable")
        made = np.empty((len(places), 1, self.towers.info["dim"]), np.float32)
        for start in track(range(0, len(places), CAPTIONS), "encoding texts"):
            some = order[start : start + CAPTIONS]
            tokens, lengths = self.captions.batch(places[some])
            made[some] = self.towers.text(tokens, np.arange(tokens.shape[1]) < lengths[:, None])
        return made

    def padding(self, rows: np.ndarray) -> int | None:
        """None: an exported run does not depend on it."""
        return None


def _images(towers: OnnxTowers, pairs: Pairs) -> FeatureSource:
    """Pixels of the size that the run reads, stored where they fit the cache; or the features of the data."""
    made = towers.preprocessing
    if made is not None:
        return (pixel_stream if is_too_large(store_of_pixels(pairs, made)) else pixels)(pairs, made)
    if pairs.features is None:
        raise BadInput(f"{pairs.root}: this model reads ready-made features, and this set has pictures only")
    wanted, given = towers.info["picture"]["size"][-1], pairs.features.shape[-1]
    if wanted != given:
        raise BadInput(f"{pairs.root}: pictures have {given} features each, {towers.path} was trained on {wanted}")
    return pairs.features


class OnnxReader(TowerReader):
    """Reads questions as an exported run does."""

    def __init__(self, towers: OnnxTowers):
        super().__init__(towers)
        self.towers = towers

    @property
    def sees(self) -> bool:
        """Whether it reads pixels."""
        return self.towers.preprocessing is not None

    def pictures(self, pictures: list[Image.Image]) -> ItemSets:
        """One vector each."""
        if not self.sees:
            raise BadInput(NO_FEATURES)
        return ItemSets(({VECTORS: self.towers.pictures(pictures)},))
