"""All captions of a data set as numbers in one flat array, and rectangles cut from it without a loop over captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import index

import numpy as np
import numpy.typing as npt

from matchlight.console import BadInput, say, track
from matchlight.data.tokenising import MOST_LETTERS, MOST_WORDS, first_words
from matchlight.inputs.text.vocabulary import Vocabulary
from matchlight.pairs import Pairs

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Ints, Bools, Ints]:
    """Sequences as one rectangle: tokens (N, L) filled up with 0, mask (N, L) True = real, lengths (N,)."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    tokens = np.zeros(mask.shape, dtype=np.int64)
    tokens[mask] = np.fromiter(chain.from_iterable(sequences), dtype=np.int64, count=int(lengths.sum()))
    return tokens, mask, lengths


class Captions:
    """Word ids of many captions: caption i is `flat[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, flat: np.ndarray, offsets: Ints):
        self.flat = flat  # (words of all captions,) int32
        self.offsets = offsets  # (captions + 1,)
        self.lengths = np.diff(offsets)  # (captions,)

    @classmethod
    def encode(cls, captions: Sequence[str], vocabulary: Vocabulary) -> Captions:
        """Every caption's ids, `<start>` and `<end>` included."""
        found = cls._of(vocabulary.encode(caption) for caption in track(captions, "reading captions"))
        full = zip(captions, found.lengths == MOST_WORDS + 2, strict=True)
        cut = sum(len(one) > MOST_LETTERS or (bool(many) and first_words(one)[1]) for one, many in full)
        if cut:
            say(f"captions longer than {MOST_WORDS} words or {MOST_LETTERS:,} letters: {cut:,}; their start is read")
        return found

    @classmethod
    def from_tokens(cls, sequences: Iterable[Sequence[int]], *, size: int | None = None) -> Captions:
        """Ids that came with the data, taken as they are; `size` is the number of ids the vocabulary has."""
        limit = np.iinfo(np.int32).max if size is None else size
        return cls._of(_checked(row, sequence, limit) for row, sequence in enumerate(sequences))

    @classmethod
    def from_pairs(cls, pairs: Pairs, vocabulary: Vocabulary) -> Captions:
        """The captions of a data set: its own ids where it brings some, else its words looked up."""
        if pairs.tokens is None:
            return cls.encode(pairs.captions, vocabulary)
        try:
            return cls.from_tokens(pairs.tokens, size=len(vocabulary))
        except BadInput as problem:
            raise BadInput(f"{pairs.root}: {problem}") from None

    @classmethod
    def _of(cls, sequences: Iterable[Sequence[int]]) -> Captions:
        lengths: list[int] = []

        def ids() -> Iterable[int]:
            for sequence in sequences:
                lengths.append(len(sequence))
                yield from sequence

        flat = np.fromiter(ids(), dtype=np.int32)  # one pass: captions need not be in memory as lists
        return cls(flat, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: int) -> list[int]:
        start, end = self.offsets[self._places([place])[0] + np.arange(2)]
        return self.flat[start:end].tolist()

    def batch(self, indices: np.ndarray | Sequence[int]) -> tuple[Ints, Ints]:
        """Tokens (B, L) of these captions in this order, filled up with 0 to the longest, and lengths (B,)."""
        places = self._places(indices)
        lengths = self.lengths[places]
        steps = np.arange(lengths.max(initial=0))
        mask = steps < lengths[:, None]
        tokens = np.zeros(mask.shape, dtype=np.int64)
        tokens[mask] = self.flat[(self.offsets[places, None] + steps)[mask]]
        return tokens, lengths

    def _places(self, indices: np.ndarray | Sequence[int]) -> Ints:
        places = np.asarray(indices, dtype=np.int64)
        if len(places) and not (places.min() >= 0 and places.max() < len(self)):  # -1 would read across captions
            raise IndexError(f"captions are numbered 0 to {len(self) - 1}, not {places.min()} to {places.max()}")
        return places


def _checked(row: int, sequence: Sequence[int], size: int) -> list[int]:
    """These ids if they are whole numbers below `size` and at least one (a recurrent network cannot read none)."""
    try:
        ids = [index(word) for word in sequence]
    except TypeError:
        raise BadInput(f"row {row} holds something other than word ids; they are whole numbers") from None
    if not ids:
        raise BadInput(f"row {row} has no word ids; a caption has one at least")
    wrong = min(ids) if min(ids) < 0 else max(ids)
    if not 0 <= wrong < size:
        raise BadInput(f"row {row} has word id {wrong}; the vocabulary has ids 0 to {size - 1}")
    return ids
