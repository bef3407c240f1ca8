"""One side of a table, encoded a chunk at a time: kept where all of it fits the memory, encoded again where not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from matchlight.core import IMAGE, TEXT, Embedding, Embeddings, Matcher
from matchlight.inputs.batches import Table
from matchlight.scoring.encode import encode

PROBE = 8  # items that are encoded to see how large they become
WORKING = 24  # bytes a score needs while the best are picked out of it, both ways


def free_memory() -> int:
    """Bytes of main memory that can be had without swapping."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    return int(match[1]) << 10 if match else 4 << 30


@dataclass(frozen=True)
class Room:
    """How much memory a search may take: for what it works on, and for embeddings it keeps, where they are kept."""

    work: int
    keep: int
    home: torch.device

    @staticmethod
    def on(device: torch.device, memory: int | None) -> Room:
        """A share of what is free, or `memory` bytes."""
        free = free_memory() if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
        most = (1 if device.type == "cpu" else 8) << 30  # more would not be faster
        return Room(min(memory or free // 4, most), memory or free // 2, device)


def size_of(embedding: Embeddings) -> int:
    """Bytes of all its tensors."""
    return sum(_bytes(part) for part in embedding.members)


def _bytes(part: Embedding) -> int:
    mask = [] if part.mask is None else [part.mask]
    return sum(t.numel() * t.element_size() for t in (part.vectors, *mask, *part.extra.values()))


class Chunks:
    """Items of one side in an order of its own (`index`), `size` at a time."""

    def __init__(self, matcher: Matcher, table: Table, side: str, index: np.ndarray, *, size: int, home: torch.device):
        self.matcher, self.table, self.side, self.index = matcher, table, side, index
        self.size = max(1, size)
        self.home = home
        self.kept: dict[int, Embeddings] = {}
        self.all_fit = False  # else one chunk is kept at a time

    def __len__(self) -> int:
        return -(-len(self.index) // self.size)

    def span(self, k: int) -> slice:
        """The places that chunk k covers."""
        return slice(k * self.size, min((k + 1) * self.size, len(self.index)))

    def __getitem__(self, k: int) -> Embeddings:
        if k not in self.kept:
            if not self.all_fit:
                self.kept.clear()
            where = next(self.matcher.parameters()).device
            on_device = self.home.type == where.type
            self.kept[k] = encode(
                self.matcher, self.table, self.side, self.index[self.span(k)], keep_on_device=on_device
            )
        return self.kept[k]


def caption_order(matcher: Matcher, table: Table, rows: np.ndarray) -> np.ndarray:
    """Captions of like length together, so that little is padding; as given for a model that depends on padding."""
    if table.captions is None or matcher.depends_on_padding:
        return np.arange(len(rows))
    return np.argsort(table.captions.lengths[rows], kind="stable")


def probe(matcher: Matcher, table: Table, side: str, index: np.ndarray) -> tuple[Embeddings, int]:
    """The last few items (of captions: the longest) encoded, and the bytes that one of them takes."""
    some = encode(matcher, table, side, index[-PROBE:])
    return some, -(-size_of(some) // len(some))


def text_total(matcher: Matcher, table: Table, captions: np.ndarray, longest: int) -> int:
    """Bytes of all these captions, whose embeddings grow with their length from the shortest to the `longest`."""
    shortest = min(longest, probe(matcher, table, TEXT, captions[:PROBE])[1])
    if table.captions is None:
        return longest * len(captions)
    length = table.captions.lengths[captions]
    share = (length - length.min()) / max(1, length.max() - length.min())
    return int((shortest + (longest - shortest) * share).sum())


def both_sides(
    matcher: Matcher, table: Table, pictures: np.ndarray, captions: np.ndarray, room: Room
) -> tuple[Chunks, Chunks]:
    """Pictures and captions in chunks whose scores, and whose embeddings, fit the room to work in."""
    image_bytes, text_bytes = (
        probe(matcher, table, side, index)[1] for side, index in ((IMAGE, pictures), (TEXT, captions))
    )
    side = max(1, int((room.work // 2 // WORKING) ** 0.5))
    tall, wide = (min(side, max(1, room.work // 4 // each)) for each in (image_bytes, text_bytes))
    total = len(pictures) * image_bytes + text_total(matcher, table, captions, text_bytes)
    on_device = room.home.type != "cpu" and total <= room.keep
    home = room.home if on_device else torch.device("cpu")
    sides = (
        Chunks(matcher, table, IMAGE, pictures, size=tall, home=home),
        Chunks(matcher, table, TEXT, captions, size=wide, home=home),
    )
    for one in sides:
        one.all_fit = on_device or total <= (room.keep if room.home.type == "cpu" else free_memory() // 2)
    return sides
