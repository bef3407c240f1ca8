"""Writing SCAN's precomputed folder: split by split, features in file order, equally many captions for each picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.console import say, track
from matchlight.pairs import FeatureSource, Pairs

BLOCK = 1024  # pictures copied at a time


def obstacle(pairs: Pairs) -> str | None:
    """Why the folder cannot hold this data set, as the end of a sentence; None: it can."""
    if pairs.text_features is not None:
        return "its texts are vectors, which scan cannot hold; --to npz can"
    for name in pairs.split_names:
        if captions_each(pairs.subset(name)) is None:
            wanted = f"the same number of captions for each picture of {name}, in picture order"
            return f"scan needs {wanted}; --to npz holds any"
    return None


def write(pairs: Pairs, folder: Path) -> None:
    """{split}_ims.npy, _caps.txt, _ids.txt, and what else is known."""
    if pairs.relevance is not None:
        _write_relevance(pairs, folder)
    changed = sum(caption != _line(caption) for caption in pairs.captions)
    if changed:
        say(f"{changed} captions lose newlines or outer blanks: in this format a line is a caption")
    if pairs.labels is not None and pairs.labels.names != [str(i) for i in range(len(pairs.labels.names))]:
        _lines(folder / "label_names.txt", [_line(word) for word in pairs.labels.names])
    for name in pairs.split_names:
        _write_split(pairs.subset(name), folder, name)


def _write_split(part: Pairs, folder: Path, name: str) -> None:
    each = captions_each(part)
    assert part.features is not None and each is not None  # `obstacle` has looked
    save_features(part.features, folder / f"{name}_ims.npy")
    _lines(folder / f"{name}_caps.txt", [_line(caption) for caption in part.captions])
    _lines(folder / f"{name}_ids.txt", [_line(picture) for picture in part.names])
    if part.tokens is not None:
        _lines(folder / f"{name}_precaps.txt", [",".join(map(str, ids)) for ids in part.tokens])
    if part.boxes is not None:
        np.save(folder / f"{name}_boxes.npy", np.asarray(part.boxes, dtype=np.float32))
    if part.objects is not None:
        np.save(folder / f"{name}_cls.npy", part.objects)
    if part.labels is not None:
        np.save(folder / f"{name}_labels.npy", part.labels.image)
        if (part.labels.text != part.labels.image.repeat(each, 0)).any():
            np.save(folder / f"{name}_text_labels.npy", part.labels.text)


def captions_each(part: Pairs) -> int | None:
    """How many captions every picture of a split has; None where they differ or do not stand in picture order."""
    each = len(part) // len(part.names) if len(part.names) else 0
    in_order = np.array_equal(np.arange(len(part.names)).repeat(each), part.picture)
    return each if each and in_order else None


def save_features(source: FeatureSource, path: Path) -> None:
    """All rows of a feature source as one float32 .npy, a block at a time.

    By plain writes: on a full disk a writable map is a signal that kills the process, a write is an error to report.
    """
    head = {"descr": "<f4", "fortran_order": False, "shape": tuple(source.shape)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, head)
        for start in track(range(0, len(source), BLOCK), f"writing {path.name}"):
            index = np.arange(start, min(start + BLOCK, len(source)))
            file.write(np.ascontiguousarray(source.gather(index), dtype="<f4").data)


def _line(text: str) -> str:
    return " ".join(part.strip() for part in text.replace("\r", "\n").split("\n")).strip().lstrip("\ufeff")


def _lines(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))


def _write_relevance(pairs: Pairs, folder: Path) -> None:
    """Rows and columns in the order a reader will meet them: split by split."""
    from scipy.sparse import save_npz

    assert pairs.relevance is not None
    rows = np.concatenate([pairs.rows(name) for name in pairs.split_names])
    pictures = np.concatenate([pairs.pictures_of(name) for name in pairs.split_names])
    save_npz(folder / "relevance.npz", pairs.relevance[rows][:, pictures].tocsr().astype(bool))
