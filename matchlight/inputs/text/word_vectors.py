"""Word vectors that somebody else trained: word2vec's text layout (a first line of two numbers) or GloVe's (none).

A line is a word and its numbers, with spaces between; a word may hold spaces itself, so the numbers are counted from
the end. Files are read line by line and only the words that are wanted are kept; `.gz` is read as it is. A word of a
vocabulary that the file does not have is looked up again without its hyphens, dots and apostrophes, and without what
follows a slash.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.inputs.text.vocabulary import Vocabulary

LONGEST = 1 << 20  # letters of a line: more is no text of word vectors
WHAT = "a text file of word vectors (word2vec's or GloVe's layout: a word and its numbers a line)"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line) of a file, however large."""
    if not files.regular(path).is_file():
        raise BadInput(f"{path}: no such file; word_vectors= takes {WHAT}")
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r\n ")
    except (OSError, EOFError) as problem:
        raise BadInput(f"{path}: cannot be read ({problem}); word_vectors= takes {WHAT}") from None


def _is_head(line: str) -> bool:
    """Whether a first line says how many words there are, and how long their vectors."""
    return len(line.split(" ")) == 2 and all(part.isdigit() for part in line.split(" "))


def length_of_vectors(path: Path) -> int:
    """How many numbers a word has, from the first lines alone."""
    for _, line in _lines(path):
        if _is_head(line):
            continue
        if len(parts := line.split(" ")) > 2 and _number(parts[-1]) is not None:
            return len(parts) - 1
        break
    raise BadInput(f"{path}: its first lines are no words with numbers; word_vectors= takes {WHAT}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_word_vectors(path: Path, vocabulary: Vocabulary, *, dim: int) -> dict[int, np.ndarray]:
    """By word id, the (dim,) vector of each word of a vocabulary that the file has."""
    wanted: dict[str, list[int]] = {}
    for word, place in vocabulary.ids.items():
        wanted.setdefault(word, []).append(place)
        wanted.setdefault(_bare(word), []).append(place)
    own = set(vocabulary.ids)
    found: dict[int, np.ndarray] = {}
    exact: set[int] = set()
    for number, line in _lines(path):
        if number == 1 and _is_head(line):
            continue
        word, *numbers = line.rsplit(" ", dim)
        if word not in wanted:
            continue
        vector = _vector(numbers, path, number, dim)
        for place in wanted[word]:
            is_exact = word in own and vocabulary.ids[word] == place
            if is_exact or place not in exact and place not in found:
                found[place] = vector
                exact |= {place} if is_exact else set()
    return found


def _bare(word: str) -> str:
    return word.split("/")[0].translate({ord(mark): None for mark in "-.'"})


def _vector(numbers: list[str], path: Path, line: int, dim: int) -> np.ndarray:
    values = [_number(one) for one in numbers]
    vector = np.array([np.nan if value is None else value for value in values], np.float32)
    if len(vector) != dim or not np.isfinite(vector).all():
        raise BadInput(f"{path} line {line}: not a word with {dim} numbers")
    return vector
