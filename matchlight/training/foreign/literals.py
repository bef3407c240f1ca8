"""What a pickle carries as it is: numbers, text and bytes; no length is trusted before the bytes are there."""

from __future__ import annotations

import codecs
import pickle
import struct
from collections.abc import Callable
from typing import Protocol


class Stream(Protocol):
    """What the machine reads from: bytes in memory or a memory-mapped file, never more than is there."""

    def read(self, n: int, /) -> bytes:
        """Up to `n` bytes."""

    def readline(self) -> bytes:
        """Up to the end of the line, with it."""


def exactly(stream: Stream, count: int) -> bytes:
    """The next `count` bytes, all of them."""
    if count < 0:
        raise ValueError("a negative length")
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


def line(stream: Stream) -> bytes:
    """The rest of the line, without its end."""
    raw = stream.readline()
    if not raw.endswith(b"\n"):
        raise EOFError
    return raw[:-1]


def real(stream: Stream) -> float:
    """One number of eight bytes, the largest first."""
    return float(struct.unpack(">d", exactly(stream, 8))[0])


def fixed(form: str) -> Callable[[Stream], int]:
    """A reader of one whole number of this `struct` form."""
    return lambda stream: int(struct.unpack(form, exactly(stream, struct.calcsize(form)))[0])


def _counted(form: str, decode: Callable[[bytes], object]) -> Callable[[Stream], object]:
    length = fixed(form)
    return lambda stream: decode(exactly(stream, length(stream)))


def _integer(stream: Stream) -> int | bool:
    raw = line(stream)
    return {b"00": False, b"01": True}.get(raw, int(raw))


def _quoted(stream: Stream) -> str:
    raw = line(stream).strip()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise ValueError("a string without quotes")
    return as_text(codecs.escape_decode(raw[1:-1])[0])


def as_text(raw: bytes) -> str:
    """Python 2's strings."""
    return raw.decode("latin-1")  # Python 2 kept text and raw bytes in one type; this loses neither


def _unicode(raw: bytes) -> str:
    return raw.decode("utf-8")


def _long(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


LITERALS: dict[bytes, Callable[[Stream], object]] = {  # instructions that push what they carry
    pickle.NONE: lambda stream: None,
    pickle.NEWTRUE: lambda stream: True,
    pickle.NEWFALSE: lambda stream: False,
    pickle.EMPTY_TUPLE: lambda stream: (),
    pickle.EMPTY_LIST: lambda stream: [],
    pickle.EMPTY_DICT: lambda stream: {},
    pickle.EMPTY_SET: lambda stream: set(),
    pickle.INT: _integer,
    pickle.LONG: lambda stream: int(line(stream).rstrip(b"L")),
    pickle.FLOAT: lambda stream: float(line(stream)),
    pickle.BINFLOAT: real,
    pickle.BININT: fixed("<i"),
    pickle.BININT1: fixed("<B"),
    pickle.BININT2: fixed("<H"),
    pickle.LONG1: _counted("<B", _long),
    pickle.LONG4: _counted("<i", _long),
    pickle.STRING: _quoted,
    pickle.BINSTRING: _counted("<i", as_text),
    pickle.SHORT_BINSTRING: _counted("<B", as_text),
    pickle.UNICODE: lambda stream: line(stream).decode("raw-unicode-escape"),
    pickle.BINUNICODE: _counted("<I", _unicode),
    pickle.SHORT_BINUNICODE: _counted("<B", _unicode),
    pickle.BINUNICODE8: _counted("<Q", _unicode),
    pickle.BINBYTES: _counted("<I", bytes),
    pickle.SHORT_BINBYTES: _counted("<B", bytes),
    pickle.BINBYTES8: _counted("<Q", bytes),
}
