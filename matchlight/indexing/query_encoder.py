"""Questions as the model reads them: words by the run's own vocabulary, pictures by the run's own backbone and size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Items
from matchlight.data.formats.decoding import decode
from matchlight.files import regular
from matchlight.inputs.backbones import Backbone
from matchlight.inputs.backbones.vision_transformer import EVERY_CELL
from matchlight.inputs.features import backbone, encode
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.inputs.prepare import View
from matchlight.inputs.text import UNK, pad, tokenize
from matchlight.runs.as_given import VECTORS
from matchlight.runs.folder import Run

if TYPE_CHECKING:
    from matchlight.inputs.joint_models.word_pieces import WordPieces
    from matchlight.inputs.sentence_encoders import SentenceEncoder

LONGEST = 10_000  # characters of a question
_NO_MODEL = (
    "this index holds given vectors and no model that makes such vectors of a question; "
    "`matchlight index --vectors ... --model RUN` builds one with the run that does"
)
Picture = str | Path | bytes | Image.Image


@dataclass
class QueryEncoder:
    """A run that reads questions; `padding` is the length captions had, for a model that depends on it."""

    run: Run
    padding: int | None = None

    @cached_property
    def _view(self) -> View:
        return self.run.view

    @cached_property
    def _backbone(self) -> Backbone:
        network = backbone(self._view.backbone, self._view.size, choice=self._view.choice or EVERY_CELL)
        return network.for_inference().to(self.run.device)

    @cached_property
    def _sentences(self) -> SentenceEncoder | WordPieces | OnnxTowers:
        from matchlight.inputs.sentence_encoders import SentenceEncoder, sentence_encoder

        if self._view.onnx:
            return self._view.onnx_towers
        if self._view.joint:
            return self._view.joint_model.pieces
        inside = (part for part in self.run.matcher.modules() if isinstance(part, SentenceEncoder))
        return next(inside, None) or sentence_encoder(self._view.sentences)  # the model's own is open already

    # ---- words -------------------------------------------------------------------------------------------------------

    def tokens(self, words: str) -> tuple[list[int], list[str], list[str]]:
        """Word ids with what stands around them, what each id is called, and the words that the model does not know."""
        if not words.strip():
            raise BadInput("no words to search for; `a dog on a beach` would do")
        if len(words) > LONGEST:
            raise BadInput(f"a question of {len(words)} characters; {LONGEST} at most")
        if self._view.sentences or self._view.joint or (self._view.onnx and self.run.vocabulary is None):
            ids = list(self._sentences.token_ids([words])[0])
            return ids, self._pieces(ids), []
        if self.run.method == VECTORS:
            raise BadInput(_NO_MODEL)
        if self.run.vocabulary is None:
            raise BadInput("this model reads text vectors, not words; it can be queried with items of the index only")
        known = tokenize(words)
        ids = self.run.vocabulary.encode(words)
        unknown = [word for word in known if word not in self.run.vocabulary and word != UNK]
        return ids, ["", *known, ""], list(dict.fromkeys(unknown))

    def _pieces(self, ids: list[int]) -> list[str]:
        if self._view.joint:
            return self._view.joint_model.pieces.shown(ids)
        named = self._sentences.pieces() if isinstance(self._sentences, OnnxTowers) else self._sentences.vocabulary()
        names = {place: piece for piece, place in named.items()}
        return [_shown(names.get(place, "")) for place in ids]

    def text_items(self, sequences: list[list[int]]) -> Items:
        """Word ids as the encoder wants them, padded as far as the model is used to."""
        tokens, mask, lengths = pad(sequences)
        if self.padding is not None and tokens.shape[1] < self.padding:
            more = ((0, 0), (0, self.padding - tokens.shape[1]))
            tokens, mask = np.pad(tokens, more), np.pad(mask, more)
        place = torch.zeros(len(tokens), dtype=torch.int64)
        extra = {"picture": place, "length": torch.from_numpy(lengths)}
        return Items(torch.from_numpy(tokens), torch.from_numpy(mask), place, extra)

    # ---- pictures ----------------------------------------------------------------------------------------------------

    @property
    def sees(self) -> bool:
        """Whether pictures can be read at all: a model of ready-made features cannot."""
        return self._view.kind != "given"

    def opened(self, picture: Picture) -> Image.Image:
        """A picture from a file, its bytes, or as it is."""
        if isinstance(picture, Image.Image):
            return picture.convert("RGB")
        if isinstance(picture, bytes):
            return decode(picture, "the picture")
        try:
            return decode(regular(Path(picture)).read_bytes(), Path(picture).name)
        except OSError as problem:
            raise BadInput(f"{picture}: cannot be read: {problem.strerror}") from None

    def image_items(self, pictures: list[Image.Image]) -> Items:
        """Pictures as features or pixels, made as at training time."""
        if self.run.method == VECTORS:
            raise BadInput(_NO_MODEL)
        if not self.sees:
            raise BadInput("this model reads ready-made features; a picture cannot be turned into them here")
        made = self._view.preprocessing
        place = torch.zeros(len(pictures), dtype=torch.int64)
        if self._view.kind == "pixels":
            return Items(torch.from_numpy(np.stack([made.pixels(one) for one in pictures])), None, place)
        features = encode(pictures, self._backbone, kind=self._view.kind, size=made)
        return Items(torch.from_numpy(features).float(), None, place)

    # ---- both --------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def embed(self, side: str, items: Items) -> Embeddings:
        """Their sets, on the model's device, in full precision."""
        return self.run.matcher.embed(side, items.to(self.run.device))

    def words(self, words: str) -> tuple[Embeddings, list[str]]:
        """A question in words, and those the model does not know."""
        ids, _, unknown = self.tokens(words)
        return self.embed(TEXT, self.text_items([ids])), unknown

    def picture(self, picture: Picture) -> Embeddings:
        """A question that is a picture."""
        return self.embed(IMAGE, self.image_items([self.opened(picture)]))


def _shown(piece: str) -> str:
    return "" if piece.startswith("[") and piece.endswith("]") else piece.removeprefix("##")


def usual_padding(lengths: np.ndarray, batch: int) -> int:
    """The median over batches, in file order, of how long a batch's captions are padded."""
    return int(np.median([lengths[start : start + batch].max() for start in range(0, len(lengths), batch)]))


def on(items: Items, x: Tensor) -> Items:
    """The same items with other contents."""
    return replace(items, x=x)
