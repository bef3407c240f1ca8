"""Vectors that somebody made already: one of every picture and one of every caption of a data set, in its order.

    vectors = read_vectors("vectors.npz", pairs)       # arrays `images` and `texts`; or what `matchlight embed` wrote
    vectors = read_vectors("vectors", pairs)           # a folder of images.npy and texts.npy, which stay on the disk
    vectors = read_vectors("embeddings", pairs)        # clip-retrieval's folder
    vectors = read_vectors((images, texts), pairs)     # arrays in memory

Where both sides come from one joint model, their cosine is its score; where each comes from an encoder of its own, they
are what the audit's closed form compares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.formats import array_files
from matchlight.data.formats.clip_retrieval import VECTORS, ClipRetrieval, numbered
from matchlight.data.formats.safety import finite, load_npy
from matchlight.data.formats.sources import ArrayFeatures, NpyFeatures
from matchlight.files import regular
from matchlight.pairs import Pairs

OF_CAPTIONS = "text_emb"  # clip-retrieval's folder of them
IMAGES = ("images", "image", "image_vectors", "image_features", "pictures", "img_emb")
TEXTS = ("texts", "text", "text_vectors", "text_features", "captions", "text_emb")
WOULD_DO = (
    "an .npz with the arrays images and texts, a folder of images.npy and texts.npy, or clip-retrieval's folder of "
    "img_emb/, text_emb/ and metadata/"
)
FILES = ("images.npy", "texts.npy")  # of a folder of arrays that need not fit into memory

Given = str | Path | tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class GivenVectors:
    """A vector of every picture and of every row of a data set."""

    images: np.ndarray  # (N, D)
    texts: np.ndarray  # (C, E)
    source: str  # where they came from, for messages

    @property
    def joint(self) -> bool:
        """Whether pictures can be compared with captions: their vectors have one length."""
        return self.images.shape[1] == self.texts.shape[1]

    def mark(self) -> str:
        """Changes when a value does."""
        digest = hashlib.blake2b(digest_size=16)
        for side in (self.images, self.texts):
            digest.update(str((side.shape, side.dtype.str)).encode())
            digest.update(np.ascontiguousarray(side).data)
        return digest.hexdigest()

    def seen_by_vectors(self, pairs: Pairs) -> Pairs:
        """The same data, their pictures known by these vectors and their captions still words."""
        return replace(pairs, features=ArrayFeatures(self.images, self.source))

    def in_place_of_both(self, pairs: Pairs) -> Pairs:
        """The same data with these vectors in place of pictures and captions; names and words stay, to be shown."""
        if not self.joint:
            widths = f"pictures have {self.images.shape[1]} numbers, captions {self.texts.shape[1]}"
            raise BadInput(f"{self.source}: {widths}: to be compared, both must be vectors of one joint model")
        return replace(self.seen_by_vectors(pairs), text_features=self.texts)


def read_vectors(given: Given, pairs: Pairs) -> GivenVectors:
    """The vectors of a data set's pictures and captions, in the order of its table; one line for what cannot be."""
    if isinstance(given, tuple):
        return _fitting(*given, pairs, "vectors")
    path = Path(given)
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder; {WOULD_DO} would do")
    if path.is_dir() and all((path / name).is_file() for name in FILES):
        images, texts = (load_npy(regular(path / name)) for name in FILES)
        return _fitting(images, texts, pairs, str(path))
    if path.is_dir():
        return _of_folder(path, pairs)
    if path.suffix.lower() != ".npz":
        raise BadInput(f"{path}: no .npz file; {WOULD_DO} would do")
    found = array_files.npz(regular(path), lambda name: name in (*IMAGES, *TEXTS))
    images, texts = (_named(found, names, path) for names in (IMAGES, TEXTS))
    return _fitting(images, texts, pairs, str(path))


