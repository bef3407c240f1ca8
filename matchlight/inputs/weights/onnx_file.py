"""ONNX files read as data: the tensors and the names of the nodes, and nothing is run.

A small reader of protobuf's wire format. No length is believed: each has to fit into the message around it, and counts,
names and shapes are bounded, so that a broken file is one clear line. Tensors are views of the mapped file.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight.core import BadInput

MOST_TENSORS, MOST_NODES, MOST_NAMES, LONGEST_NAME, MOST_AXES = 10_000, 200_000, 64, 1024, 8
DTYPES: dict[int, np.dtype[np.number]] = {
    1: np.dtype("<f4"),
    7: np.dtype("<i8"),
    10: np.dtype("<f2"),
}  # ONNX's numbers for those we read
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_TENSOR = 1, 5
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_KIND = 1, 2, 3, 4
TENSOR_SHAPE, TENSOR_DTYPE, TENSOR_NAME, TENSOR_BYTES, TENSOR_ELSEWHERE = 1, 2, 8, 9, 14


@dataclass(frozen=True)
class Node:
    """One operation of the graph."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """What we use of an ONNX file."""

    tensors: dict[str, np.ndarray]
    nodes: list[Node]


class Broken(ValueError):
    """Bytes that are no ONNX file."""


Value = int | memoryview


def read_graph(path: Path) -> Graph:
    """Tensors and nodes of a file; one that is broken is one clear line."""
    try:
        with open(path, "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        graphs = [_bytes(value) for number, value in fields(content) if number == MODEL_GRAPH]
        if len(graphs) != 1:
            raise Broken(f"{len(graphs)} graphs in place of one")
        return _graph(graphs[0])
    except ValueError as problem:  # an empty file, a broken one, a name that is not UTF-8
        raise BadInput(f"{path}: not an ONNX file that can be read ({problem})") from None


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a message; groups, which ONNX has none of, are refused."""
    place, end = 0, len(message)
    while place < end:
        key, place = varint(message, place)
        kind = key & 7
        if kind == VARINT:
            number, place = varint(message, place)
            yield key >> 3, number
            continue
        if kind == BYTES:
            length, place = varint(message, place)
        elif kind in (EIGHT, FOUR):
            length = 8 if kind == EIGHT else 4
        else:
            raise Broken(f"a field of kind {kind}")
        if length > end - place:
            raise Broken(f"a length of {length} where {end - place} bytes are left")
        yield key >> 3, message[place : place + length]
        place += length


def varint(message: memoryview, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, 64 bits at most, and the place after it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise Broken("it ends inside a number")
        byte = message[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & (1 << 64) - 1, place
    raise Broken("a number of more than 64 bits")


def _graph(message: memoryview) -> Graph:
    tensors: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    for number, value in fields(message):
        if number == GRAPH_TENSOR:
            name, array = _tensor(_bytes(value))
            if array is not None:
                tensors[name] = array
        elif number == GRAPH_NODE:
            nodes.append(_node(_bytes(value)))
        if len(tensors) > MOST_TENSORS or len(nodes) > MOST_NODES:
            raise Broken("too many tensors or nodes")
    return Graph(tensors, nodes)


def _node(message: memoryview) -> Node:
    texts: dict[int, list[str]] = {number: [] for number in (NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_KIND)}
    for number, value in fields(message):
        if number in texts:
            texts[number].append(_text(value))
            if len(texts[number]) > MOST_NAMES:
                raise Broken("a node with too many names")
    name, kind = ("".join(texts[number][-1:]) for number in (NODE_NAME, NODE_KIND))
    return Node(name, kind, tuple(texts[NODE_INPUT]), tuple(texts[NODE_OUTPUT]))


def _tensor(message: memoryview) -> tuple[str, np.ndarray | None]:
    """Name and values; None for values of a type that we do not read, or that are not kept as plain bytes."""
    name, kind, shape, content = "", 0, list[int](), None
    for number, value in fields(message):
        if number == TENSOR_NAME:
            name = _text(value)
        elif number == TENSOR_DTYPE:
            kind = _number(value)
        elif number == TENSOR_SHAPE:
            shape += _numbers(value)
        elif number == TENSOR_BYTES:
            content = _bytes(value)
        elif number == TENSOR_ELSEWHERE and value:
            raise Broken(f"the values of {name or 'a tensor'} are in another file")
    if content is None or kind not in DTYPES:
        return name, None
    if len(shape) > MOST_AXES or math.prod(shape) * DTYPES[kind].itemsize != len(content):
        raise Broken(f"{name or 'a tensor'} of shape {shape[:MOST_AXES]} has {len(content)} bytes")
    return name, np.frombuffer(content, DTYPES[kind]).reshape(shape)


def _numbers(value: Value) -> list[int]:
    """Repeated numbers stand alone or packed."""
    if isinstance(value, int):
        return [value]
    found: list[int] = []
    place = 0
    while place < len(value) and len(found) <= MOST_AXES:
        number, place = varint(value, place)
        found.append(number)
    return found


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise Broken("bytes in place of a number")
    return value


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise Broken("a number in place of bytes")
    return value


def _text(value: Value) -> str:
    content = _bytes(value)
    if len(content) > LONGEST_NAME:
        raise Broken(f"a name of {len(content)} bytes")
    return str(content, "utf-8")
