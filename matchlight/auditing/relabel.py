"""Labels put right: where a label is the only thing wrong with a pair, the likelier class takes its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from matchlight.auditing.findings import LABEL
from matchlight.auditing.tables import LABELS, cell
from matchlight.core import BadInput
from matchlight.pairs import Labels, Pairs

SIDES = {"image": ("image",), "text": ("text",), "both": ("image", "text")}


def relabelled(path: Path, lines: dict[int, dict[str, str]], pairs: Pairs, bad: set[int]) -> tuple[Pairs, set[int]]:
    """The data with likelier labels, and the bad rows that are right by that.

    Rows of one picture may want different labels for it: the surest of them, the one with the lowest score, decides.
    """
    if pairs.labels is None or not all(set(LABELS) <= set(line) for line in lines.values()):
        raise BadInput(
            f"{path}: no label was judged; --relabel needs data with one class for each picture and each text"
        )
    classes = {told: number for number, name in enumerate(pairs.labels.names) for told in (name, cell(name))}
    wanted = sorted((_score(path, row, lines[row]), row) for row in bad & set(lines) if lines[row]["reason"] == LABEL)
    labels = Labels(pairs.labels.names, pairs.labels.image.copy(), pairs.labels.text.copy())
    for _, row in reversed(wanted):
        side, likely = lines[row]["side"], lines[row]["likely"]
        if side not in SIDES or likely not in classes:
            raise BadInput(
                f"{path}: row {row} has side {side!r} and likely {likely!r}; image, text or both, and a class"
            )
        for one in SIDES[side]:
            table, place = (labels.image, pairs.picture[row]) if one == "image" else (labels.text, row)
            table[place] = False
            table[place, classes[likely]] = True
    return replace(pairs, labels=labels), {row for _, row in wanted}


def _score(path: Path, row: int, line: dict[str, str]) -> float:
    try:
        return float(line["score"])
    except ValueError:
        raise BadInput(f"{path}: row {row} has score {line['score']!r}; a number from 0 to 1") from None
