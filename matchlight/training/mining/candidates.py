"""Lists of hard negatives: for each picture the captions, and for each caption the pictures, that a model confuses.

A folder of lists holds `i2t.npy` (rows, hardest first), `t2i.npy` (pictures), the `pictures.npy` and `rows.npy` they
belong to, and `about.json`, which is written last. `released.py` reads the files that AOQ's authors made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchlight import files
from matchlight.core import BadInput, Json
from matchlight.data.formats.safety import load_npy

NONE = -1  # behind the last entry of a list
FILES = ("pictures", "rows", "i2t", "t2i")


@dataclass(frozen=True)
class Candidates:
    """Hard negatives of some pictures and rows of a table, in places of the whole table."""

    pictures: np.ndarray  # (N,)
    rows: np.ndarray  # (C,)
    texts: np.ndarray  # (N, h) rows of other pictures, hardest first, NONE behind the last
    images: np.ndarray  # (C, m) other pictures

    @property
    def depth(self) -> tuple[int, int]:
        """Captions in the longest list of a picture, pictures in the longest of a caption: NONE is not counted."""
        return longest(self.texts), longest(self.images)

    def trimmed(self) -> Candidates:
        """The lists without the columns in which nobody has an entry; one column is always left."""
        texts, images = (max(1, depth) for depth in self.depth)
        return Candidates(self.pictures, self.rows, self.texts[:, :texts], self.images[:, :images])

    def without(self, bad_texts: np.ndarray, bad_images: np.ndarray) -> Candidates:
        """The lists less these entries, in the old order and moved up."""
        texts, images = moved_up(self.texts, ~bad_texts), moved_up(self.images, ~bad_images)
        return Candidates(self.pictures, self.rows, texts, images)

    def within(self, rows: np.ndarray, picture: np.ndarray) -> Candidates:
        """The lists of these rows and their pictures, naming nothing else; `picture` is the owner of every row."""
        pictures = np.unique(picture[rows])
        found_i, found_t = places(self.pictures, pictures), places(self.rows, rows)
        if (found_i < 0).any() or (found_t < 0).any():
            missing = f"row {rows[found_t < 0][0]}" if (found_t < 0).any() else f"picture {pictures[found_i < 0][0]}"
            raise BadInput(f"these candidates were mined without {missing}; mine the data that is trained on")
        some = Candidates(pictures, rows, self.texts[found_i], self.images[found_t])
        return some.without(~np.isin(some.texts, rows), ~np.isin(some.images, pictures))

    def save(self, folder: Path, about: dict[str, Json]) -> None:
        """Write the lists; `about.json` comes last and says that they are whole."""
        for name, array in zip(FILES, (self.pictures, self.rows, self.texts, self.images), strict=True):
            files.write_array(folder / f"{name}.npy", array.astype(np.int32))
        files.write_json(folder / "about.json", about)


def places(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each of `wanted` stands in `known`, NONE where it does not."""
    order = np.argsort(known, kind="stable")
    spot = np.searchsorted(known, wanted, sorter=order).clip(max=max(0, len(known) - 1))
    position = order[spot] if len(known) else np.zeros(len(wanted), np.int64)
    return np.where(known[position] == wanted, position, NONE) if len(known) else np.full(len(wanted), NONE)


def moved_up(lists: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """(N, h) lists with only what is kept, in the old order, from the left; NONE behind it."""
    keep = keep & (lists != NONE)
    if keep.all():
        return np.asarray(lists)
    order = np.argsort(~keep, axis=1, kind="stable")
    kept = np.take_along_axis(keep, order, 1)
    return np.where(kept, np.take_along_axis(lists, order, 1), NONE)


def longest(lists: np.ndarray) -> int:
    """Entries of the longest of (N, h) lists; entries stand on the left."""
    return int((lists != NONE).any(0).sum())


def is_whole(folder: Path) -> bool:
    """Whether a folder holds finished lists of ours."""
    return (folder / "about.json").is_file()


def load(folder: str | Path) -> tuple[Candidates, dict[str, Json]]:
    """Finished lists of ours, memory-mapped, and what is known about them."""
    folder = Path(folder)
    about = files.read_json(folder / "about.json", "what `matchlight mine` writes")
    if not isinstance(about, dict):
        raise BadInput(f"{folder / 'about.json'}: not what `matchlight mine` writes (an object is needed); mine again")
    arrays = [_array(folder / f"{name}.npy") for name in FILES]
    pictures, rows, texts, images = arrays
    if texts.ndim != 2 or images.ndim != 2 or len(texts) != len(pictures) or len(images) != len(rows):
        raise BadInput(f"{folder}: lists of {texts.shape} and {images.shape} for {len(pictures)} pictures; mine again")
    return Candidates(pictures, rows, texts, images), about


def _array(path: Path) -> np.ndarray:
    if not path.is_file():
        raise BadInput(f"{path}: no such file; `matchlight mine` writes it")
    return load_npy(path, kinds="i")
