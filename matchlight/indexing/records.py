"""Many small records in one file: captions, names, thumbnails. A record is read from a memory map by its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.indexing.mapped import mapped_bytes


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """`path`.bin with the records one behind the other, then `path`.npy with where each begins."""
    ends = [0]
    with files.replaced(path.with_name(f"{path.name}.bin")) as draft, draft.open("wb") as file:
        for record in records:
            file.write(record)
            ends.append(ends[-1] + len(record))
    files.write_array(path.with_name(f"{path.name}.npy"), np.array(ends, dtype=np.int64))


def has_records(path: Path) -> bool:
    """Whether a pack was written to its end."""
    return path.with_name(f"{path.name}.npy").is_file()


class Records(Sequence[bytes]):
    """Records by place."""

    def __init__(self, path: Path):
        self.path = path.with_name(f"{path.name}.bin")
        self.ends = np.load(path.with_name(f"{path.name}.npy"), allow_pickle=False)
        if self.ends.ndim != 1 or not len(self.ends) or self.ends[-1] != self.path.stat().st_size:
            raise BadInput(f"{self.path}: does not agree with the places beside it; build the index again")
        self._map = mapped_bytes(self.path) if self.ends[-1] else np.zeros(0, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, place: int) -> bytes:  # type: ignore[override]
        if not 0 <= place < len(self):
            raise IndexError(f"records are numbered 0 to {len(self) - 1}, not {place}")
        return self._map[int(self.ends[place]) : int(self.ends[place + 1])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[place] for place in range(len(self)))


class JoinedRecords(Sequence[bytes]):
    """Several packs as one."""

    def __init__(self, packs: Sequence[Sequence[bytes]]):
        self.packs = packs
        self.starts = np.cumsum([0, *map(len, packs)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, place: int) -> bytes:  # type: ignore[override]
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.packs[number][place - int(self.starts[number])]
