"""Labels put right: where a label is the only thing wrong with a pair, the likelier class takes its place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from matchlight.auditing.findings import LABEL
from matchlight.auditing.tables import LABELS, cell
from matchlight.core import BadInput
from matchlight.pairs import Labels, Pairs

IMAGE, TEXT = "image", "text"
SIDES = (IMAGE, TEXT, "both")

Lines = dict[int, dict[str, str]]


def relabelled(path: Path, lines: Lines, pairs: Pairs, bad: set[int], accepted: set[int]) -> tuple[Pairs, set[int]]:
    """The data with likelier labels, and the bad rows that are right by that.

    A picture's label is one for all its rows: it changes where more than half of them find it wrong, to what the surest
    of these (the lowest score) says, and never where a person accepted one of them. A row whose wish is not followed is
    as bad as before.
    """
    if pairs.labels is None or not all(set(LABELS) <= set(line) for line in lines.values()):
        raise BadInput(
            f"{path}: no label was judged; --relabel needs data with one class for each picture and each text"
        )
    wishes = _wishes(path, lines, pairs.labels, bad)
    pictures = _agreed(wishes, lines, pairs.picture, fixed={_of(pairs, row) for row in accepted})
    labels = Labels(pairs.labels.names, pairs.labels.image.copy(), pairs.labels.text.copy())
    for place, likely in pictures.items():
        labels.image[place] = np.arange(len(labels.names)) == likely
    mended = {row for row, (side, likely) in wishes.items() if side == TEXT or pictures.get(_of(pairs, row)) == likely}
    for row in mended:
        side, likely = wishes[row]
        if side != IMAGE:
            labels.text[row] = np.arange(len(labels.names)) == likely
    return replace(pairs, labels=labels), mended


def _wishes(path: Path, lines: Lines, labels: Labels, bad: set[int]) -> dict[int, tuple[str, int]]:
    """Row -> whose label is wrong and the class it should have, the surest row first."""
    classes = {told: number for number, name in enumerate(labels.names) for told in (name, cell(name))}
    wanted = sorted((_score(path, row, lines[row]), row) for row in bad & set(lines) if lines[row]["reason"] == LABEL)
    for _, row in wanted:
        side, likely = lines[row]["side"], lines[row]["likely"]
        if side not in SIDES or likely not in classes:
            raise BadInput(
                f"{path}: row {row} has side {side!r} and likely {likely!r}; image, text or both, and a class"
            )
    return {row: (lines[row]["side"], classes[lines[row]["likely"]]) for _, row in wanted}


def _agreed(
    wishes: dict[int, tuple[str, int]], lines: Lines, picture: np.ndarray, *, fixed: set[int]
) -> dict[int, int]:
    """Picture -> its new class, where most of its rows find the old one wrong."""
    rows = Counter(int(picture[row]) for row in lines)
    against = Counter(int(picture[row]) for row, (side, _) in wishes.items() if side != TEXT)
    out: dict[int, int] = {}
    for row, (side, likely) in wishes.items():
        place = int(picture[row])
        if side != TEXT and 2 * against[place] > rows[place] and place not in fixed:
            out.setdefault(place, likely)  # the surest comes first
    return out


def _of(pairs: Pairs, row: int) -> int:
    return int(pairs.picture[row])


def _score(path: Path, row: int, line: dict[str, str]) -> float:
    try:
        return float(line["score"])
    except ValueError:
        raise BadInput(f"{path}: row {row} has score {line['score']!r}; a number from 0 to 1") from None
