"""Labels for data that has none: the things its captions name.

A word names a thing if it is used like one. Nouns follow what opens a phrase (a determiner, a number, a preposition,
the beginning, an adjective) and precede what ends one (a function word, a participle, a full stop). Adjectives fail the
second test ("a brown dog"), verbs the first ("the dog runs on"); words in -ing need a plural ("buildings"), and a short
list bars what passes and names no thing ("front", "group"). No tagger, no download: it is a count over the captions.

A picture has a label if one of its captions names the thing, in the singular or the plural; so have all its captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from matchlight.console import BadInput, track
from matchlight.data.tokenising import tokenize
from matchlight.pairs import Labels, Pairs

DETERMINERS = frozenset(
    "a an the this that these those some any every each no his her its their my our your another both several many"
    " few all one two three four five six seven eight nine ten dozen".split()
)
PREPOSITIONS = frozenset(
    "of in on at by with from into onto over under through across along near behind beside between for against"
    " around above below inside outside toward towards during without after before about among like".split()
)
ENDERS = PREPOSITIONS | frozenset(
    "to up down off next and or but as while when where who which that than then is are was were be being been am has"
    " have had do does did can could will would may might must it he she they him them himself herself themselves"
    " itself there so too also not out away together back".split()
)
NO_THINGS = frozenset(
    "front back top bottom side sides middle center centre edge end background foreground distance area way left right"
    " group groups pair couple bunch set row line piece pieces lot lots kind type part number other others one ones"
    " something someone anything everyone thing things view picture pictures photo image scene time day night"
    " color colour colors colours it them him each another action walk run jump ride swim race game fun play look air"
    " midair place corner half more most see get trick high dark".split()
)
IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "mice": "mouse",
    "geese": "goose",
    "feet": "foot",
    "teeth": "tooth",
    "knives": "knife",
    "wolves": "wolf",
    "leaves": "leaf",
    "shelves": "shelf",
    "calves": "calf",
}
FOLLOWS, ENDS = 0.4, 0.4  # least shares of a noun's uses that follow an opener, and that a phrase ends with
START = ""  # what stands before the first word


@dataclass
class Uses:
    """How one word is used: how often, after which words, how often where a phrase ends, and in which pictures."""

    count: int = 0
    ends: int = 0
    after: Counter[str] = field(default_factory=Counter)
    pictures: set[int] = field(default_factory=set)

    def follows(self, openers: Set[str]) -> bool:
        """Whether it stands where a noun or an adjective does."""
        return sum(self.after[word] for word in openers & self.after.keys()) >= FOLLOWS * self.count

    @property
    def ending(self) -> bool:
        """Whether phrases end with it."""
        return self.ends >= ENDS * self.count


def uses(captions: Sequence[str], picture: np.ndarray) -> dict[str, Uses]:
    """The uses of every word; `picture` says whose caption each is."""
    found: dict[str, Uses] = {}
    for caption, owner in zip(track(captions, "reading captions"), picture.tolist(), strict=True):
        words = [START, *tokenize(caption), "."]
        for before, word, after in zip(words, words[1:-1], words[2:], strict=False):
            if not word.isalpha():
                continue
            use = found.setdefault(word, Uses())
            use.count += 1
            use.after[before] += 1
            use.ends += not after.isalpha() or after in ENDERS or after in DETERMINERS or after.endswith("ing")
            use.pictures.add(owner)
    return found


def nouns(words: dict[str, Uses]) -> dict[str, Uses]:
    """Words that are used as nouns are; what opens a phrase but does not end it is an adjective, and opens one too."""
    plain = DETERMINERS | PREPOSITIONS | {START}
    adjectives = {word for word, use in words.items() if not use.ending and use.follows(plain)}
    openers, barred = plain | adjectives, NO_THINGS | DETERMINERS | ENDERS
    barred |= {word for word in words if len(word) > 5 and word.endswith("ing") and f"{word}s" not in words}
    return {word: use for word, use in words.items() if use.ending and word not in barred and use.follows(openers)}


def singular(word: str, known: Iterable[str]) -> str:
    """The singular of a word where it is among the known words, else the word itself."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    known = known if isinstance(known, set | dict) else set(known)
    for ending, instead in (("ies", "y"), ("es", ""), ("s", "")):
        root = word.removesuffix(ending) + instead
        if word.endswith(ending) and len(root) > 2 and not word.endswith("ss") and root in known:
            return root
    return word


def object_words(
    captions: Sequence[str], picture: np.ndarray, *, top: int = 50, least: float = 0.002, most: float = 0.5
) -> list[str]:
    """The `top` nouns that the captions of most pictures name, frequent ones first.

    Words of less than a share `least` of the pictures, or more than `most`, tell too little apart and are passed over.
    """
    known = nouns(uses(captions, picture))
    owners: dict[str, set[int]] = {}
    for word, use in known.items():
        owners.setdefault(singular(word, known), set()).update(use.pictures)
    count = len(np.unique(picture))
    shares = {word: len(own) / max(1, count) for word, own in owners.items() if len(word) > 2}
    kept = [word for word, share in shares.items() if least <= share <= most and len(owners[word]) > 1]
    return sorted(kept, key=lambda word: (-shares[word], word))[:top]


def labelled_by_words(pairs: Pairs, *, top: int = 50, words: Sequence[str] | None = None) -> Pairs:
    """The same data set with a label for each thing its captions name: `words`, or the `top` found in training."""
    if pairs.labels is not None:
        raise BadInput(f"{pairs.root}: has labels already ({len(pairs.labels.names)} classes); they are kept")
    pairs.need_captions("labels from captions")
    if not any(caption.strip() for caption in pairs.captions):
        raise BadInput(f"{pairs.root}: its texts are not in words, so no labels can be read off them")
    if words is None:
        rows = pairs.rows("train" if "train" in pairs.split_names else None)
        words = object_words([pairs.captions[row] for row in rows], pairs.picture[rows], top=top)
    if not words:
        raise BadInput(f"{pairs.root}: its captions name no thing often enough; give a list with --words")
    names = list(dict.fromkeys(word.lower() for word in words))
    hot = _mentions(pairs, names)
    return replace(pairs, labels=Labels(names, hot, hot[pairs.picture]))


def _mentions(pairs: Pairs, names: list[str]) -> np.ndarray:
    """(N, labels): which picture's captions name which thing."""
    place = {name: k for k, name in enumerate(names)}
    hot = np.zeros((len(pairs.names), len(names)), dtype=bool)
    column: dict[str, int | None] = {}
    for caption, owner in zip(track(pairs.captions, "labelling"), pairs.picture.tolist(), strict=True):
        for word in tokenize(caption):
            if word not in column:
                column[word] = place.get(word, place.get(singular(word, place)))
            if (found := column[word]) is not None:
                hot[owner, found] = True
    return hot


def summary(pairs: Pairs) -> dict[str, object]:
    """Counts worth telling: labels, labelled pictures, labels a picture, and each label's share of the pictures."""
    assert pairs.labels is not None
    image = pairs.labels.image
    frequent = Counter(dict(zip(pairs.labels.names, image.sum(0).tolist(), strict=True)))
    return {
        "labels": len(pairs.labels.names),
        "labelled_pictures": int(image.any(1).sum()),
        "labels_per_picture": round(float(image.sum(1).mean()), 2),
        "names": [name for name, _ in frequent.most_common()],
    }
