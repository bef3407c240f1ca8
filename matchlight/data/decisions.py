"""What a person decided about a pair: keep it, drop it, or match it again with another partner.

report.html exports decisions, the served review keeps them in its journal and exports them, and `matchlight data apply`
reads them: JSON or CSV with the same words. What Label Studio exports is read as well (label_studio_answers.py).

    row,decision,image,caption_row,image_row,reviewer,at
    12,keep,,,,,
    13,drop,,,,Anna,2024-05-01T10:00:00+00:00
    14,rematch,b.jpg,,8,,         # the caption goes to this picture; row 8 is one of its rows, as names may repeat
    15,rematch,,3,,,              # the picture gets the caption of row 3
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matchlight.console import BadInput
from matchlight.data import label_studio_answers
from matchlight.data.cells import plain_cell, safe_cell
from matchlight.data.findings import PictureNames, row_number, whole_number
from matchlight.data.formats.csv_lines import LONGEST_CELL
from matchlight.files import regular
from matchlight.pairs import Pairs

KEEP, DROP, REMATCH = "keep", "drop", "rematch"
DECISIONS = (KEEP, DROP, REMATCH)
OLD_WORDS = {"accept": KEEP, "reject": DROP}  # what reports exported at first
COLUMNS = ("row", "decision", "image", "caption_row", "image_row", "reviewer", "at")


@dataclass(frozen=True)
class Decision:
    """What a person decided about a row; a re-match names either an image or a caption_row."""

    row: int
    decision: str  # one of DECISIONS
    image: str | None = None  # re-match: the picture that the caption goes to
    caption_row: int | None = None  # re-match: the row whose caption the picture gets
    at: str = ""  # when it was made, where that is known
    image_row: int | None = None  # a row of that picture, which says which one where several are called so
    reviewer: str = ""  # who made it, where that is known
    where: str = field(default="", compare=False)  # the file and the place in it, for complaints

    def as_json(self) -> dict[str, str | int]:
        """Without the row, and without what is not there."""
        parts = {"decision": self.decision, "image": self.image, "caption_row": self.caption_row, "at": self.at}
        parts |= {"image_row": self.image_row, "reviewer": self.reviewer or None}
        return {name: value for name, value in parts.items() if value is not None}


def as_csv(decisions: Iterable[Decision]) -> str:
    """What `matchlight data apply --decisions` reads."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for one in decisions:
        rows = ["" if row is None else row for row in (one.caption_row, one.image_row)]
        lines.writerow([one.row, one.decision, safe_cell(one.image or ""), *rows, safe_cell(one.reviewer), one.at])
    return out.getvalue()


def read_decisions(path: Path, rows: int, *, audited: str = "") -> dict[int, Decision]:
    """Row -> what was decided last; from the report's JSON, or a CSV of row,decision (and a partner's columns).

    `audited` is the fingerprint of the data, where decisions that say which data they are about must be about these.
    """
    try:
        text = regular(path).read_text(encoding="utf-8-sig")  # a spreadsheet puts a mark before the text
    except OSError as problem:
        raise BadInput(f"{path}: cannot be read ({problem.strerror}); the report's export buttons write it") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file; the report's export buttons write JSON or CSV") from None
    decisions = _from_json(path, text, audited) if text.lstrip()[:1] in ("{", "[") else _from_csv(path, text, audited)
    for one in decisions:
        if one.decision not in DECISIONS:
            raise BadInput(f"{one.where}: {one.decision!r}; keep, drop or rematch")
        if one.row >= rows:
            raise BadInput(f"{one.where}: row {one.row}; the data has rows 0 to {rows - 1}")
    return {one.row: one for one in decisions}


def _from_json(path: Path, text: str, audited: str) -> list[Decision]:
    try:
        value = json.loads(text)
        listed = value["decisions"] if isinstance(value, dict) else value
        if any(map(label_studio_answers.is_export, listed)):
            return _from_label_studio(listed, str(path), audited)
        return [_decision(one, f"{path} decision {number}") for number, one in enumerate(listed, 1)]
    except BadInput:  # a ValueError that says more than the line below
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f'{path}: not a list of decisions such as {{"row": 12, "decision": "drop"}}') from None


def _from_label_studio(tasks: Sequence[Mapping[str, object]], path: str, audited: str) -> list[Decision]:
    answers = label_studio_answers.answers(tasks, path)
    for entry, where in answers:
        if audited and entry["audit"] and entry["audit"] != audited:
            raise BadInput(f"{where}: decided about other data than this audit's, or the data has changed since")
    return [_decision(entry, where) for entry, where in answers]


def _from_csv(path: Path, text: str, audited: str) -> list[Decision]:
    first = text.partition("\n")[0]  # many spreadsheets write semicolons
    separator = ";" if ";" in first and "," not in first else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    longest = csv.field_size_limit(LONGEST_CELL)  # Label Studio's tables repeat the pictures of the tasks
    try:
        if not {"row", "decision"} <= set(reader.fieldnames or ()):
            raise BadInput(f"{path}: no columns row and decision; the report's export buttons write them")
        if "annotation_id" in (reader.fieldnames or ()):
            return _from_label_studio(list(reader), str(path), audited)
        return [_decision(line, f"{path} line {number}") for number, line in enumerate(reader, 2)]
    except csv.Error as problem:
        raise BadInput(f"{path}: not a readable CSV file ({problem})") from None
    finally:
        csv.field_size_limit(longest)


def _decision(entry: Mapping[str, object], where: str) -> Decision:
    """One entry of either kind of file; a missing partner is None in JSON and a blank in CSV, and row 0 is neither."""
    row = row_number(entry["row"], where)
    parts = ("" if entry.get(name) is None else str(entry[name]) for name in COLUMNS[1:])
    word, image, caption, own, reviewer, at = parts
    caption_row, image_row = whole_number(caption), whole_number(own)
    if (caption.strip() and caption_row is None) or (own.strip() and image_row is None):
        raise _no_partner(where)
    word, named = word.strip(), plain_cell(image) or None
    return Decision(row, OLD_WORDS.get(word, word), named, caption_row, at, image_row, plain_cell(reviewer), where)


def named_partners(decisions: Mapping[int, Decision], pairs: Pairs) -> tuple[dict[int, int], dict[int, int]]:
    """(row -> picture, row -> row of another caption) of the rows that are re-matched in the end."""
    names = PictureNames(pairs)
    pictures: dict[int, int] = {}
    captions: dict[int, int] = {}
    for row, one in decisions.items():
        if one.decision != REMATCH:
            continue
        if one.image in names.places and one.caption_row is None:
            pictures[row] = names.place(one.image or "", one.image_row, one.where)
        elif one.image is None and one.caption_row is not None and one.caption_row < len(pairs):
            captions[row] = one.caption_row
        else:
            raise _no_partner(one.where)
    return pictures, captions


def _no_partner(where: str) -> BadInput:
    return BadInput(f"{where}: a rematch names either an image or a caption_row of the data")
