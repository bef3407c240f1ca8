"""Which class belongs to which super-class: COCO's own table, MIRFlickr's, that of drawn scenes, or a file of yours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matchlight.core import BadInput
from matchlight.data.scenes.things import THINGS
from matchlight.files import read_json

COCO = {
    "person": "person",
    "vehicle": "bicycle, car, motorcycle, airplane, bus, train, truck, boat",
    "outdoor": "traffic light, fire hydrant, stop sign, parking meter, bench",
    "animal": "bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe",
    "accessory": "backpack, umbrella, handbag, tie, suitcase",
    "sports": "frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket",
    "kitchen": "bottle, wine glass, cup, fork, knife, spoon, bowl",
    "food": "banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake",
    "furniture": "chair, couch, potted plant, bed, dining table, toilet",
    "electronic": "tv, laptop, mouse, remote, keyboard, cell phone",
    "appliance": "microwave, oven, toaster, sink, refrigerator",
    "indoor": "book, clock, vase, scissors, teddy bear, hair drier, toothbrush",
}
MIRFLICKR = {  # its wider classes are classes themselves
    "animals": "animals, bird, dog",
    "people": "people, baby, female, male, portrait",
    "plant life": "plant life, flower, tree",
    "sky": "sky, clouds, sunset, night",
    "water": "water, lake, river, sea",
    "transport": "transport, car",
}
Groups = Mapping[str, frozenset[str]]  # class -> its super-classes


def _turned(table: Mapping[str, str]) -> Groups:
    return {name: frozenset({above}) for above, names in table.items() for name in names.split(", ")}


KNOWN: dict[str, Groups] = {
    "COCO": _turned(COCO),
    "MIRFlickr-25K": _turned(MIRFLICKR),
    "scenes": {thing.name: frozenset(thing.categories) for thing in THINGS},
}


@dataclass(frozen=True)
class SuperClasses:
    """The super-classes of a data set's classes, and where they are from."""

    groups: Groups
    source: str = ""

    def shared(self, one: Iterable[str], other: Iterable[str]) -> str:
        """A super-class that labels of two items have in common; nothing where there is none."""
        left, right = (
            frozenset().union(*(self.groups.get(_plain(name), ()) for name in some)) for some in (one, other)
        )
        return min(left & right, default="")


def _plain(name: str) -> str:
    return name.lower().replace("_", " ").strip()


def superclasses_of(names: Sequence[str], file: str | Path | None = None) -> SuperClasses:
    """Those of a file, else of the table that knows most of these classes; none where none knows half of them."""
    if file is not None:
        return SuperClasses(_read(Path(file)), Path(file).name)
    classes = {_plain(name) for name in names}
    found, source = max((len(classes & groups.keys()), source) for source, groups in KNOWN.items())
    return SuperClasses(KNOWN[source], source) if 2 * found > len(classes) else SuperClasses({})


def _read(path: Path) -> Groups:
    """A JSON object: each class with its super-class, or with a list of them."""
    told = read_json(path, "super-classes of classes")
    if not isinstance(told, dict) or not told:
        raise BadInput(f'{path}: an object is needed, each class with its super-class: {{"banana": "fruit"}}')
    groups = {}
    for name, above in told.items():
        several = [above] if isinstance(above, str) else above
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            raise BadInput(f"{path}: {name!r} has {above!r}; a super-class is a word, several are a list of words")
        groups[_plain(name)] = frozenset(several)
    return groups
