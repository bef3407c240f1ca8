"""pairs.npz: a whole data set of arrays in one file: features and labels of pictures and texts, words, splits.

Every member is plain numbers: texts are one block of UTF-8 and the places where each begins. The unknown is left out.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchlight.console import BadInput, track
from matchlight.data.formats import array_files
from matchlight.data.formats.annotations import split_name
from matchlight.data.formats.array_values import pack, unpack
from matchlight.data.formats.base import Format, Options
from matchlight.data.formats.relevance_file import checked
from matchlight.data.formats.safety import finite, inside
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.data.formats.splits import default_splits
from matchlight.pairs import FeatureSource, Labels, Pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FILE = "pairs.npz"
MARK = "matchlight_pairs"  # a member whose presence says that this file is ours
BLOCK = 1024


class PairsNpz(Format):
    """pairs.npz: the file, or the folder that holds it."""

    name = "npz"
    content = "features"
    file = FILE

    def fits(self, path: Path) -> bool:
        """By the mark inside, which label sets in .npz files do not have."""
        if path.is_dir():
            return os.path.lexists(path / FILE) and ours(inside(path, FILE))
        return path.suffix.lower() == ".npz" and ours(path)

    def read(self, path: Path, options: Options) -> Pairs:
        """Read pairs.npz (the file, or the folder that holds it)."""
        path = inside(path, FILE) if path.is_dir() else path
        found = array_files.npz(path, lambda name: True)
        where = str(path)
        names = _texts(found, "names", where)
        captions = _texts(found, "captions", where)
        if "picture" not in found or not captions:
            raise BadInput(f"{path}: no pairs in it; `matchlight data convert --to npz` writes such files")
        picture = _whole(found["picture"], len(captions), where)
        if "splits" in found:
            splits = np.array([split_name(split, where) for split in _texts(found, "splits", where)])
        else:
            splits = default_splits(names, None, seed=options.seed)
        image = found.get("image_features")
        if image is not None and image.ndim not in (2, 3):
            raise BadInput(f"{path}: image_features of shape {image.shape}; (n, dim) or (n, regions, dim) is needed")
        return Pairs(
            names=names,
            captions=captions,
            picture=picture,
            splits=splits,
            features=None if image is None else ArrayFeatures(image, f"{path} image_features"),
            text_features=_floats(found, "text_features", where),
            tokens=_tokens(found, where),
            boxes=found.get("boxes"),
            objects=found.get("objects"),
            labels=_labels(found, where),
            relevance=_relevance(found, where),
            root=path.parent,
            format=self.name,
        )

    def write(self, pairs: Pairs, out: Path) -> None:
        """The whole data set into one file, features a block at a time."""
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as packed:
            for name, values in _members(pairs).items():
                with packed.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(values), allow_pickle=False)
            if pairs.features is not None:
                _write_features(packed, pairs.features)


def ours(path: Path) -> bool:
    """True if the file is one that `write` made."""
    return MARK in array_files.names(path)


def _floats(found: dict[str, np.ndarray], name: str, where: str) -> np.ndarray | None:
    return finite(found[name].astype(np.float32, copy=False), f"{where} {name}") if name in found else None


def _texts(found: dict[str, np.ndarray], name: str, where: str) -> list[str]:
    if name not in found or f"{name}_starts" not in found:
        raise BadInput(f"{where}: no {name} in it; `matchlight data convert --to npz` writes such files")
    return unpack(found[name], found[f"{name}_starts"], f"{where} {name}")


def _whole(values: np.ndarray, count: int, where: str) -> np.ndarray:
    if values.shape != (count,) or values.dtype.kind not in "iu":
        raise BadInput(f"{where}: damaged; `picture` must be {count} whole numbers")
    return values.astype(np.int64)


def _tokens(found: dict[str, np.ndarray], where: str) -> list[list[int]] | None:
    if "tokens" not in found:
        return None
    starts = found.get("tokens_starts", np.zeros(0))
    if not len(starts) or starts[-1] != len(found["tokens"]) or (np.diff(starts) < 0).any():
        raise BadInput(f"{where}: damaged; the places of its tokens do not fit")
    return [found["tokens"][a:b].tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)]


def _labels(found: dict[str, np.ndarray], where: str) -> Labels | None:
    if "image_labels" not in found:
        return None
    names = _texts(found, "label_names", where)
    image, text = found["image_labels"], found.get("text_labels", found["image_labels"])
    if image.ndim != 2 or text.ndim != 2 or not image.shape[1] == text.shape[1] == len(names):
        raise BadInput(f"{where}: damaged; its labels do not fit its {len(names)} classes")
    return Labels(names, image > 0, text > 0)


def _relevance(found: dict[str, np.ndarray], where: str) -> csr_matrix | None:
    if "relevance_shape" not in found:
        return None
    from scipy.sparse import csr_matrix

    try:
        indices, starts = found["relevance_indices"], found["relevance_starts"]
        values = np.ones(len(indices), dtype=bool)
        return checked(csr_matrix((values, indices, starts), shape=tuple(map(int, found["relevance_shape"]))))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadInput(f"{where}: damaged; its relevance is no sparse matrix") from error


def _members(pairs: Pairs) -> dict[str, np.ndarray]:
    members: dict[str, np.ndarray] = {MARK: np.array(1), "picture": pairs.picture}
    texts = {"names": pairs.names, "captions": pairs.captions, "splits": pairs.splits.tolist()}
    if pairs.labels is not None:
        texts["label_names"] = pairs.labels.names
        members |= {"image_labels": pairs.labels.image, "text_labels": pairs.labels.text}
    for name, values in texts.items():
        members[name], members[f"{name}_starts"] = pack(list(values))
    if pairs.text_features is not None:
        members["text_features"] = pairs.text_features
    if pairs.boxes is not None:
        members["boxes"] = pairs.boxes
    if pairs.objects is not None:
        members["objects"] = pairs.objects
    if pairs.tokens is not None:
        members["tokens"] = np.array([word for words in pairs.tokens for word in words], dtype=np.int64)
        members["tokens_starts"] = np.cumsum([0] + [len(words) for words in pairs.tokens])
    if pairs.relevance is not None:
        matrix = checked(pairs.relevance)
        members |= {"relevance_indices": matrix.indices, "relevance_starts": matrix.indptr}
        members["relevance_shape"] = np.array(matrix.shape)
    return members


def _write_features(packed: zipfile.ZipFile, source: FeatureSource) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": tuple(source.shape)}
    with packed.open("image_features.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_2_0(member, header)
        for start in track(range(0, len(source), BLOCK), "writing features"):
            index = np.arange(start, min(start + BLOCK, len(source)))
            member.write(np.ascontiguousarray(source.gather(index), dtype="<f4").tobytes())
