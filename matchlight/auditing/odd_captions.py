"""Captions that an audit cannot judge: those that could stand below any picture, and those in another language.

No model learns from them what a right pair looks like, so they are set aside before anything is fitted, keep a reason
of their own and are never called wrong.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from matchlight.auditing.neighbours import Signals
from matchlight.data.findings import OTHER_LANGUAGE, SAME_CAPTION, VAGUE
from matchlight.pairs import Pairs

TELLS = 0.65  # of what the usual caption tells about its picture; one that tells less is not judged
MANY = 5  # pictures that have a caption in common before it says nothing about any of them ...
MANY_SHARE = 0.1  # ... and the share of all pictures that they must be
MOST = 0.5  # share of the captions, from which they are what an audit fails at
FEWEST_WORDS = 4  # of a caption whose language is told
SHARED = 0.3  # of its words a caption has in common with the main captions, or it is in another language
LEAST = 50  # captions from which the usual words are known
# One word, or one letter of a script that puts no spaces between its words (Thai, Chinese, Japanese ...).
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"(?=\w)[\u0e00-\uffff]|[^\W\u0e00-\uffff]+")


def says_something(caption: str) -> bool:
    """Whether a caption has a letter or a digit."""
    return any(map(str.isalnum, caption))


def set_aside(pairs: Pairs, signals: Signals) -> np.ndarray:
    """(n,) the reason why each row's caption cannot be judged, "" for most."""
    rows, group = signals["rows"], signals["group"]
    captions = [pairs.captions[row] for row in rows.tolist()]
    reason = np.full(len(rows), "", dtype=object)
    little, foreign = tells_little(signals), other_language(captions)
    reason[foreign] = OTHER_LANGUAGE
    reason[little & ~(foreign & ~of_a_pattern(captions))] = VAGUE
    reason[same_for_many(captions, group[pairs.picture[rows]])] = SAME_CAPTION
    return reason


def tells_little(signals: Signals) -> np.ndarray:
    """(n,) bool: captions from which next to nothing follows about a picture, such as "IMG_2043" or "Click to enlarge".

    Told by the closed form, fitted without the row: it learns from all captions which words go with which pictures,
    and whether this caption belongs to its own picture has no part in it. The usual caption is the measure, since both
    shrink where many captions are wrong.
    """
    if "plain_tells" not in signals:
        return np.zeros(len(signals["rows"]), dtype=bool)
    tells = signals["plain_tells"]
    return np.asarray(tells < TELLS * np.median(tells)) if len(tells) else np.zeros(0, dtype=bool)


def of_a_pattern(captions: list[str]) -> np.ndarray:
    """(n,) bool: captions of which MANY are the same but for numbers; no language is made of those."""
    said = [NUMBER.sub("0", " ".join(caption.lower().split())) for caption in captions]
    times = Counter(said)
    return np.array([times[caption] >= MANY for caption in said], dtype=bool)


def nothing_but_numbers(pairs: Pairs, signals: Signals, aside: np.ndarray) -> list[str]:
    """Why right and wrong cannot be told where most captions are the same but for numbers; [] where they are not.

    Such captions are then set `aside` (n,). Where they can be told, the numbers are what they say ("a seven").
    """
    captions = [pairs.captions[row] for row in signals["rows"].tolist()]
    same = of_a_pattern(captions) & np.array([NUMBER.search(caption) is not None for caption in captions], dtype=bool)
    if not len(same) or same.mean() < MOST:
        return []
    aside[same & (aside == "")] = VAGUE
    count, example = f"{same.sum():,} of {len(same):,} captions", captions[int(same.argmax())][:60]
    why = f"are the same as others but for numbers ({example!r}) and say nothing of a picture"
    return [f"{count} {why}; none is flagged"]


def same_for_many(captions: list[str], owner: np.ndarray) -> np.ndarray:
    """(n,) bool: the same words stand with many different pictures."""
    said = [" ".join(caption.lower().split()) for caption in captions]
    pictures = Counter(caption for caption, _ in set(zip(said, owner.tolist(), strict=True)))
    many = max(MANY, MANY_SHARE * len(np.unique(owner)))
    return np.array([pictures[caption] >= many for caption in said], dtype=bool)


def other_language(captions: list[str]) -> np.ndarray:
    """(n,) bool: captions of several words that hardly share one with the main captions.

    The captions with the most common word are main; so is, step by step, every caption whose words are mostly used in
    main captions. Two languages share few words, while any two subjects share their grammar's.
    """
    words = [sorted(set(WORD.findall(caption.lower()))) for caption in captions]
    used = Counter(word for one in words for word in one)
    if len(captions) < LEAST or not used:
        return np.zeros(len(captions), dtype=bool)
    main = _main(words, used)
    told = np.array([len(one) >= FEWEST_WORDS for one in words], dtype=bool)
    return ~main & told


def _main(words: list[list[str]], used: Counter[str]) -> np.ndarray:
    """(n,) bool: the captions that are connected with the most common word by the words they share."""
    common = used.most_common(1)[0][0]
    main = np.array([common in one for one in words], dtype=bool)
    while True:
        inside = Counter(word for one, known in zip(words, main, strict=True) if known for word in one)
        joins = np.array([_shared(one, inside, used) >= SHARED for one in words], dtype=bool) & ~main
        if not joins.any():
            return main
        main |= joins


def _shared(words: list[str], inside: Counter[str], used: Counter[str]) -> float:
    """The mean share of other captions with these words that are main; a word of one caption alone has none."""
    shares = [inside[word] / (used[word] - 1) for word in words if used[word] > 1]
    return sum(shares) / max(1, len(words))