def data_of_vectors(given: Given) -> Pairs:
    """The data set that vectors bring with them: captions and names of a clip-retrieval folder."""
    if isinstance(given, str | Path) and ClipRetrieval().fits(Path(given)):
        return Pairs.read(given, format=ClipRetrieval.name)
    raise BadInput("--vectors without --data: only clip-retrieval's folder says which captions its vectors are of")


def _named(found: dict[str, np.ndarray], names: tuple[str, ...], path: Path) -> np.ndarray:
    there = [name for name in names if name in found]
    if len(there) != 1:
        known = ", ".join(array_files.names(path)) or "nothing"
        wanted = f"one of {', '.join(names)}"
        raise BadInput(f"{path}: {wanted} is needed, exactly one of them; it holds {known[:120]}")
    return found[there[0]]


def _of_folder(path: Path, pairs: Pairs) -> GivenVectors:
    if not ClipRetrieval().fits(path):
        raise BadInput(f"{path}: no folder of vectors; {WOULD_DO} would do")
    own = pairs if pairs.format == ClipRetrieval.name and pairs.root == path else data_of_vectors(path)
    if list(own.captions) != list(pairs.captions):
        raise BadInput(_other_captions(path, own, pairs))
    if not (files := numbered(path, OF_CAPTIONS, "npy")):
        raise BadInput(f"{path}: no {OF_CAPTIONS}/{OF_CAPTIONS}_0.npy; vectors of the captions are needed too")
    images, texts = NpyFeatures(numbered(path, VECTORS, "npy")), NpyFeatures(files)
    if len(texts) != len(images):
        raise BadInput(f"{path}: {len(images)} vectors in {VECTORS}/ and {len(texts)} in {OF_CAPTIONS}/")
    said = own.picture  # a row of these folders is a picture, and the picture of a caption is its row
    pictures = said if len(pairs.names) != len(images) else np.arange(len(images))
    return _fitting(images.gather(pictures), texts.gather(said), pairs, str(path))


def _other_captions(path: Path, own: Pairs, pairs: Pairs) -> str:
    """How the captions of the metadata differ from those of the data."""
    instead = "leave --data out to use what the folder says"
    if len(own) != len(pairs):
        return f"{path}: metadata/ has {len(own)} captions, {pairs.root} has {len(pairs)}; {instead}"
    row = next(row for row in range(len(own)) if own.captions[row] != pairs.captions[row])
    both = f"{own.captions[row][:60]!r} in metadata/, {pairs.captions[row][:60]!r} in {pairs.root}"
    return f"{path}: row {row} is {both}; {instead}"


def _fitting(images: np.ndarray, texts: np.ndarray, pairs: Pairs, where: str) -> GivenVectors:
    """Two tables of numbers with a row for each picture and each caption; a row for each caption does for pictures."""
    images, texts = _table(images, f"{where} images"), _table(texts, f"{where} texts")
    pictures, rows = len(pairs.names), len(pairs)
    if len(texts) != rows:
        raise BadInput(f"{where}: {len(texts)} vectors of captions, but {pairs.root} has {rows} captions")
    if len(images) == rows != pictures:
        first = np.full(pictures, -1)
        first[pairs.picture[::-1]] = np.arange(rows)[::-1]
        if (first < 0).any():
            raise BadInput(
                f"{where}: a vector for each caption, but picture {pairs.names[int(first.argmin())]} has none"
            )
        images = images[first]
    if len(images) != pictures:
        either = f"{pairs.root} has {pictures} pictures and {rows} captions"
        raise BadInput(f"{where}: {len(images)} vectors of pictures, but {either}; the order must be the data's too")
    return GivenVectors(images, texts, where)


def _table(array: np.ndarray, where: str) -> np.ndarray:
    """(n, dim) finite numbers; sets of one vector an item, as `matchlight embed` writes them, are such a table."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 2 or array.dtype.kind not in "fiu" or not array.shape[1]:
        raise BadInput(f"{where}: {array.dtype} of shape {array.shape}; one vector an item is needed, (n, dim)")
    finite(array, where)
    return array if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else array.astype(np.float32)
