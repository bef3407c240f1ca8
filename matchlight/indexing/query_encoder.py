"""Questions as a run reads them: words by its own vocabulary, pictures by its own backbone and size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from matchlight.core import IMAGE, TEXT, BadInput, Embeddings, Items
from matchlight.indexing.item_sets import ItemSets
from matchlight.indexing.matcher_scores import as_item_sets
from matchlight.indexing.query_reader import (
    NO_FEATURES,
    NO_MODEL,
    QueryReader,
    Tokens,
    check_words,
    shown_piece,
    word_tokens,
)
from matchlight.inputs.backbones import Backbone
from matchlight.inputs.backbones.vision_transformer import EVERY_CELL
from matchlight.inputs.features import backbone, encode
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.inputs.prepare import View
from matchlight.inputs.text import pad
from matchlight.runs.folder import Run
from matchlight.runs.given_recipe import VECTORS

if TYPE_CHECKING:
    from matchlight.inputs.joint_models.word_pieces import WordPieces
    from matchlight.inputs.sentence_encoders import SentenceEncoder


@dataclass
class QueryEncoder(QueryReader):
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

    def tokens(self, words: str) -> Tokens:
        """Word ids with what stands around them, what each id is called, and the words that the model does not know."""
        check_words(words)
        if self._view.sentences or self._view.joint or (self._view.onnx and self.run.vocabulary is None):
            ids = list(self._sentences.token_ids([words])[0])
            return ids, self._pieces(ids), []
        if self.run.method == VECTORS:
            raise BadInput(NO_MODEL)
        if self.run.vocabulary is None:
            raise BadInput("this model reads text vectors, not words; it can be queried with items of the index only")
        return word_tokens(words, self.run.vocabulary)

    def _pieces(self, ids: list[int]) -> list[str]:
        if self._view.joint:
            return self._view.joint_model.pieces.shown(ids)
        if isinstance(self._sentences, OnnxTowers):
            return [shown_piece(self._sentences.piece(one)) for one in ids]
        names = {number: piece for piece, number in self._sentences.vocabulary().items()}
        return [shown_piece(names.get(number, "")) for number in ids]

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

    def image_items(self, pictures: list[Image.Image]) -> Items:
        """Pictures as features or pixels, made as at training time."""
        if self.run.method == VECTORS:
            raise BadInput(NO_MODEL)
        if not self.sees:
            raise BadInput(NO_FEATURES)
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

    def texts(self, sequences: list[list[int]]) -> ItemSets:
        """The sets of questions by their word ids."""
        return as_item_sets(self.embed(TEXT, self.text_items(sequences)))

    def pictures(self, pictures: list[Image.Image]) -> ItemSets:
        """The sets of pictures."""
        return as_item_sets(self.embed(IMAGE, self.image_items(pictures)))


def usual_padding(lengths: np.ndarray, batch: int) -> int:
    """The median over batches, in file order, of how long a batch's captions are padded."""
    return int(np.median([lengths[start : start + batch].max() for start in range(0, len(lengths), batch)]))


def on(items: Items, x: Tensor) -> Items:
    """The same items with other contents."""
    return replace(items, x=x)
