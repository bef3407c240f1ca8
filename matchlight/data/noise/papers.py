"""Noise as published work drew it: from the same generator with the same seed, or from the index files they share.

NCR (Huang et al., NeurIPS 2021) and DECL (Qin et al., ACM MM 2022) keep captions in place and say which picture each
caption (NCR) or each picture's captions (DECL) are paired with. Here rows belong to pictures and captions move instead:
a caption paired with picture p moves to a row of p, so the set of (picture, caption) pairs is the very same. Captions
that the draw leaves with their own picture stay in their row; the others fill the freed rows of p in file order.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from matchlight.console import BadInput
from matchlight.data.noise.label_noise import with_classes
from matchlight.data.noise.truth import Ints, Truth, tell_moves
from matchlight.files import DAMAGED_ARRAY, regular
from matchlight.pairs import Pairs

PER = {"ncr": "caption", "decl": "picture"}


def redraw(pairs: Pairs, split: str, like: str, ratio: float, seed: int) -> Ints:
    """(C,) from which row each row takes its caption after the draw of "ncr" or "decl" with numpy seeded by `seed`."""
    place = _places(pairs, split)
    if like == "ncr":
        return _order(pairs, split, shuffled_index(place, ratio=ratio, seed=seed), "like ncr")
    index = shuffled_index(np.arange(len(pairs.pictures_of(split))), ratio=ratio, seed=seed)
    return _order(pairs, split, index[place], "like decl")


def shuffled_index(index: Ints, *, ratio: float, seed: int) -> Ints:
    """`index` with a random int(ratio * n) of its entries shuffled among themselves; some may come back by chance."""
    state = np.random.RandomState(seed)  # the stream of np.random.seed(seed) and np.random.shuffle
    chosen = np.arange(len(index))
    state.shuffle(chosen)
    chosen = chosen[: int(ratio * len(index))]
    drawn, index = index[chosen], index.copy()
    state.shuffle(drawn)
    index[chosen] = drawn
    return index


def replay(pairs: Pairs, index: np.ndarray | str | Path, split: str = "train") -> tuple[Pairs, Truth]:
    """Apply a shared index: NCR's or DECL's .npy (or its array), or the .json of label lists that MRL keeps."""
    if not isinstance(index, np.ndarray) and Path(index).suffix == ".json":
        return _replay_labels(pairs, Path(index), split)
    pairs.need_captions("mismatching")
    name = "index" if isinstance(index, np.ndarray) else str(index)
    places = index if isinstance(index, np.ndarray) else _load(Path(index))
    rows, pictures, place = pairs.rows(split), pairs.pictures_of(split), _places(pairs, split)
    if places.ndim != 1 or places.dtype.kind not in "iu" or len(places) not in (len(rows), len(pictures)):
        what = f"{places.dtype} of shape {places.shape}"
        wants = f"{len(rows)} (one a caption of {split!r}) or {len(pictures)} (one a picture)"
        raise BadInput(f"{name}: holds {what}; it needs whole numbers, {wants}")
    if len(places) and not 0 <= places.min() <= places.max() < len(pictures):
        raise BadInput(
            f"{name}: names pictures {places.min()} to {places.max()}; {split!r} has 0 to {len(pictures) - 1}"
        )
    like = "ncr" if len(places) == len(rows) else "decl"
    places = places.astype(np.int64)
    order = _order(pairs, split, places if like == "ncr" else places[place], name)
    ratio = float((order != np.arange(len(pairs))).sum() / max(len(rows), 1))
    return tell_moves(pairs, order, ratio=ratio, seed=None, per=PER[like], like=like)


def _places(pairs: Pairs, split: str) -> Ints:
    """Each row's picture, counted within the split as the index files count."""
    return np.asarray(np.searchsorted(pairs.pictures_of(split), pairs.picture[pairs.rows(split)]))


def _order(pairs: Pairs, split: str, index: Ints, name: str) -> Ints:
    """(C,) from which row each row takes its caption so that caption k of the split meets picture `index[k]`."""
    rows, place = pairs.rows(split), _places(pairs, split)
    pictures = len(pairs.pictures_of(split))
    gets, has = np.bincount(index, minlength=pictures), np.bincount(place, minlength=pictures)
    if (gets != has).any():
        wrong = int(np.flatnonzero(gets != has)[0])
        what = f"gives picture {wrong} of {split!r} {gets[wrong]} captions where it has {has[wrong]}"
        raise BadInput(f"{pairs.root}: {name} {what}; only an exchange of captions can be replayed")
    away = np.flatnonzero(index != place)
    slots = away[np.argsort(place[away], kind="stable")]
    captions = away[np.argsort(index[away], kind="stable")]
    order = np.arange(len(pairs))
    order[rows[slots]] = rows[captions]
    return order


def _load(path: Path) -> np.ndarray:
    regular(path)
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped: a header that lies costs no memory
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error}); give a .npy or .json file") from error
    except DAMAGED_ARRAY as error:
        raise BadInput(f"{path}: no index file; it needs a .npy of whole numbers or MRL's .json") from error
    if not isinstance(loaded, np.ndarray):
        raise BadInput(f"{path}: holds several arrays; it needs a .npy with one")
    return np.array(loaded)


def _replay_labels(pairs: Pairs, path: Path, split: str) -> tuple[Pairs, Truth]:
    if pairs.labels is None:
        raise BadInput(f"{pairs.root}: has no labels for {path} to change")
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    image, text = _label_lists(path, (len(pictures), len(rows)), len(pairs.labels.names))
    noisy, moved = with_classes(pairs, pictures, image, rows, text)
    ratio = sum(len(places) for places in moved.values()) / max(len(pictures) + len(rows), 1)
    kind = "asymmetric" if "asym" in path.name else "symmetric"  # told apart by the file's name alone
    return noisy, Truth("labels", ratio, None, kind, dict(moved), like="mrl")


def _label_lists(path: Path, lengths: tuple[int, int], classes: int) -> tuple[Ints, Ints]:
    """MRL's lists of classes, pictures first; class `classes` is the extra one its draw may give."""
    try:
        lists = json.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: broken JSON; it needs two lists of classes, of pictures and of texts") from error
    if not isinstance(lists, list) or [len(one) if isinstance(one, list) else -1 for one in lists] != list(lengths):
        raise BadInput(f"{path}: needs two lists of classes, {lengths[0]} of pictures and {lengths[1]} of texts")
    if any(type(value) is not int or not 0 <= value <= classes for one in lists for value in one):
        raise BadInput(f"{path}: names a class that is no whole number from 0 to {classes}")
    return np.array(lists[0], np.int64), np.array(lists[1], np.int64)
