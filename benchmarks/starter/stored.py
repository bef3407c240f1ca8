"""What is stored, as batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.starter.looking import Part
from matchlight.core import Items


class Stored:
    """Parts of one split that were looked at and read, as one table of pictures and captions."""

    def __init__(self, work: Path, parts: list[Part], kind: str):
        there = [one for one in parts if all((work / f"{one.name}.{what}.npy").exists() for what in (kind, "words"))]
        self.names = [one.name for one in there]
        self.views = [np.load(work / f"{name}.{kind}.npy", mmap_mode="r") for name in self.names]
        self.words = [np.load(work / f"{name}.words.npy", mmap_mode="r") for name in self.names]
        self.begins = [np.load(work / f"{name}.begins.npy") for name in self.names]
        self.first = np.cumsum([0, *(len(view) for view in self.views)])
        rows = [(part, place) for part, one in enumerate(there) for place in range(len(one.pairs))]
        self.row = np.array(rows, dtype=np.int64).reshape(-1, 2)
        owners = [self.first[part] + one.pairs.picture for part, one in enumerate(there)]
        self.owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        self.lengths = np.concatenate([np.diff(begins) for begins in self.begins] or [np.zeros(0, np.int64)])
        order = np.argsort(self.owner, kind="stable")
        self.captions = np.split(order, np.searchsorted(self.owner[order], np.arange(1, len(self))))

    def __len__(self) -> int:
        return int(self.first[-1])

    def pictures(self, places: np.ndarray) -> Tensor:
        """What was seen of these pictures."""
        part = np.searchsorted(self.first, places, side="right") - 1
        found = [self.views[p][place - self.first[p]] for p, place in zip(part, places, strict=True)]
        return torch.from_numpy(np.stack(found)).float()

    def texts(self, rows: np.ndarray) -> Items:
        """What was read of these captions."""
        spans = [(p, *self.begins[p][place : place + 2]) for p, place in self.row[rows]]
        lengths = torch.tensor([stop - start for _, start, stop in spans])
        x = np.zeros((len(rows), int(lengths.max()), self.words[0].shape[1]), np.float32)
        for k, (p, start, stop) in enumerate(spans):
            x[k, : stop - start] = self.words[p][start:stop]
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        return Items(torch.from_numpy(x), mask, torch.from_numpy(np.asarray(rows)), {"length": lengths})
