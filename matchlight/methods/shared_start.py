"""What semantic sharing may start from: word vectors of a file, or the first layers of a BERT for its transformer.

The paper's supplement has both: words are Word2Vec's 300 numbers, the shared transformer begins as BERT-base. BERT has
its own width, heads and word pieces: with `sentences=NAME` captions are cut into its pieces, embedded by its table,
and regions are projected to its width; both then pass its embedding norm and its first `depth` layers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from matchlight import devices
from matchlight.console import say
from matchlight.core import TEXT, BadInput, Embedding, Items, Matcher
from matchlight.inputs.augmentation import drop_words
from matchlight.inputs.batches import Table
from matchlight.inputs.sentence_encoders import Bert, bert_of
from matchlight.inputs.text.word_vectors import length_of_vectors, read_word_vectors
from matchlight.methods.shared_tokens import WordTokens, first_places
from matchlight.methods.shared_transformer import NOTHING
from matchlight.training.contract import TrainingRun
from matchlight.training.strategies import Plain

# ---- word vectors ----------------------------------------------------------------------------------------------------


class GivenWords(Plain):
    """Plain epochs; a file of word vectors that does not fit is refused before the run begins."""

    def __init__(self, path: Path, *, dim: int):
        self.path = path
        self.dim = dim

    def check(self, run: TrainingRun) -> None:
        """The file is there, its vectors have the right length, and captions are words."""
        if run.table.vocabulary is None:
            raise BadInput(f"word_vectors={self.path}: {run.pairs.root} has text vectors, no words to look up")
        if (found := length_of_vectors(self.path)) != self.dim:
            raise BadInput(f"{self.path}: its vectors have {found} numbers; word_dim={found} fits, not {self.dim}")


def begin_with_vectors(matcher: Matcher, table: Table, rows: np.ndarray, seed: int, *, path: Path) -> None:
    """Words of the vocabulary take their vectors from a file; those that it lacks stay as they were drawn."""
    assert table.vocabulary is not None
    encoder = matcher.encoders[TEXT]
    assert isinstance(encoder, WordTokens)
    weight = encoder.words.embed.weight
    found = read_word_vectors(path, table.vocabulary, dim=weight.shape[1])
    with torch.no_grad():
        for place, vector in found.items():
            weight[place] = torch.from_numpy(vector).to(weight)
    say(f"{len(found):,} of {len(table.vocabulary):,} words have a vector in {path.name}")


# ---- a BERT ----------------------------------------------------------------------------------------------------------


class Start:
    """A pretrained BERT and its word pieces."""

    def __init__(self, name: str):
        self.bert, self.pieces = bert_of(name)
        if missing := {"[MASK]", "[CLS]", "[SEP]"} - self.pieces.keys():
            raise BadInput(f"sentences={name}: has no {min(missing)} among its word pieces; a BERT has")
        self.dim = self.bert.pieces.weight.shape[1]


class PieceTokens(nn.Module):
    """Word pieces as tokens: what they are and where they stand; in training a `share` of them becomes [MASK]."""

    def __init__(self, start: Start, *, share: float, longest: int):
        super().__init__()
        self.pieces, self.places, self.kinds = start.bert.pieces, start.bert.places, start.bert.kinds
        self.share = share
        self.longest = min(longest, len(self.places.weight))
        self.mask_piece = start.pieces["[MASK]"]
        self.special = start.pieces["[CLS]"], start.pieces["[SEP]"]

    def forward(self, items: Items) -> Embedding:
        """(N, L, dim), in training with the pieces to guess as "target" (N, L)."""
        items, extra = first_places(items, self.longest), {}
        if self.training and self.share:
            masked = drop_words(
                items, seed=devices.shared_draw(), p=self.share, word=self.mask_piece, special=self.special
            )
            extra["target"] = torch.where(masked.x != items.x, items.x, NOTHING)
            items = masked
        where = self.places.weight[: items.x.shape[1]]
        return Embedding(self.pieces(items.x) + where + self.kinds.weight[0], items.mask, extra)


class BertLayers(nn.Module):
    """The first `depth` layers of a BERT for tokens of either side, and a label head."""

    def __init__(self, bert: Bert, classes: int, *, depth: int):
        super().__init__()
        self.norm, self.dropout = bert.norm, bert.dropout
        self.layers = nn.ModuleList(list(bert.blocks)[:depth])
        self.labels = nn.Linear(bert.pieces.weight.shape[1], classes)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(N, K, D) states."""
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, real)
        return x

    def likely(self, states: Tensor) -> Tensor:
        """(N, K, classes) label scores of each token, 0 to 1."""
        return self.labels(states).float().sigmoid()
