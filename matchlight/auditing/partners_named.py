"""Re-matches that a person named in review: the picture a caption goes to, or the row whose caption a picture gets.

They stand in the columns `image` and `caption_row` of a table of decisions, as the served page exports it.
"""

from __future__ import annotations

import csv
from pathlib import Path

from matchlight.core import BadInput
from matchlight.pairs import Pairs


def named_partners(path: Path, pairs: Pairs) -> tuple[dict[int, int], dict[int, int]]:
    """(row -> picture, row -> row of another caption); both empty for a table without these columns."""
    places = {str(name): place for place, name in enumerate(pairs.names)}
    pictures: dict[int, int] = {}
    captions: dict[int, int] = {}
    for number, line in enumerate(_lines(path), 2):
        if line.get("decision") != "rematch":
            continue
        row, image, said = int(line["row"]), line.get("image") or "", line.get("caption_row") or ""
        image = image if image in places else image.removeprefix("'")
        if image in places:
            pictures[row] = places[image]
        elif said.isascii() and said.isdigit() and int(said) < len(pairs):
            captions[row] = int(said)
        else:
            raise BadInput(f"{path} line {number}: a rematch names an image or a caption_row of the data")
    return pictures, captions


def _lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV that was read once already; a JSON of the report's holds no such columns."""
    text = path.read_text(encoding="utf-8")
    return [] if text.lstrip()[:1] in ("{", "[") else list(csv.DictReader(text.splitlines()))
