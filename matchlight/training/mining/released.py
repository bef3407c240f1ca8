"""Lists for a data set: ours, or `i2t_NAME.npy` and `t2i_NAME.npy` as AOQ's authors made them.

Their files count pictures and captions inside the training split and fit only data that stands in their order. Lists
never name one's own items, so files in another order soon show: they are refused, not used less what is wrong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from matchlight.core import BadInput
from matchlight.data.content import content_mark
from matchlight.data.fingerprints import CONTENT
from matchlight.data.formats.safety import load_npy
from matchlight.pairs import Pairs
from matchlight.training.mining.candidates import Candidates, is_whole, load

WAYS = ("i2t", "t2i")
AT_ONCE = 4_000_000  # entries looked at together


def load_for(folder: str | Path, pairs: Pairs, *, data: str, split: str = "train") -> Candidates:
    """Lists for this data set, ours or the authors'; lists of other data are refused."""
    folder = Path(folder)
    if is_whole(folder):
        lists, about = load(folder)
        if about.get("data") != data or (CONTENT in about and about[CONTENT] != content_mark(pairs)):
            raise BadInput(f"{folder}: mined from other data than {pairs.root}")
        return lists
    return read_released(folder, pairs, split=split)


def read_released(folder: str | Path, pairs: Pairs, *, split: str = "train") -> Candidates:
    """The authors' `i2t_*.npy` and `t2i_*.npy` for a data set whose training split stands in their order."""
    folder = Path(folder)
    name, data = _chosen(folder, pairs.root), f"the {split} split of {pairs.root}"
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    owner, each = np.searchsorted(pictures, pairs.picture[rows]), np.arange(len(pictures))
    texts, images = (
        _lists(folder / f"{way}_{name}.npy", own, named, what, data)
        for way, own, named, what in zip(WAYS, (each, owner), (owner, each), ("pictures", "captions"), strict=True)
    )
    return Candidates(pictures, rows, rows[texts], pictures[images])


def _chosen(folder: Path, root: Path) -> str:
    """NAME of the two files: the data folder's name up to its first underscore, or the only one there is."""
    names = {way: sorted(path.stem[len(way) + 1 :] for path in folder.glob(f"{way}_*.npy")) for way in WAYS}
    both = [name for name in names["i2t"] if name in names["t2i"]]
    wanted = root.absolute().name.split("_")[0]
    if wanted in both:
        return wanted
    if len(both) == 1:
        return both[0]
    there = ", ".join(f"{way}_{name}.npy" for way in WAYS for name in names[way])
    if both:
        raise BadInput(f"{folder}: {there}, and none is named for {root} ({wanted!r}); keep one set there")
    missing = f"no i2t_NAME.npy with its t2i_NAME.npy (found: {there or 'neither'})"
    raise BadInput(f"{folder}: {missing}, nor the about.json of a folder that `matchlight mine` makes")


def _lists(path: Path, own: np.ndarray, named: np.ndarray, what: str, data: str) -> np.ndarray:
    """A file's lists, one a line of `own`; an entry is a place in `named`, and both say whose picture it is."""
    array = load_npy(path, kinds="iu")
    if array.ndim != 2 or len(array) != len(own):
        raise BadInput(f"{path}: {array.shape}, but {data} has {len(own)} {what}")
    step = max(1, AT_ONCE // max(1, array.shape[1]))
    for start in range(0, len(array), step):
        block = array[start : start + step]
        outside = (block < 0) | (block >= len(named))
        if outside.any():
            raise BadInput(f"{path}: {_spot(block, outside, start)}, outside 0 to {len(named) - 1} of {data}")
        mine = named[block] == own[start : start + step, None]
        if mine.any():
            hint = f"files made for {data}, in its order, would do (`matchlight mine` makes lists for any data)"
            raise BadInput(f"{path}: {_spot(block, mine, start)}, which is its own: made for another order; {hint}")
    return array


def _spot(block: np.ndarray, bad: np.ndarray, start: int) -> str:
    """The first of these entries in words."""
    line, place = (int(axis[0]) for axis in np.nonzero(bad))
    return f"row {start + line} names place {block[line, place]}"
