"""Vectors in the files of other tools: a folder for FAISS, a database of LanceDB, clip-retrieval's folder.

All of them hold one vector an item. What a row stands for lies beside the vectors: names of pictures, captions, and
which picture a caption belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from matchlight import files
from matchlight.console import BadInput
from matchlight.pairs import IMAGE, TEXT, Pairs

Arrays = Mapping[str, np.ndarray]
IMAGES, CAPTIONS = "images", "captions"  # tables of a LanceDB database


class Written(TypedDict):
    """What was written."""

    file: str
    pictures: int
    captions: int
    arrays: list[str]


def check_target(out: Path, to: str) -> None:
    """Refuse, before anything slow, what cannot be written."""
    if to == "npz":
        if out.suffix != ".npz":
            raise BadInput(f"{out}: vectors are written as .npz; --to {', '.join(WRITERS)} writes a folder")
        return
    if to not in WRITERS:
        raise BadInput(f"--to {to}: npz, {', '.join(WRITERS)}")
    if not files.is_free(out):
        raise BadInput(f"{out}: not empty; choose another -o")
    package, extra = NEEDED.get(to, ("", ""))
    if package:
        try:
            __import__(package)
        except ImportError:
            raise BadInput(f"--to {to} needs one more package: pip install 'matchlight[{extra}]'") from None


def write(to: str, out: Path, vectors: Arrays, pairs: Pairs, pictures: np.ndarray, rows: np.ndarray) -> Written:
    """Write the vectors of these pictures and captions with what they stand for.

    `picture` says which of the pictures each caption belongs to, `row` which pair of the data it is.
    """
    place = np.full(len(pairs.names), -1)
    place[pictures] = np.arange(len(pictures))
    arrays = {**vectors, "picture": place[pairs.picture[rows]], "row": rows}
    arrays["names"] = np.array([pairs.names[i] for i in pictures])
    if to == "npz":
        files.write_npz(out, arrays, compressed=False)
    else:
        write_vectors(to, out, arrays, [pairs.captions[row] for row in rows])
    return {"file": str(out), "pictures": len(pictures), "captions": len(rows), "arrays": sorted(arrays)}


def write_vectors(to: str, out: Path, arrays: Arrays, captions: Sequence[str]) -> None:
    """Write a folder of one tool: whole or not at all."""
    sides = {side: _one_each(arrays, side) for side in (IMAGE, TEXT) if side in arrays or f"{side}_0" in arrays}
    with files.new_folder(out) as draft:
        WRITERS[to](draft, sides, arrays, captions)


def _one_each(arrays: Arrays, side: str) -> np.ndarray:
    """(N, dim) float32."""
    found = arrays.get(side)
    if found is None or found.shape[1] != 1 or f"{side}_mask" in arrays:
        raise BadInput("this model makes sets of vectors, and these tools hold one an item; .npz holds all of them")
    return np.ascontiguousarray(found[:, 0], dtype=np.float32)


def _faiss(folder: Path, sides: Arrays, arrays: Arrays, captions: Sequence[str]) -> None:
    """`image.faiss` and `text.faiss`, compared by dot products, and `items.json`: what their rows are."""
    import faiss

    for side, vectors in sides.items():
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        faiss.write_index(index, str(folder / f"{side}.faiss"))
    items = {"names": arrays["names"].tolist(), "captions": list(captions), "picture": arrays["picture"].tolist()}
    files.write_json(folder / "items.json", items)


def _lancedb(folder: Path, sides: Arrays, arrays: Arrays, captions: Sequence[str]) -> None:
    """Tables `images` (name, vector) and `captions` (caption, name of its picture, row of the data, vector)."""
    import lancedb
    import pyarrow as pa

    names = arrays["names"]
    columns = {IMAGE: {"name": names.tolist()}}
    columns[TEXT] = {
        "caption": list(captions),
        "name": names[arrays["picture"]].tolist(),
        "row": arrays["row"].tolist(),
    }
    database = lancedb.connect(str(folder))
    for side, table in ((IMAGE, IMAGES), (TEXT, CAPTIONS)):
        if side in sides:
            flat = pa.array(sides[side].ravel())
            vectors = pa.FixedSizeListArray.from_arrays(flat, sides[side].shape[1])
            database.create_table(table, pa.table({**columns[side], "vector": vectors}))


def _clip_retrieval(folder: Path, sides: Arrays, arrays: Arrays, captions: Sequence[str]) -> None:
    """A row is a picture with a caption, as its `inference` writes them: a picture stands there once for each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, picture = arrays["names"], arrays["picture"]
    rows = picture if TEXT in sides else np.arange(len(names))
    metadata = {"image_path": names[rows].tolist(), **({"caption": list(captions)} if TEXT in sides else {})}
    parts = {"img_emb": sides[IMAGE][rows], **({"text_emb": sides[TEXT]} if TEXT in sides else {})}
    for name, vectors in parts.items():
        files.write_array(folder / name / f"{name}_0.npy", vectors)
    (folder / "metadata").mkdir()
    pq.write_table(pa.table(metadata), folder / "metadata" / "metadata_0.parquet")


Writer = Callable[[Path, Arrays, Arrays, Sequence[str]], None]
WRITERS: dict[str, Writer] = {"faiss": _faiss, "lancedb": _lancedb, "clip-retrieval": _clip_retrieval}
NEEDED = {"faiss": ("faiss", "search"), "lancedb": ("lancedb", "lancedb")}  # package, and the extra that brings it
