"""Checkpoints made by hand, byte by byte where need be: what PyTorch writes, and what it never would."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from matchlight.core import BadInput
from matchlight.training.foreign import read_checkpoint
from matchlight.training.foreign.machine import Machine
from matchlight.training.foreign.names import Names

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Stored:
    """Stands for a storage inside a hand-made pickle: its key, kind, length and the part looked at."""

    def __init__(self, key: str, count: int, kind: Any = torch.FloatStorage, part: Any = None) -> None:
        self.id = ("storage", kind, key, "cuda:0", count, part)


class Call:
    """Pickles as a call of `function` with `args`, then as setting `state`."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.parts


class Packer(pickle.Pickler):
    legacy = True

    def persistent_id(self, thing: Any) -> Any:
        return (thing.id if self.legacy else thing.id[:5]) if isinstance(thing, Stored) else None


def packed(thing: Any, *, legacy: bool = True) -> bytes:
    out = io.BytesIO()
    packer = Packer(out, 2)
    packer.legacy = legacy
    packer.dump(thing)
    return out.getvalue()


def tensor(stored: Stored, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Call:
    return Call(torch._utils._rebuild_tensor_v2, stored, offset, size, stride, False, OrderedDict())


def zip_file(path: Path, body: bytes, data: dict[str, bytes] | None = None, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", body)
        archive.writestr("archive/version", "3\n")
        for name, raw in [*((f"data/{key}", raw) for key, raw in (data or {}).items()), *more.items()]:
            archive.writestr(f"archive/{name}", raw)
    return path


def legacy_file(path: Path, body: bytes, data: dict[str, tuple[int, bytes]] | None = None) -> Path:
    head = b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, SYSTEM))
    tail = b"".join(struct.pack("<q", count) + raw for count, raw in (data or {}).values())
    path.write_bytes(head + body + pickle.dumps(list(data or {}), 2) + tail)
    return path


BOXES = {"zip": zip_file, "legacy": legacy_file}


def read_pickle(raw: bytes) -> Any:
    return Machine(io.BytesIO(raw), Names(), size=len(raw)).run()


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message
