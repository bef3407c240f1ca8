"""Files of other projects: the authors' checkpoints and vocabularies, read without running anything they contain.

They are pickles, and a pickle can run any program. Here it cannot: a machine of our own runs it (`machine`), takes only
plain numbers, text and bytes from it (`literals`) and knows listed names alone (`names`); tensors stay inside their
storages (`tensors`) and storages inside their file (`containers`). What comes out are dictionaries, lists, text,
numbers, numpy arrays and CPU tensors.
"""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from matchlight.core import BadInput
from matchlight.training.foreign.containers import read_legacy, read_zip
from matchlight.training.foreign.machine import Forbidden, Machine, Options, Refused, shown
from matchlight.training.foreign.names import Names

T = TypeVar("T")
__all__ = ["Options", "read_checkpoint", "read_vocabulary_words"]
LARGEST_VOCABULARY = 1 << 28  # bytes; the largest published ones are under one megabyte


def read_checkpoint(path: str | Path) -> dict[str, object]:
    """The contents of a PyTorch checkpoint: `opt` is an `Options`, parameters are plain tensors on the CPU."""
    file, size = _regular(path)
    result = _refusing(file, lambda: _unpacked(file, size))
    if type(result) is list and len(result) == 2 and all(type(part) is dict for part in result):
        result = {"model": result}  # PVSE's first files: the weights of pictures and of captions, nothing beside them
    if type(result) is not dict or not all(isinstance(key, str) for key in result):
        raise BadInput(f"{file} holds a {type(result).__name__}, not a dictionary of weights and options by name")
    return result


def read_vocabulary_words(path: str | Path) -> dict[str, int]:
    """Word -> id from SCAN's JSON or from the authors' pickled `Vocabulary`."""
    file, size = _regular(path)
    if size > LARGEST_VOCABULARY:
        raise BadInput(f"{file} is {size} bytes long: too long for a vocabulary")
    raw = _refusing(file, file.read_bytes)
    found = _refusing(file, lambda: _json(raw) if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else _pickled(raw))
    words = found.get("word2idx") if isinstance(found, dict) else None
    if type(words) is not dict or not words:
        raise BadInput(f"{file} is no vocabulary: it has no `word2idx` that maps words to numbers")
    _check_ids(file, words)
    return words


def _regular(path: str | Path) -> tuple[Path, int]:
    file = Path(path)
    try:
        status = file.stat()
    except FileNotFoundError:
        raise BadInput(f"{file} does not exist") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{file} is not a file" + ("; name one inside this folder" if file.is_dir() else ""))
    if not status.st_size:
        raise BadInput(f"{file} is empty")
    return file, status.st_size


def _refusing(file: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except Refused as refusal:
        raise BadInput(f"{file} {refusal}") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from None


def _unpacked(file: Path, size: int) -> object:
    with file.open("rb") as stream:
        head = stream.read(512)
    if head.startswith(b"PK\x03\x04"):
        return read_zip(file, size)
    if head[257:262] == b"ustar":
        raise Refused("is a tar archive: unpack it first (if PyTorch 0.1 wrote it, save it again with a newer one)")
    return read_legacy(file, size)


def _json(raw: bytes) -> object:
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"is not readable JSON: {shown(str(error))}") from None


def _pickled(raw: bytes) -> object:
    try:
        return Machine(io.BytesIO(raw), Names(), size=len(raw)).run()
    except Forbidden:
        raise
    except Refused:
        raise Refused("is no vocabulary: neither JSON nor a whole pickled `Vocabulary`") from None


def _check_ids(file: Path, words: dict[object, object]) -> None:
    """Ids are the rows of a weight matrix: 0, 1, 2, ... each used once."""
    seen: dict[int, str] = {}
    for word, place in words.items():
        if not isinstance(word, str) or type(place) is not int or not 0 <= place < len(words):
            raise BadInput(f"{file}: {shown(word)} has id {shown(str(place))}; ids run from 0 to {len(words) - 1}")
        if place in seen:
            raise BadInput(f"{file}: {shown(seen[place])} and {shown(word)} share id {place}")
        seen[place] = word
