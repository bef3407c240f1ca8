"""Which number each word has. Released weights only mean something with the vocabulary file they were trained with.

The file is the JSON object that SCAN and its successors share: `word2idx` (word -> id), `idx2word` (id as text -> word)
and `idx` (how many ids there are). Its ids are in no order that could be made again, so they are kept as they stand;
ids without a word are allowed. Only `word2idx` is a must: the other two follow from it, and are checked where present.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matchlight import files
from matchlight.console import BadInput
from matchlight.data.tokenising import first_words

PAD, START, END, UNK, MASK = "<pad>", "<start>", "<end>", "<unk>", "<mask>"
SPECIALS = (PAD, START, END, UNK)
LARGEST = 10_000_000  # more ids than any vocabulary has: a wrong number, not a reason to fill memory


class Vocabulary:
    """Words and their ids. `len()` is the number of ids, which is the number of rows an embedding table needs."""

    def __init__(self, ids: Mapping[str, int], *, size: int | None = None):
        self.ids = dict(ids)
        self.size = max(self.ids.values(), default=-1) + 1 if size is None else size
        _check(self.ids, self.size)
        self.start, self.end, self.unk = (self.ids[word] for word in (START, END, UNK))
        self.words = [""] * self.size  # the word of each id; an id without a word has an empty string
        for word, place in self.ids.items():
            self.words[place] = word

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        """The special words, then these in this order; special ones among them are not repeated."""
        ids = {word: place for place, word in enumerate(SPECIALS)}
        for word in words:
            if word in SPECIALS:
                continue
            if word in ids:
                raise BadInput(f"the word {word!r} is given twice; a vocabulary has each word once")
            ids[word] = len(ids)
        return cls(ids)

    @classmethod
    def build(cls, captions: Iterable[str], minimum: int = 1) -> Vocabulary:
        """The words that occur `minimum` times or more: frequent ones first, equally frequent ones by alphabet."""
        counts = Counter(word for caption in captions for word in first_words(caption)[0])
        kept = (word for word, count in counts.items() if count >= minimum)
        return cls.from_words(sorted(kept, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return self.size

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (self.ids, self.size) == (other.ids, other.size)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} ids, {self.fingerprint})"

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when any word, id or the size does."""
        content = json.dumps([self.size, sorted(self.ids.items())])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def encode_words(self, words: Iterable[str]) -> list[int]:
        """The id of each word, unknown ones as `<unk>`, with nothing around them."""
        known, unk = self.ids.get, self.unk
        return [known(word, unk) for word in words]

    def encode(self, caption: str) -> list[int]:
        """A caption's word ids between those of `<start>` and `<end>`; of a very long one those of its beginning."""
        return [self.start, *self.encode_words(first_words(caption)[0]), self.end]

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The words of these ids with spaces between; padding, start and end are left out unless `specials`."""
        hidden = () if specials else (PAD, START, END)
        words = [self.words[self._place(place)] for place in ids]
        return " ".join(word for word in words if word not in hidden)

    def _place(self, place: int) -> int:
        if not 0 <= place < self.size:
            raise BadInput(f"{place} is no word id; this vocabulary has ids 0 to {self.size - 1}")
        return int(place)

    def with_mask(self) -> Vocabulary:
        """The same with `<mask>` as one more id at the end, as VSE-infinity's word masking needs."""
        return self if MASK in self.ids else Vocabulary({**self.ids, MASK: self.size}, size=self.size + 1)

    def save(self, path: str | Path) -> Path:
        """Write the SCAN JSON file; what was there before stays whole until the new one is."""
        ordered = sorted(self.ids.items(), key=lambda item: item[1])
        words = {str(place): word for word, place in ordered}
        content = json.dumps({"word2idx": dict(ordered), "idx2word": words, "idx": self.size})
        return _replace(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read a SCAN JSON file, ids as they stand in it."""
        try:
            return _from_json(_read(Path(path)))
        except BadInput as problem:
            raise BadInput(f"{path}: {problem}") from None


def _check(ids: dict[str, int], size: int) -> None:
    missing = [word for word in SPECIALS if word not in ids]
    if missing:
        raise BadInput(f"no {' or '.join(missing)} among the words; a vocabulary has {', '.join(SPECIALS)}")
    if size > LARGEST:
        raise BadInput(f"{size} ids are more than a vocabulary can have ({LARGEST})")
    owner: dict[int, str] = {}
    for word, place in ids.items():
        if not 0 <= place < size:
            raise BadInput(f"the word {word!r} has id {place}; ids run from 0 to {size - 1}")
        if owner.setdefault(place, word) != word:
            raise BadInput(f"the words {owner[place]!r} and {word!r} both have id {place}")


def _read(path: Path) -> Any:
    """The JSON value in a file; a key given twice is refused, since only one of its values could be meant."""
    try:
        return json.loads(files.regular(path).read_bytes().decode("utf-8-sig"), object_pairs_hook=_once)
    except OSError as problem:
        raise BadInput(f"cannot be read ({problem.strerror}); give a vocabulary in SCAN's JSON layout") from None
    except BadInput:
        raise
    except (ValueError, RecursionError):
        raise BadInput("is not JSON; give a vocabulary in SCAN's JSON layout (word2idx, idx2word, idx)") from None


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(items)
    if len(made) < len(items):
        twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
        raise BadInput(f"the key {twice!r} is there twice")
    return made


def _from_json(value: Any) -> Vocabulary:
    if not isinstance(value, dict) or not isinstance(value.get("word2idx"), dict):
        raise BadInput('no "word2idx" object; a vocabulary holds word2idx, idx2word and idx')
    ids, size = value["word2idx"], value.get("idx")
    for word, place in ids.items():
        if type(place) is not int:  # True is an int to isinstance
            raise BadInput(f"the word {word!r} has id {place!r}; ids are whole numbers")
    if type(size) not in (int, type(None)):
        raise BadInput(f'"idx" is {size!r}; it is the number of ids, such as {len(ids)}')
    made = Vocabulary(ids, size=size)
    back = value.get("idx2word")
    if back is not None and back != {str(place): word for word, place in ids.items()}:
        raise BadInput('"idx2word" does not say the same as "word2idx"; leave it out or write it anew')
    return made


def _replace(path: Path, content: str) -> Path:
    try:
        files.write_text(path, content)
    except OSError as problem:
        raise BadInput(f"{path}: cannot be written ({problem.strerror})") from None
    return path
