"""Flipped labels: some pictures and some texts get a class that is not theirs, each side drawn on its own.

Symmetric noise spreads evenly over the other classes; asymmetric noise always confuses the same two. Where items have
several classes the whole set is replaced by as many others, so the number of labels stays what it was.
MRL (Hu et al., CVPR 2021) draws otherwise: a chosen label may come back by chance, see `like="mrl"`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from matchlight.console import BadInput
from matchlight.data.noise.truth import KINDS, Bools, Ints, Truth, check_request, check_word
from matchlight.pairs import IMAGE, TEXT, Labels, Pairs

Flip = Callable[[Bools, np.random.Generator], Bools]  # (n, K) label sets -> (n, K) other ones; as before: cannot flip


def flip_labels(
    pairs: Pairs,
    *,
    ratio: float,
    kind: str = "symmetric",
    seed: int = 0,
    split: str = "train",
    like: str | None = None,
    extra_class: bool = False,
) -> tuple[Pairs, Truth]:
    """Flip exactly round(ratio * n) labels of each side of a split; `like="mrl"` replays MRL's draw instead."""
    check_request(ratio, seed)
    check_word("kind", kind, KINDS["labels"])
    check_word("like (for labels)", like, (None, "mrl"))
    if extra_class and (like != "mrl" or kind != "symmetric"):
        raise BadInput('extra_class belongs to like="mrl" with symmetric noise')
    labels = _labels(pairs)
    pictures, rows = pairs.pictures_of(split), pairs.rows(split)
    if like == "mrl":
        classes = _mrl(pairs, labels.image[pictures], labels.text[rows], ratio, kind, seed, extra_class)
        noisy, moved = with_classes(pairs, pictures, classes[0], rows, classes[1])
    else:
        rng = np.random.default_rng(seed)
        flip = other_sets if kind == "symmetric" else confuse(len(labels.names), rng)
        image = _flipped(pairs, labels.image, pictures, ratio, flip, rng, "pictures")
        text = _flipped(pairs, labels.text, rows, ratio, flip, rng, "texts")
        noisy, moved = _with_labels(pairs, Labels(labels.names, image, text))
    return noisy, Truth("labels", float(ratio), int(seed), kind, dict(moved), like=like)


def with_classes(
    pairs: Pairs, pictures: Ints, image: Ints, rows: Ints, text: Ints
) -> tuple[Pairs, dict[str, list[int]]]:
    """Pairs whose labels at these places are single classes (K, the number of classes, adds one), and what changed."""
    labels = _labels(pairs)
    names = list(labels.names)
    if max(image.max(initial=0), text.max(initial=0)) == len(names):
        names.append("extra" if "extra" not in names else f"extra {len(names)}")
    sides = []
    for table, places, classes in ((labels.image, pictures, image), (labels.text, rows, text)):
        wide = np.zeros((len(table), len(names)), bool)
        wide[:, : table.shape[1]] = table
        wide[places] = np.arange(len(names)) == classes[:, None]
        sides.append(wide)
    return _with_labels(pairs, Labels(names, *sides))


def other_sets(sets: Bools, rng: np.random.Generator) -> Bools:
    """(n, K) as many classes as each item has, drawn evenly from those it has not; its own only if these run out."""
    draw = rng.random(sets.shape) + sets  # own classes come last
    rank = np.argsort(np.argsort(draw, axis=1), axis=1)
    return np.asarray(rank < sets.sum(1, keepdims=True))


def confuse(classes: int, rng: np.random.Generator) -> Flip:
    """Half of the classes paired with the other half at random, both ways; an odd one makes a ring of three."""
    shuffled, target = rng.permutation(classes), np.arange(classes)
    half = classes // 2
    target[shuffled[:half]], target[shuffled[half : 2 * half]] = shuffled[half : 2 * half], shuffled[:half]
    if classes % 2 and classes > 1:
        ring = shuffled[[half - 1, 2 * half - 1, -1]]
        target[ring] = np.roll(ring, -1)
    came_from = np.argsort(target)
    return lambda sets, rng: sets[:, came_from]


def _labels(pairs: Pairs) -> Labels:
    if pairs.labels is None:
        raise BadInput(f"{pairs.root}: has no labels to flip; mismatched pairs need none")
    return pairs.labels


def _flipped(
    pairs: Pairs, table: Bools, places: Ints, ratio: float, flip: Flip, rng: np.random.Generator, what: str
) -> Bools:
    """The table with round(ratio * n) of its labelled rows among `places` flipped."""
    places = places[table[places].any(1)]
    count = round(ratio * len(places))
    shuffled, table, flipped = rng.permutation(places), table.copy(), 0
    step = max(1, 2**22 // max(table.shape[1], 1))  # items at a time, so that memory stays small
    for part in (shuffled[i : i + step] for i in range(0, len(shuffled), step)):
        if flipped == count:
            break
        sets = flip(table[part], rng)
        able = np.flatnonzero((sets != table[part]).any(1))[: count - flipped]
        table[part[able]] = sets[able]
        flipped += len(able)
    if flipped < count:
        able_in_all = f"only {flipped} of the {len(places)} {what} have a label that can become another"
        raise BadInput(f"{pairs.root}: cannot flip {count} labels: {able_in_all}; ask for a smaller ratio")
    return table


def _with_labels(pairs: Pairs, labels: Labels) -> tuple[Pairs, dict[str, list[int]]]:
    moved = {}
    for side, before, after in ((IMAGE, _labels(pairs).image, labels.image), (TEXT, _labels(pairs).text, labels.text)):
        same = (before == after[:, : before.shape[1]]).all(1)
        moved[side] = np.flatnonzero(~same).tolist()
    return replace(pairs, labels=labels), moved


def _mrl(
    pairs: Pairs, image: Bools, text: Bools, ratio: float, kind: str, seed: int, extra_class: bool
) -> tuple[Ints, Ints]:
    """Both sides' classes after MRL's draw, as its released code makes it once both of its generators are seeded."""
    if (image.sum(1) != 1).any() or (text.sum(1) != 1).any():
        raise BadInput(f'{pairs.root}: like "mrl" needs exactly one label an item; leave out like')
    classes, stream = image.shape[1], random.Random(seed)
    shuffled, target = np.arange(classes), np.arange(classes)
    np.random.RandomState(seed).shuffle(shuffled)
    half = classes // 2
    target[shuffled[:half]] = shuffled[half : 2 * half]  # one way only: the other half of the classes never flips
    top = classes if extra_class else classes - 1
    sides = []
    for side in (image.argmax(1), text.argmax(1)):
        order = list(range(len(side)))
        stream.shuffle(order)
        for place in sorted(order[: int(ratio * len(side))]):
            side[place] = stream.randint(0, top) if kind == "symmetric" else target[side[place]]
        sides.append(side)
    return sides[0], sides[1]
