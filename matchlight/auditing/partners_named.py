"""Re-matches that a person named in review: the picture a caption goes to, or the row whose caption a picture gets.

They stand in `image` and `caption_row` beside the decision, as the served page exports it.
"""

from __future__ import annotations

from dataclasses import dataclass

from matchlight.auditing.tables import Named, whole
from matchlight.core import BadInput
from matchlight.pairs import Pairs


@dataclass(frozen=True)
class Decision:
    """What a person said of one row."""

    row: int
    word: str
    image: str = ""  # rematch: the picture the caption goes to
    caption_row: str = ""  # rematch: the row whose caption the picture gets
    where: str = ""  # the file and the place in it, for complaints

    @property
    def rematch(self) -> bool:
        """Whether a partner is named for it."""
        return self.word == "rematch"


def named_partners(decided: dict[int, Decision], pairs: Pairs) -> tuple[dict[int, int], dict[int, int]]:
    """(row -> picture, row -> row of another caption) of the rows that are re-matched in the end."""
    known = Named(pairs)
    pictures: dict[int, int] = {}
    captions: dict[int, int] = {}
    for row, one in decided.items():
        if not one.rematch:
            continue
        said = whole(one.caption_row)
        if one.image in known.places and not one.caption_row:
            pictures[row] = known.place(one.image, None, one.where)
        elif not one.image and said is not None and said < len(pairs):
            captions[row] = said
        else:
            raise BadInput(f"{one.where}: a rematch names either an image or a caption_row of the data")
    return pictures, captions
