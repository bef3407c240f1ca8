"""Questions as sets of vectors: what every reader of them shares, whatever computes its vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from matchlight.console import BadInput
from matchlight.data.formats.decoding import decode
from matchlight.data.tokenising import tokenize
from matchlight.files import regular
from matchlight.indexing.item_sets import VECTORS, ItemSets
from matchlight.inputs.text.captions import pad
from matchlight.inputs.text.vocabulary import UNK, Vocabulary

LONGEST = 10_000  # characters of a question
NO_FEATURES = "this model reads ready-made features; a picture cannot be turned into them here"
NO_MODEL = (
    "this index holds given vectors and no model that makes such vectors of a question; "
    "`matchlight index --vectors ... --model RUN` builds one with the run that does"
)
Picture = str | Path | bytes | Image.Image
Tokens = tuple[list[int], list[str], list[str]]  # ids, what each is called, words that are not known


class QueryReader(ABC):
    """Reads words and pictures as a model does."""

    @property
    @abstractmethod
    def sees(self) -> bool:
        """Whether pictures can be read at all: a model of ready-made features cannot."""

    @abstractmethod
    def tokens(self, words: str) -> Tokens:
        """Word ids with what stands around them, what each id is called, and the words that the model does not know."""

    @abstractmethod
    def texts(self, sequences: list[list[int]]) -> ItemSets:
        """The sets of questions by their word ids."""

    @abstractmethod
    def pictures(self, pictures: list[Image.Image]) -> ItemSets:
        """The sets of pictures."""

    def words(self, words: str) -> tuple[ItemSets, list[str]]:
        """A question in words, and those the model does not know."""
        ids, _, unknown = self.tokens(words)
        return self.texts([ids]), unknown

    def picture(self, picture: Picture) -> ItemSets:
        """A question that is a picture."""
        return self.pictures([self.opened(picture)])

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


class WordTower(Protocol):
    """A tower of captions that needs no torch."""

    @property
    def path(self) -> Path:
        """Its file, in the model's folder."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Its words; None where captions are cut into pieces."""

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each caption, with what stands around them."""

    def piece(self, number: int) -> str:
        """What a piece is called."""

    def text(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(N, L) word ids and which are real -> (N, vectors, dim)."""


class TowerReader(QueryReader):
    """Reads words by such a tower."""

    def __init__(self, words: WordTower):
        self.tower = words

    def tokens(self, words: str) -> Tokens:
        """By its own words, or by its tokenizer."""
        check_words(words)
        if self.tower.vocabulary is not None:
            return word_tokens(words, self.tower.vocabulary)
        ids = self.tower.token_ids([words])[0]
        return ids, [shown_piece(self.tower.piece(one)) for one in ids], []

    def texts(self, sequences: list[list[int]]) -> ItemSets:
        """One vector each."""
        tokens, mask, _ = pad(sequences)
        return ItemSets(({VECTORS: self.tower.text(tokens, mask)},))


def check_words(words: str) -> None:
    """One clear line for what is no question."""
    if not words.strip():
        raise BadInput("no words to search for; `a dog on a beach` would do")
    if len(words) > LONGEST:
        raise BadInput(f"a question of {len(words)} characters; {LONGEST} at most")


def word_tokens(words: str, vocabulary: Vocabulary) -> Tokens:
    """By a vocabulary of our own."""
    known = tokenize(words)
    unknown = [word for word in known if word not in vocabulary and word != UNK]
    return vocabulary.encode(words), ["", *known, ""], list(dict.fromkeys(unknown))


def shown_piece(piece: str) -> str:
    """What a piece of a tokenizer is called; its signs for beginning and end have no name."""
    return "" if piece.startswith("[") and piece.endswith("]") else piece.removeprefix("##")
