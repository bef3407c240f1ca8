"""What the exhibits of semantic sharing share: its variants and rivals, and the data sets as columns of a table.

Yang et al., IJCAI 2021, supplement. Guesses at hidden words and regions cost their plain cross-entropy here, so that
lambda means what it means in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from matchlight.core import IMAGE, TEXT
from matchlight.reproduce.exhibits import MethodSetup, Work

PAPER = "Rethinking Label-Wise Cross-Modal Retrieval from A Semantic Sharing Perspective (IJCAI 2021)"
QUICK = {"epochs": 3}
PLAIN = {"mask_cost": "plain"}
SHARING = MethodSetup("sharing", "semantic_sharing", PLAIN, QUICK)
CONSISTENT = MethodSetup("sharing + consistency", "semantic_sharing", {**PLAIN, "variant": "consistent"}, QUICK)
INDEPENDENT = MethodSetup("independent", "semantic_sharing", {"variant": "independent"}, QUICK)
WAYS = {"t2i": "text to picture", "i2t": "picture to text"}
SIDES = {IMAGE: "pictures", TEXT: "texts"}
FOLD = 1000  # pictures: the paper's COCO 1K and 5K are one test split, in galleries of 1,000 and whole


@dataclass(frozen=True)
class Column:
    """One data set as it is measured: in one gallery, or in folds."""

    name: str
    work: Work
    fold: int | None = None


def columns(work: Work) -> list[Column]:
    """Each data set once; one of several thousand pictures twice, in folds of 1,000 and whole, as the paper's COCO."""
    out = []
    for name, one in work.every.items():
        pictures = len(one.pairs.pictures_of(one.split)) if one.split in one.pairs.split_names else 0
        if work.fold is None and pictures >= 2 * FOLD:
            out += [Column(f"{name} 1K", one, FOLD), Column(f"{name} {pictures / 1000:g}K", one)]
        else:
            out.append(Column(name, one, work.fold))
    return out
