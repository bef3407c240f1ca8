"""Labels put right: where a label is the only thing wrong with a pair, the likelier class takes its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from matchlight.core import BadInput
from matchlight.data.cells import spellings
from matchlight.data.findings import WRONG_LABEL, AuditFindings, Finding
from matchlight.pairs import Labels, Pairs

IMAGE, TEXT = "image", "text"
SIDES = (IMAGE, TEXT, "both")

Wishes = dict[int, tuple[str, int]]  # row -> whose label is wrong and the class it should have, the surest row first


def relabelled(audited: AuditFindings, bad: set[int], accepted: set[int]) -> tuple[Pairs, set[int]]:
    """The data with likelier labels, and the bad rows that are right by that.

    A picture's label is one for all its rows: it changes where more than half of them find it wrong, to what the surest
    of these (the lowest score) says, and never where a person kept one of them. A row whose wish is not followed is as
    bad as before.
    """
    pairs, findings = audited.pairs, audited.findings
    if pairs.labels is None or any(one.labels is None for one in findings.values()):
        raise BadInput(
            f"{audited.path}: no label was judged; --relabel needs data with one class for each picture and each text"
        )
    wishes = _wishes(audited, pairs.labels, bad)
    pictures = _agreed(wishes, findings, pairs.picture, fixed={_of(pairs, row) for row in accepted})
    labels = Labels(pairs.labels.names, pairs.labels.image.copy(), pairs.labels.text.copy())
    for place, likely in pictures.items():
        labels.image[place] = np.arange(len(labels.names)) == likely
    mended = {row for row, (side, likely) in wishes.items() if side == TEXT or pictures.get(_of(pairs, row)) == likely}
    for row in mended:
        side, likely = wishes[row]
        if side != IMAGE:
            labels.text[row] = np.arange(len(labels.names)) == likely
    return replace(pairs, labels=labels), mended


def _wishes(audited: AuditFindings, labels: Labels, bad: set[int]) -> Wishes:
    classes = {spelling: number for number, name in enumerate(labels.names) for spelling in spellings(name)}
    classes |= {name: number for number, name in enumerate(labels.names)}
    findings = [audited.findings[row] for row in bad & set(audited.findings)]
    wishes: Wishes = {}
    for one in sorted(findings, key=lambda one: (one.score, one.row)):
        if one.reason != WRONG_LABEL or one.labels is None:
            continue
        side, likely = one.labels.side, one.labels.likely
        if side not in SIDES or likely not in classes:
            problem = f"row {one.row} has side {side!r} and likely {likely!r}"
            raise BadInput(f"{audited.path}: {problem}; image, text or both, and a class")
        wishes[one.row] = side, classes[likely]
    return wishes


def _agreed(wishes: Wishes, findings: Mapping[int, Finding], picture: np.ndarray, *, fixed: set[int]) -> dict[int, int]:
    """Picture -> its new class, where most of its rows find the old one wrong."""
    rows = Counter(int(picture[row]) for row in findings)
    against = Counter(int(picture[row]) for row, (side, _) in wishes.items() if side != TEXT)
    out: dict[int, int] = {}
    for row, (side, likely) in wishes.items():
        place = int(picture[row])
        if side != TEXT and 2 * against[place] > rows[place] and place not in fixed:
            out.setdefault(place, likely)  # the surest comes first
    return out


def _of(pairs: Pairs, row: int) -> int:
    return int(pairs.picture[row])
