"""Vectors of pictures and captions by the two towers of an exported run: ONNX Runtime and NumPy, and no torch.

What `matchlight embed model.onnx` writes; embeddings.py writes the same of a run.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np

from matchlight.console import BadInput, say, track
from matchlight.inputs.onnx_towers import OnnxTowers
from matchlight.inputs.preprocessing import UNREADABLE, Preprocessing
from matchlight.pairs import IMAGE, TEXT, Pairs, PictureSource
from matchlight.runs.vector_files import Written, check_target, write

BATCH, CAPTIONS = 32, 256  # pictures and captions that go through their tower at once
THREADS = min(8, os.cpu_count() or 1)  # that decode pictures, a batch each


def export_vectors(file: str | Path, pairs: Pairs, out: str | Path, *, split: str = "all", to: str = "npz") -> Written:
    """Write the vectors that an exported dual encoder makes of a split; captions may be none."""
    out = Path(out)
    check_target(out, to)
    towers = OnnxTowers.open(file)
    towers.check_dual()
    if pairs.text_features is not None:
        raise BadInput(f"{file}: reads captions in words, and {pairs.root} has text vectors only")
    asked = pairs.pictures_of(split)
    pictures, seen = _seen(towers, pairs, asked)
    if not len(pictures):
        raise BadInput(f"{pairs.root}: none of its pictures can be read; `matchlight data info` says why")
    if lost := len(asked) - len(pictures):
        say(f"{lost} of {len(asked)} pictures could not be read and are left out, with their captions")
    rows = pairs.rows(split)
    rows = rows[np.isin(pairs.picture[rows], pictures)]
    vectors = {IMAGE: seen} | ({TEXT: _read(towers, [pairs.captions[row] for row in rows])} if len(rows) else {})
    return write(to, out, vectors, pairs, pictures, rows)


def _seen(towers: OnnxTowers, pairs: Pairs, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of pictures that can be read, and (N, 1, dim) their vectors."""
    made = towers.preprocessing
    parts = [places[start : start + BATCH] for start in range(0, len(places), BATCH)]
    if made is None:
        features = pairs.features
        if features is None:
            raise BadInput(f"{pairs.root}: {towers.path} reads ready-made features, which it does not have")
        return places, np.concatenate([towers.image(features.gather(part)) for part in track(parts, "pictures")])
    source = pairs.pictures
    if source is None:
        raise BadInput(f"{pairs.root}: {towers.path} reads pictures, which it does not have")
    there, vectors = [], [np.zeros((0, 1, towers.info["dim"]), np.float32)]
    with ThreadPoolExecutor(THREADS) as pool:
        rest = iter(track(parts, "pictures"))
        while group := list(islice(rest, THREADS)):  # so many batches are decoded ahead, and no more
            for known, pixels in pool.map(lambda part: _pixels(source, made, part), group):
                there += known
                vectors += [towers.image(pixels)] if known else []
    return np.array(there, np.int64), np.concatenate(vectors)


def _pixels(source: PictureSource, made: Preprocessing, places: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Those of the pictures that can be read, and their pixels."""
    there, pixels = [], []
    for place in places.tolist():
        try:
            pixels.append(made.pixels(source.open(place)))
        except UNREADABLE:
            continue
        there.append(place)
    return there, np.array(pixels)


def _read(towers: OnnxTowers, captions: list[str]) -> np.ndarray:
    """(N, 1, dim) of captions."""
    parts = [captions[start : start + CAPTIONS] for start in range(0, len(captions), CAPTIONS)]
    return np.concatenate([towers.captions(part) for part in track(parts, "captions")])
